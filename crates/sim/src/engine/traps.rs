//! Traps: the operating system's work for a thread.

use memtide_core::{Time, VirtAddr, Vpn};

use super::Engine;
use crate::SimError;
use crate::core::Trap;
use crate::os::{Faulted, Touch};
use crate::thread::{Cause, State, Thread};

impl Engine<'_> {
    /// Handles the trap of the running thread of a CPU; the CPU's clock is at the current time.
    pub(super) fn handle(&mut self, cpu: usize, trap: Trap) -> Result<(), SimError> {
        let Some(thread) = self.cores[cpu].running else { return Ok(()) };
        match trap {
            Trap::Then(then) => self.carry_out(cpu, thread, then),
            Trap::Yield => {
                self.take_turns(cpu);
                Ok(())
            }
            Trap::Fault { address, write } => self.fault(cpu, thread, address, write),
        }
    }

    fn fault(&mut self, cpu: usize, thread: usize, address: VirtAddr, write: bool) -> Result<(), SimError> {
        let t = &mut self.threads[thread];
        let touch = Touch { task: t.task, thread: t.id, cpu: t.cpu, address, write };
        let swapped = self.os.counts.swapped_pages();
        let faulted = self.os.fault(touch, &mut t.placement)?;
        // Reclaim alone leaves stale translations here.
        self.shoot_down(Some(cpu), Cause::Swap);
        match faulted {
            Faulted::Mapped(cost) => {
                let of_swap = self.os.costs.swap * (self.os.counts.swapped_pages() - swapped);
                self.spend_system(cpu, of_swap, Cause::Swap);
                self.spend_system(cpu, cost.since(of_swap), Cause::Fault);
            }
            Faulted::Moving(page) => return self.wait_for_page(cpu, thread, page),
            Faulted::Hint(hinted) => {
                self.spend_system(cpu, self.os.costs.hint_fault, Cause::Monitoring);
                self.hint_fault(cpu, touch, hinted);
                if self.is_moving(touch.task, hinted.page) {
                    return self.wait_for_page(cpu, thread, hinted.page);
                }
            }
            Faulted::Protected(page) => {
                self.spend_system(cpu, self.os.costs.hint_fault, Cause::Migration);
                self.drop_copy(touch.task, page);
            }
            Faulted::Marked { page, size, node } => {
                self.spend_system(cpu, self.os.costs.marked_miss, Cause::Monitoring);
                self.marked_miss(cpu, touch, page, size, node);
                if self.is_moving(touch.task, page) {
                    return self.wait_for_page(cpu, thread, page);
                }
            }
        }
        self.cores[cpu].resume = self.cores[cpu].clock.now();
        Ok(())
    }

    /// On ideal memory, maps the page of a fault that another thread of the task could have had instead: it
    /// costs this one nothing. Returns whether that is so.
    pub(super) fn maps_for_free(&mut self, cpu: usize, thread: usize, trap: &Trap) -> Result<bool, SimError> {
        let &Trap::Fault { address, write } = trap else { return Ok(false) };
        if !self.setup.is_ideal || self.is_only_thread(thread) {
            return Ok(false);
        }
        let t = &mut self.threads[thread];
        let touch = Touch { task: t.task, thread: t.id, cpu: t.cpu, address, write };
        self.os.fault(touch, &mut t.placement)?;
        self.shoot_down(Some(cpu), Cause::Swap);
        Ok(true)
    }

    /// Whether its task has no other live thread. Others that begin later are then started by it, and those
    /// that have ended have not touched what it faults on: it does so in any run.
    fn is_only_thread(&self, thread: usize) -> bool {
        let task = self.threads[thread].task;
        let lives = |t: &Thread| t.task == task && !matches!(t.state, State::NotStarted | State::Ended);
        self.threads.iter().filter(|t| lives(t)).count() == 1
    }

    /// Keeps the thread on its CPU, in the kernel, until the page has moved.
    fn wait_for_page(&mut self, cpu: usize, thread: usize, page: Vpn) -> Result<(), SimError> {
        self.cores[cpu].resume = Time::NEVER;
        self.add_waiter(self.threads[thread].task, page, thread);
        Ok(())
    }
}

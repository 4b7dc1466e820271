//! Threads on CPUs: each has a CPU; threads on one CPU take turns.

use memtide_core::{TaskId, Time};

use super::Engine;
use crate::thread::{Cause, State};

/// Linux's time slice for threads that share a CPU.
const SLICE: Time = Time::from_ms(4);

impl Engine<'_> {
    /// Makes a thread runnable from `at` on.
    pub(super) fn make_ready(&mut self, thread: usize, at: Time) {
        self.threads[thread].state = State::Runnable;
        let cpu = self.threads[thread].cpu.index();
        self.cores[cpu].ready.push_back(thread);
        if self.cores[cpu].running.is_none() {
            self.run_next(cpu, at);
        }
    }

    /// The running thread of a CPU gives it up now.
    pub(super) fn leave_cpu(&mut self, cpu: usize) {
        let core = &mut self.cores[cpu];
        if let Some(thread) = core.running.take() {
            self.threads[thread].left_at = core.clock.now();
        }
        core.window.forget();
        core.resume = Time::NEVER;
        self.run_next(cpu, self.now);
    }

    /// Ends the running thread's time slice.
    pub(super) fn take_turns(&mut self, cpu: usize) {
        if let Some(thread) = self.cores[cpu].running {
            self.cores[cpu].ready.push_back(thread);
        }
        self.leave_cpu(cpu);
    }

    fn run_next(&mut self, cpu: usize, at: Time) {
        let slice = Time(SLICE.0 / u64::from(self.setup.scale));
        let core = &mut self.cores[cpu];
        let can_run = |&thread: &usize| !self.tasks.is_frozen(self.threads[thread].task);
        core.running = core.ready.iter().position(can_run).and_then(|at| core.ready.remove(at));
        core.must_leave = false;
        if let Some(thread) = core.running {
            core.clock.wait_until(at);
            core.slice_end = core.clock.now() + slice;
            core.resume = core.clock.now();
            let thread = &mut self.threads[thread];
            thread.spent.idle += core.clock.now().since(thread.left_at);
            let (cpu, task) = (core.cpu, thread.task);
            self.uncore.runs(cpu, self.class_of(task));
        }
        self.refresh_core(cpu);
    }

    /// Stops a task's threads, each once it has ended what it has begun, or lets them go on.
    pub(super) fn set_frozen(&mut self, task: TaskId, frozen: bool) {
        self.tasks.set_frozen(task, frozen);
        for cpu in 0..self.cores.len() {
            match self.cores[cpu].running {
                Some(thread) if self.threads[thread].task == task => self.cores[cpu].must_leave = frozen,
                Some(_) => {}
                None => self.run_next(cpu, self.now),
            }
        }
    }

    /// Drops stale translations on all CPUs of the task, interrupting those other than `by`. Returns the cost
    /// for the initiating CPU.
    pub(super) fn shoot_down(&mut self, by: Option<usize>, cause: Cause) -> Time {
        let mut cost = Time::ZERO;
        for stale in std::mem::take(&mut self.os.stale) {
            for at in 0..self.tasks.cpus(stale.task).len() {
                let cpu = self.tasks.cpus(stale.task)[at].index();
                self.cores[cpu].invalidate(stale.page);
                if Some(cpu) != by {
                    self.spend_system(cpu, self.os.costs.shootdown, cause);
                    cost += self.os.costs.shootdown;
                }
            }
        }
        if let Some(by) = by {
            self.spend_system(by, cost, cause);
        }
        cost
    }

    /// Does a policy's own work: in the fault on a CPU, or in a kernel thread, which takes an idle CPU if
    /// there is one, else one CPU after another.
    pub(super) fn work_for_policy(&mut self, cpu: Option<usize>, time: Time) {
        if let Some(cpu) = cpu {
            return self.spend_system(cpu, time, Cause::Monitoring);
        }
        self.work_ends = self.now.max(self.work_ends) + time;
        if self.cores.iter().any(|core| core.running.is_none()) {
            self.mover.system += time;
            return;
        }
        let cpu = self.worker % self.cores.len();
        self.worker = cpu + 1;
        self.spend_system(cpu, time, Cause::Monitoring);
    }

    /// Charges kernel time on a CPU to the running thread.
    pub(super) fn spend_system(&mut self, cpu: usize, time: Time, cause: Cause) {
        let core = &mut self.cores[cpu];
        let Some(thread) = core.running else { return };
        core.clock.wait_until(core.clock.now() + time);
        if core.resume != Time::NEVER {
            core.resume = core.clock.now();
        }
        self.threads[thread].spent.system.add(cause, time);
        self.refresh_core(cpu);
    }
}

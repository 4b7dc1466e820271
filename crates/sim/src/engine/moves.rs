//! Page moves: what policies' plans come to.

use memtide_core::epoch::Host;
use memtide_core::policy::{Event, Move, Needs, Observation, Refusal, Traffic};
use memtide_core::{LINE_BYTES, NodeId, PageSize, TaskId, Time, Vpn};

use super::{Engine, Timer};
use crate::mover::Copy;
use crate::os::{Entry, Owner, Stale, key_of};

/// The machine as a policy in the kernel has it: a move is made in the fault on `cpu` that called for it.
pub(super) struct InFault<'e, 'p> {
    pub engine: &'e mut Engine<'p>,
    pub cpu: usize,
}

impl Host for InFault<'_, '_> {
    fn now(&self) -> Time {
        self.engine.now
    }

    fn observe(&mut self, _needs: &Needs, _events: &mut Vec<Event>, _seen: &mut Observation) {}

    fn act(&mut self, wanted: &[Move]) -> Vec<Result<(), Refusal>> {
        let cpu = Some(self.cpu);
        let mut start = |wanted: &Move| {
            let frame = self.engine.reserve(wanted)?;
            self.engine.start_copy(*wanted, frame, cpu);
            Ok(())
        };
        wanted.iter().map(&mut start).collect()
    }
}

/// The machine as a policy outside the kernel has it: events in batches, moves by a kernel thread, one after another.
pub(super) struct Deployed<'e, 'p> {
    pub engine: &'e mut Engine<'p>,
    pub events: Vec<Event>,
}

impl Host for Deployed<'_, '_> {
    fn now(&self) -> Time {
        self.engine.now
    }

    fn observe(&mut self, _needs: &Needs, events: &mut Vec<Event>, seen: &mut Observation) {
        events.append(&mut self.events);
        if let Some(monitor) = &mut self.engine.monitor {
            monitor.observe(&mut self.engine.os, seen);
        }
        for used in &mut seen.nodes_use {
            used.traffic = Some(self.engine.traffic(used.node));
        }
    }

    fn act(&mut self, wanted: &[Move]) -> Vec<Result<(), Refusal>> {
        let made = wanted.iter().map(|wanted| self.engine.queue_move(wanted)).collect();
        self.engine.wake_daemon(self.engine.now);
        made
    }
}

impl Engine<'_> {
    fn traffic(&self, node: NodeId) -> Traffic {
        let device = self.uncore.node_counters(node, self.now);
        Traffic { read_bytes: device.reads * LINE_BYTES, written_bytes: device.writes * LINE_BYTES }
    }

    /// Has the kernel thread make a move.
    fn queue_move(&mut self, wanted: &Move) -> Result<(), Refusal> {
        let frame = self.reserve(wanted)?;
        if let Some((entry, _)) = self.os.spaces[wanted.task.index()].table.find(wanted.page) {
            entry.set(Entry::CLAIMED);
        }
        self.daemon.queue.push_back((*wanted, frame));
        Ok(())
    }

    /// Takes a frame for a move, if it can be made.
    fn reserve(&mut self, wanted: &Move) -> Result<u32, Refusal> {
        let space = self.os.spaces.get_mut(wanted.task.index()).ok_or(Refusal::Gone)?;
        let (entry, size) = space.table.find(wanted.page).ok_or(Refusal::Gone)?;
        if !entry.has(Entry::PRESENT) || size != wanted.size {
            return Err(Refusal::Gone);
        }
        if entry.any(Entry::MOVING | Entry::CLAIMED) {
            return Err(Refusal::Busy);
        }
        let frame = entry.frame();
        if !space.rule.allows(wanted.to) {
            return Err(Refusal::NotAllowed);
        }
        if self.os.node_of(frame) == wanted.to {
            return Err(Refusal::AlreadyThere);
        }
        if !self.os.fits(wanted.to, size) {
            return Err(Refusal::NoRoom);
        }
        let owner = Owner { task: wanted.task, page: first_page(wanted), size };
        self.os.frames.take(wanted.to, owner).ok_or(Refusal::NoRoom)
    }

    /// Unmaps a page and starts to copy it to a frame that was reserved.
    fn start_copy(&mut self, wanted: Move, to: u32, by: Option<usize>) {
        let Some(from) = self.unmap_for_move(&wanted) else {
            self.os.frames.give(to);
            return;
        };
        let shootdowns = self.shoot_down(by);
        let start = match by {
            None => self.now + shootdowns + self.os.costs.unmap,
            Some(cpu) => {
                self.spend_system(cpu, self.os.costs.unmap);
                self.cores[cpu].clock.now()
            }
        };
        let cpu = by.map_or(self.task_cpus[wanted.task.index()][0], |cpu| self.cores[cpu].cpu);
        let copy = Copy::new(wanted, from, to, cpu, self.now, by.is_none());
        let number = self.free_copies.pop().unwrap_or(self.copies.len());
        match self.copies.get_mut(number) {
            Some(old) => *old = copy,
            None => self.copies.push(copy),
        }
        let window = self.machine.core.outstanding_misses;
        self.copies[number].start(number, window, start, &mut self.uncore);
        self.daemon.busy |= by.is_none();
    }

    /// Unmaps a page that is to move and gives its frame; none if there is nothing to move any more.
    fn unmap_for_move(&mut self, wanted: &Move) -> Option<u32> {
        let (entry, size) = self.os.spaces[wanted.task.index()].table.find(wanted.page)?;
        let from = entry.frame();
        entry.clear(Entry::CLAIMED);
        let movable = size == wanted.size && entry.has(Entry::PRESENT) && !entry.has(Entry::MOVING);
        if !movable || self.os.frames.node_of(from) == wanted.to {
            return None;
        }
        entry.set(Entry::MOVING);
        let page = Some(key_of(wanted.task, first_page(wanted), size));
        self.os.stale.push(Stale { task: wanted.task, page });
        Some(from)
    }

    /// Pages of a task have been unmapped: moves of them are in vain.
    pub(super) fn note_unmapped(&mut self, task: TaskId) {
        for number in 0..self.copies.len() {
            let Copy { wanted, in_vain, .. } = self.copies[number];
            let under_way = !in_vain && wanted.task == task && !self.free_copies.contains(&number);
            if under_way && !self.is_moving(task, wanted.page) {
                self.copies[number].in_vain = true;
            }
        }
    }

    /// A line of a copy has been read.
    pub(super) fn line_came(&mut self, number: usize, at: Time) {
        if self.copies[number].line_came(number, at, &mut self.uncore) {
            self.finish_copy(number, at + self.os.costs.remap);
        }
    }

    fn finish_copy(&mut self, number: usize, at: Time) {
        self.free_copies.push(number);
        let copy = &mut self.copies[number];
        let Copy { wanted, from, to, begun, in_vain, by_daemon, .. } = *copy;
        let waiters = std::mem::take(&mut copy.waiters);
        let found = self.os.spaces[wanted.task.index()].table.find(wanted.page);
        if let Some((entry, _)) = found.filter(|_| !in_vain) {
            entry.clear(Entry::MOVING | Entry::HINT);
            entry.set_frame(to);
            self.os.frames.give(from);
            self.migrated_pages += wanted.size.base_pages();
        } else {
            self.os.frames.give(to);
        }
        for thread in waiters {
            let cpu = self.threads[thread].cpu.index();
            let core = &mut self.cores[cpu];
            let waited = core.clock.wait_until(at);
            core.resume = core.clock.now();
            self.threads[thread].spent.system += waited;
            self.refresh_core(cpu);
        }
        if by_daemon {
            self.daemon.busy = false;
            self.daemon.system += at.since(begun);
            self.wake_daemon(at);
        }
    }

    fn wake_daemon(&mut self, at: Time) {
        if !self.daemon.busy && !self.daemon.queue.is_empty() {
            self.set_timer(Timer::Daemon, at.max(self.now));
        }
    }

    /// The kernel thread starts the next move.
    pub(super) fn run_daemon(&mut self) {
        self.set_timer(Timer::Daemon, Time::NEVER);
        if let Some((wanted, frame)) = self.daemon.queue.pop_front() {
            self.start_copy(wanted, frame, None);
        }
        self.wake_daemon(self.now);
    }

    /// Whether a page is being moved.
    pub(super) fn is_moving(&mut self, task: TaskId, page: Vpn) -> bool {
        let found = self.os.spaces[task.index()].table.find(page);
        found.is_some_and(|(entry, _)| entry.has(Entry::MOVING))
    }

    /// A thread waits for a page that is being moved.
    pub(super) fn add_waiter(&mut self, task: TaskId, page: Vpn, thread: usize) {
        let free = &self.free_copies;
        let copy = self.copies.iter_mut().enumerate().find(|(number, copy)| {
            let under_way = !copy.in_vain && !free.contains(number);
            under_way && copy.wanted.task == task && first_page(&copy.wanted) == page
        });
        let (_, copy) = copy.expect("a page that is being moved has a copy under way");
        copy.waiters.push(thread);
    }
}

fn first_page(wanted: &Move) -> Vpn {
    match wanted.size {
        PageSize::Base => wanted.page,
        PageSize::Huge => Vpn(wanted.page.0 / wanted.size.base_pages() * wanted.size.base_pages()),
    }
}

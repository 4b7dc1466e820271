//! The mover: performs actions. A policy outside the kernel has a kernel thread that moves pages one after
//! another; one in the kernel moves the page in the fault that caused the move.
//!
//! ```text
//! begin ── refused
//!   │ frame reserved
//!   ├─ in the kernel ──────────────▶ copy ─▶ made
//!   └─ queue ─▶ kernel thread ─────▶ copy ─▶ made
//!        │                            │  page unmapped meanwhile: cancelled
//!        ├ page gone: cancelled       └ page mapped (copy on write): a store drops the copy, made again
//!        └ still no room: refused
//! ```
//!
//! A move that finds no room keeps its place in the queue: earlier ones may make room for it.

use std::collections::VecDeque;

use memtide_core::policy::{
    Action, Cancellation, Completion, Frame, Move, Outcome, Page, Planned, Refusal, Rule, RuleState,
};
use memtide_core::{NodeId, PageSize, TaskId, Time, Vpn};
use slab::Slab;

use super::copy::Copy;
use super::{Engine, Timer};
use crate::os::{Entry, Owner, Stale, key_of};
use crate::thread::Cause;

/// Copies of a page, if stores drop them, after the last of which accesses wait.
const COPIES_MAX: u32 = 4;

/// Moves in flight, and completions not collected yet.
#[derive(Default)]
pub(crate) struct Mover {
    /// What the kernel thread has not started, in the plans' order.
    queue: VecDeque<Queued>,
    copies: Slab<Copy>,
    /// Whether the kernel thread is copying a page.
    pub(super) busy: bool,
    /// Whether the kernel thread copies pages while they stay mapped.
    copy_on_write: bool,
    /// Its working time.
    pub system: Time,
    /// Base pages moved to each node.
    migrated_pages: Vec<u64>,
    done: Vec<Completion>,
}

/// Work of the kernel thread.
enum Queued {
    /// A move to a reserved frame, if there was room.
    Move(Planned, Move, Option<u32>),
    /// A collapse of base pages.
    Collapse(Planned, Page),
    /// Stops a task's threads, or lets them go on.
    Freeze(Planned, TaskId, bool),
}

impl Mover {
    /// Without moves, on a machine with this number of nodes.
    pub fn new(nodes: usize, copy_on_write: bool) -> Mover {
        Mover { migrated_pages: vec![0; nodes], copy_on_write, ..Mover::default() }
    }

    /// Base pages moved to a node.
    pub fn migrated_pages(&self, node: NodeId) -> u64 {
        self.migrated_pages[node.index()]
    }

    /// Appends the completions since the last call.
    pub fn take_done(&mut self, done: &mut Vec<Completion>) {
        done.append(&mut self.done);
    }

    /// Forgets the completions since the last call.
    pub fn drop_done(&mut self) {
        self.done.clear();
    }

    pub(super) fn complete(&mut self, time: Time, planned: Planned, outcome: Outcome) {
        self.done.push(Completion { time, planned, outcome });
    }
}

impl Engine<'_> {
    /// Begins an action: in the fault on a CPU, or by the kernel thread.
    pub(crate) fn begin(&mut self, planned: &Planned, cpu: Option<usize>) {
        let outcome = match &planned.action {
            Action::Move(wanted) => match (self.admit(wanted), cpu) {
                (Ok(Some(frame)), Some(cpu)) => return self.move_in_fault(planned, *wanted, frame, cpu),
                (Ok(None), Some(_)) => Outcome::Refused(Refusal::NoRoom),
                (Ok(frame), None) => return self.queue_move(planned, *wanted, frame),
                (Err(refusal), _) => Outcome::Refused(refusal),
            },
            Action::SetRule(task, rule) => self.set_rule(*task, rule),
            Action::CacheQuota(task, ways) => self.set_quota(*task, *ways),
            Action::Split(page) => self.split(page),
            Action::Collapse(page) if cpu.is_none() => {
                return self.mover.queue.push_back(Queued::Collapse(planned.clone(), *page));
            }
            Action::Freeze(task) | Action::Thaw(task) if cpu.is_none() => {
                let freezes = matches!(planned.action, Action::Freeze(_));
                return self.mover.queue.push_back(Queued::Freeze(planned.clone(), *task, freezes));
            }
            _ => Outcome::Refused(Refusal::Unsupported),
        };
        self.mover.complete(self.now, planned.clone(), outcome);
    }

    fn move_in_fault(&mut self, planned: &Planned, wanted: Move, frame: u32, cpu: usize) {
        let (planned, wanted) = self.with_source(planned, wanted);
        self.start_copy(planned, wanted, frame, Some(cpu));
    }

    fn queue_move(&mut self, planned: &Planned, wanted: Move, frame: Option<u32>) {
        let (planned, wanted) = self.with_source(planned, wanted);
        if let Some((entry, _)) = self.os.spaces[wanted.task.index()].table.find(wanted.page) {
            entry.set(Entry::CLAIMED);
        }
        self.mover.queue.push_back(Queued::Move(planned, wanted, frame));
    }

    /// An admitted move with the page's actual source node, which its completion has.
    fn with_source(&mut self, planned: &Planned, wanted: Move) -> (Planned, Move) {
        let found = self.os.spaces[wanted.task.index()].table.find(wanted.page);
        let (entry, _) = found.expect("a page whose move was admitted");
        let wanted = Move { from: self.os.frames.node_of(entry.frame()), ..wanted };
        (Planned { action: Action::Move(wanted), ..planned.clone() }, wanted)
    }

    /// Splits a huge page, whose base pages stay where they are, at the cost of one move without the copy.
    fn split(&mut self, wanted: &Page) -> Outcome {
        let Page { task, page, .. } = *wanted;
        let space = self.os.spaces.get_mut(task.index()).filter(|_| self.tasks.is_alive(task));
        let found = space.and_then(|space| space.table.find(page));
        let Some((entry, PageSize::Huge)) = found.filter(|(entry, _)| entry.has(Entry::PRESENT)) else {
            return Outcome::Refused(Refusal::Gone);
        };
        if entry.any(Entry::MOVING | Entry::CLAIMED | Entry::COPIED) {
            return Outcome::Refused(Refusal::Busy);
        }
        let frame = entry.frame();
        let head = Vpn(page.0 - page.0 % PageSize::Huge.base_pages());
        self.os.spaces[task.index()].table.split(head);
        self.os.frames.split(frame);
        self.os.stale.push(Stale { task, page: Some(key_of(task, head, PageSize::Huge)) });
        let shootdowns = self.shoot_down(None, Cause::Migration);
        self.mover.system += shootdowns + self.os.costs.unmap + self.os.costs.remap;
        Outcome::MADE
    }

    /// Places the task's pages by another rule from its next fault on.
    fn set_rule(&mut self, task: TaskId, rule: &Rule) -> Outcome {
        let Some(space) = self.os.spaces.get_mut(task.index()).filter(|_| self.tasks.is_alive(task)) else {
            return Outcome::Refused(Refusal::Gone);
        };
        space.rule = rule.clone();
        for thread in self.threads.iter_mut().filter(|thread| thread.task == task) {
            thread.placement = RuleState::new(rule, self.setup.seed, thread.id);
        }
        Outcome::MADE
    }

    /// Refuses a move that cannot be made, and reserves a frame for others, if there is room.
    fn admit(&mut self, wanted: &Move) -> Result<Option<u32>, Refusal> {
        let space = self.os.spaces.get_mut(wanted.task.index()).ok_or(Refusal::Gone)?;
        let (entry, size) = space.table.find(wanted.page).ok_or(Refusal::Gone)?;
        if !entry.has(Entry::PRESENT) || size != wanted.size {
            return Err(Refusal::Gone);
        }
        if entry.any(Entry::MOVING | Entry::CLAIMED | Entry::COPIED) {
            return Err(Refusal::Busy);
        }
        let frame = entry.frame();
        if !space.rule.allows(wanted.to) {
            return Err(Refusal::NotAllowed);
        }
        if self.os.frames.is_there(frame, wanted) {
            return Err(Refusal::AlreadyThere);
        }
        if self.os.frames.is_offline(wanted.to) {
            return Err(Refusal::NodeOffline);
        }
        Ok(self.reserve(wanted))
    }

    /// Reserves a frame for an admitted move.
    fn reserve(&mut self, wanted: &Move) -> Option<u32> {
        let Move { task, to, size, .. } = *wanted;
        let owner = Owner { task, page: wanted.head(), size };
        let has_room = self.os.frames.has_room(to, size);
        if has_room { self.os.frames.take_like(to, owner, &wanted.wish) } else { None }
    }

    /// The turn of a move in the kernel thread's queue.
    fn start_queued(&mut self, planned: Planned, wanted: Move, frame: Option<u32>) {
        let is_offline = self.os.frames.is_offline(wanted.to);
        let frame = frame.or_else(|| if is_offline { None } else { self.reserve(&wanted) });
        if let Some(frame) = frame {
            return self.start_copy(planned, wanted, frame, None);
        }
        if let Some((entry, _)) = self.os.spaces[wanted.task.index()].table.find(wanted.page) {
            entry.clear(Entry::CLAIMED);
        }
        let refusal = if is_offline { Refusal::NodeOffline } else { Refusal::NoRoom };
        self.mover.complete(self.now, planned, Outcome::Refused(refusal));
    }

    /// Unmaps a page, or protects it from stores, and starts to copy it to a reserved frame.
    fn start_copy(&mut self, planned: Planned, wanted: Move, to: u32, by: Option<usize>) {
        let flags = match by.is_none() && self.mover.copy_on_write {
            true => Entry::COPIED | Entry::PROTECTED,
            false => Entry::MOVING,
        };
        let Some(from) = self.unmap_for_move(&wanted, flags) else {
            self.os.frames.give(to);
            let outcome = self.cancelled(&wanted);
            return self.mover.complete(self.now, planned, outcome);
        };
        let shootdowns = self.shoot_down(by, Cause::Migration);
        let start = match by {
            None => self.now + shootdowns + self.os.costs.unmap,
            Some(cpu) => {
                self.spend_system(cpu, self.os.costs.unmap, Cause::Migration);
                self.cores[cpu].clock.now()
            }
        };
        let cpu = by.map_or(self.tasks.cpus(wanted.task)[0], |cpu| self.cores[cpu].cpu);
        self.copy(Copy::new(planned, wanted, from, to, cpu, self.now, by.is_none()), start);
        self.mover.busy |= by.is_none();
    }

    /// Starts to copy a page.
    pub(super) fn copy(&mut self, copy: Copy, start: Time) {
        let number = self.mover.copies.insert(copy);
        let window = self.setup.machine.core.outstanding_misses;
        self.mover.copies[number].start(number, window, start, &mut self.uncore);
    }

    /// Outcome of a move whose page is gone.
    fn cancelled(&self, wanted: &Move) -> Outcome {
        let ended = !self.tasks.is_alive(wanted.task);
        Outcome::Cancelled(if ended { Cancellation::TaskEnded } else { Cancellation::Unmapped })
    }

    /// Unmaps or protects a page to move, by these flags, and returns its frame; `None` if it can no longer
    /// be moved.
    fn unmap_for_move(&mut self, wanted: &Move, flags: u64) -> Option<u32> {
        let (entry, size) = self.os.spaces[wanted.task.index()].table.find(wanted.page)?;
        let from = entry.frame();
        entry.clear(Entry::CLAIMED);
        let movable = size == wanted.size && entry.has(Entry::PRESENT) && !entry.has(Entry::MOVING);
        if !movable || self.os.frames.is_there(from, wanted) {
            return None;
        }
        entry.set(flags);
        self.drop_translation(wanted);
        Some(from)
    }

    /// Notes that cores must drop the translation of a page to move.
    fn drop_translation(&mut self, wanted: &Move) {
        let page = Some(key_of(wanted.task, wanted.head(), wanted.size));
        self.os.stale.push(Stale { task: wanted.task, page });
    }

    /// A store to a page that is being copied while mapped: the copy is useless.
    pub(super) fn drop_copy(&mut self, task: TaskId, page: Vpn) {
        if let Some((entry, _)) = self.os.spaces[task.index()].table.find(page) {
            entry.clear(Entry::PROTECTED);
        }
        let of_page =
            |copy: &&mut Copy| !copy.cancelled && (copy.wanted.task, copy.wanted.head()) == (task, page);
        if let Some(copy) = self.mover.copies.iter_mut().map(|(_, copy)| copy).find(of_page) {
            copy.dropped = true;
        }
    }

    /// Makes a dropped copy again. One that was dropped too often unmaps the page, so that it ends.
    fn copy_again(&mut self, number: usize, at: Time) {
        let Copy { wanted, attempts, .. } = self.mover.copies[number];
        let flags = match attempts + 1 < COPIES_MAX {
            true => Entry::COPIED | Entry::PROTECTED,
            false => Entry::MOVING,
        };
        if let Some((entry, _)) = self.os.spaces[wanted.task.index()].table.find(wanted.page) {
            entry.clear(Entry::COPIED);
            entry.set(flags);
        }
        self.drop_translation(&wanted);
        let start = at + self.shoot_down(None, Cause::Migration);
        let window = self.setup.machine.core.outstanding_misses;
        self.mover.copies[number].restart(number, window, start, &mut self.uncore);
    }

    /// Cancels moves of a task's pages that have been unmapped.
    pub(super) fn cancel_unmapped(&mut self, task: TaskId) {
        let table = &mut self.os.spaces[task.index()].table;
        for (_, copy) in self.mover.copies.iter_mut().filter(|(_, copy)| copy.wanted.task == task) {
            let moves = |entry: &Entry| entry.any(Entry::MOVING | Entry::COPIED);
            let moving = table.find(copy.wanted.page).is_some_and(|(entry, _)| moves(entry));
            copy.cancelled |= !moving;
        }
    }

    /// Handles a line read by a copy.
    pub(super) fn line_arrived(&mut self, number: usize, at: Time) {
        if self.mover.copies[number].line_arrived(number, at, &mut self.uncore) {
            if self.mover.copies[number].dropped && !self.mover.copies[number].cancelled {
                return self.copy_again(number, at);
            }
            self.finish_copy(number, at + self.os.costs.remap);
        }
    }

    fn finish_copy(&mut self, number: usize, mut at: Time) {
        let Copy { planned, wanted, from, to, begun, waiters, cancelled, by_daemon, .. } =
            self.mover.copies.remove(number);
        let found = self.os.spaces[wanted.task.index()].table.find(wanted.page);
        let outcome = if let Action::Collapse(_) = planned.action {
            // Its frame is the page's already.
            match found.filter(|_| !cancelled) {
                Some((entry, _)) => {
                    entry.clear(Entry::MOVING);
                    Outcome::MADE
                }
                None => self.cancelled(&wanted),
            }
        } else if let Some((entry, _)) = found.filter(|_| !cancelled) {
            let was_mapped = entry.has(Entry::COPIED);
            entry.clear(Entry::MOVING | Entry::HINT | Entry::COPIED | Entry::PROTECTED);
            entry.set_frame(to);
            if was_mapped {
                self.drop_translation(&wanted);
                at += self.shoot_down(None, Cause::Migration);
            }
            self.os.frames.give(from);
            self.mover.migrated_pages[wanted.to.index()] += wanted.size.base_pages();
            self.tasks.count_migrated(wanted.task, wanted.size.base_pages());
            if let Some(at) = self.samples.region_time(self.now) {
                let program = self.tasks.program(wanted.task);
                self.heat.moved(program, wanted.head(), wanted.size.base_pages(), wanted.to, at);
            }
            Outcome::Made(if wanted.wish.is_any() { Frame::ANY } else { self.os.frames.place(to) })
        } else {
            self.os.frames.give(to);
            self.cancelled(&wanted)
        };
        self.mover.complete(self.now, planned, outcome);
        for thread in waiters {
            let cpu = self.threads[thread].cpu.index();
            let core = &mut self.cores[cpu];
            let waited = core.clock.wait_until(at);
            core.resume = core.clock.now();
            self.threads[thread].spent.system.add(Cause::Migration, waited);
            self.refresh_core(cpu);
        }
        if by_daemon {
            self.mover.busy = false;
            self.mover.system += at.since(begun);
            self.wake_mover(at);
        }
    }

    pub(crate) fn wake_mover(&mut self, at: Time) {
        if !self.mover.busy && !self.mover.queue.is_empty() {
            self.set_timer(Timer::Mover, at.max(self.now));
        }
    }

    /// Lets the kernel thread start the next move.
    pub(super) fn run_mover(&mut self) {
        self.set_timer(Timer::Mover, Time::NEVER);
        match self.mover.queue.pop_front() {
            Some(Queued::Move(planned, wanted, frame)) => self.start_queued(planned, wanted, frame),
            Some(Queued::Collapse(planned, page)) => self.start_collapse(planned, page),
            Some(Queued::Freeze(planned, task, freezes)) => {
                let is_alive = self.tasks.is_alive(task);
                if is_alive {
                    self.set_frozen(task, freezes);
                }
                let gone = Outcome::Cancelled(Cancellation::TaskEnded);
                self.mover.complete(self.now, planned, if is_alive { Outcome::MADE } else { gone });
            }
            None => {}
        }
        self.wake_mover(self.now);
    }

    /// Whether a page is being moved.
    pub(super) fn is_moving(&mut self, task: TaskId, page: Vpn) -> bool {
        let found = self.os.spaces[task.index()].table.find(page);
        found.is_some_and(|(entry, _)| entry.has(Entry::MOVING))
    }

    /// Adds a thread that waits for a page in migration.
    pub(super) fn add_waiter(&mut self, task: TaskId, page: Vpn, thread: usize) {
        let moves = |copy: &Copy| !copy.cancelled && copy.wanted.task == task && copy.wanted.head() == page;
        let copy = self.mover.copies.iter_mut().map(|(_, copy)| copy).find(|copy| moves(copy));
        copy.expect("a page that is being moved has a copy under way").waiters.push(thread);
    }

    /// Base pages mapped on each node; those being moved are on their source.
    pub(crate) fn mapped_pages(&self) -> Vec<u64> {
        let nodes = self.setup.machine.node_ids();
        let mut pages: Vec<u64> = nodes.map(|node| self.os.frames.used(node)).collect();
        for (reserved, size) in self.frames_in_flight() {
            pages[self.os.node_of(reserved).index()] -= size.base_pages();
        }
        pages
    }

    /// Frames reserved for moves, with the pages' sizes.
    pub(super) fn frames_in_flight(&self) -> Vec<(u32, PageSize)> {
        let moves = self.mover.copies.iter().filter(|(_, copy)| copy.from != copy.to);
        let copied = moves.map(|(_, copy)| (copy.to, copy.wanted.size));
        let queued = self.mover.queue.iter().filter_map(|queued| match queued {
            Queued::Move(_, wanted, to) => to.map(|to| (to, wanted.size)),
            Queued::Collapse(..) | Queued::Freeze(..) => None,
        });
        copied.chain(queued).collect()
    }
}

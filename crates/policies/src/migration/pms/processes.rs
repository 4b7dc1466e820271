//! The processes that take part, and which of them is next (pms section 4.1.2 and figure 4.2).
//!
//! ```text
//!  leave:   level 1: one with no more pages away than the quota? ─ none ▶ level 2 .. 5 ─ none ▶ quota + step
//!  return:  level 5: one with more pages away than the quota?    ─ none ▶ level 4 .. 1 ─ none ▶ quota - step
//! ```
//!
//! Level and quota stay as they are between two steps.

use std::collections::BTreeMap;

use memtide_core::policy::{MessageKind, PRIORITY_MAX, Region, View};
use memtide_core::{NodeId, TaskId, Vpn};
use serde::{Deserialize, Serialize};

/// The registered processes, and where the selection stands.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Processes {
    all: BTreeMap<TaskId, Process>,
    level: u8,
    /// Base pages that a process of the level may have away, and still be next.
    quota: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Process {
    priority: u8,
    /// By their first page.
    buffers: BTreeMap<Vpn, Buffer>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Buffer {
    pages: u64,
    locked: bool,
}

impl Default for Processes {
    fn default() -> Processes {
        Processes { all: BTreeMap::new(), level: 1, quota: 0 }
    }
}

impl Processes {
    /// What an application says. Messages of processes that are not registered, and on buffers that were not
    /// sent, say nothing.
    pub(super) fn receive(&mut self, task: TaskId, kind: MessageKind) {
        if let MessageKind::Register { priority } = kind {
            let priority = priority.clamp(1, PRIORITY_MAX);
            let process = self.all.entry(task);
            process.or_insert(Process { priority, buffers: BTreeMap::new() }).priority = priority;
            return;
        }
        let Some(process) = self.all.get_mut(&task) else { return };
        match kind {
            MessageKind::Register { .. } => {}
            MessageKind::Send { start, pages } => {
                process.buffers.insert(start, Buffer { pages, locked: false });
            }
            MessageKind::Release { start } => _ = process.buffers.remove(&start),
            MessageKind::Lock { start } => {
                if let Some(buffer) = process.buffers.get_mut(&start) {
                    buffer.locked = true;
                }
            }
            MessageKind::Cleanup => self.forget(task),
        }
    }

    /// Removes a process.
    pub(super) fn forget(&mut self, task: TaskId) {
        self.all.remove(&task);
    }

    /// Removes dead processes.
    pub(super) fn retain(&mut self, lives: impl Fn(TaskId) -> bool) {
        self.all.retain(|task, _| lives(*task));
    }

    /// Whether all levels are from 1 to [`PRIORITY_MAX`].
    pub(super) fn is_sound(&self) -> bool {
        let levels = self.all.values().map(|process| process.priority).chain([self.level]);
        levels.into_iter().all(|level| (1..=PRIORITY_MAX).contains(&level))
    }

    /// The process whose pages leave next; none if no page can.
    pub(super) fn next_to_send(&mut self, table: &Table<'_>, step: u64) -> Option<TaskId> {
        let can = |task: &TaskId| !table.movable(*task).is_empty();
        let candidates: Vec<TaskId> = self.all.keys().copied().filter(can).collect();
        let least = candidates.iter().map(|task| table.pages_away(*task)).min()?;
        loop {
            let of_level = candidates.iter().filter(|task| self.all[task].priority == self.level);
            if let Some(next) = of_level.copied().find(|task| table.pages_away(*task) <= self.quota) {
                return Some(next);
            }
            self.level += 1;
            if self.level > PRIORITY_MAX {
                self.level = 1;
                // As many turns as bring no process.
                let turns = least.saturating_sub(self.quota).div_ceil(step).max(1);
                self.quota = self.quota.saturating_add(turns.saturating_mul(step));
            }
        }
    }

    /// The process whose pages return next; none if no page is away.
    pub(super) fn next_to_return(&mut self, table: &Table<'_>, step: u64) -> Option<TaskId> {
        let candidates: Vec<TaskId> =
            self.all.keys().copied().filter(|task| table.pages_away(*task) > 0).collect();
        let most = candidates.iter().map(|task| table.pages_away(*task)).max()?;
        loop {
            let of_level = candidates.iter().filter(|task| self.all[task].priority == self.level);
            if let Some(next) = of_level.copied().find(|task| table.pages_away(*task) > self.quota) {
                return Some(next);
            }
            self.level -= 1;
            if self.level == 0 {
                self.level = PRIORITY_MAX;
                let turns = self.quota.saturating_sub(most) / step + 1;
                self.quota = self.quota.saturating_sub(turns.saturating_mul(step));
            }
        }
    }
}

/// The processes' pages, by where they are.
pub(super) struct Table<'t> {
    pages: BTreeMap<TaskId, Pages>,
    processes: &'t Processes,
}

/// Runs of pages of a process's buffers.
#[derive(Default)]
struct Pages {
    /// On local memory, and not locked.
    movable: Vec<Region>,
    away: Vec<Region>,
    locked_away: Vec<Region>,
}

impl<'t> Table<'t> {
    /// Sorts the pages of a view, which are those on the kernel's LRU lists.
    pub(super) fn new(processes: &'t Processes, view: &View, is_local: impl Fn(NodeId) -> bool) -> Table<'t> {
        let mut table = Table { pages: BTreeMap::new(), processes };
        for (&task, process) in &processes.all {
            let pages = table.pages.entry(task).or_default();
            for region in view.regions.of_task(task) {
                for (&start, buffer) in &process.buffers {
                    let Some(part) = clipped(&region, start, buffer.pages) else { continue };
                    match (is_local(part.node), buffer.locked) {
                        (true, false) => pages.movable.push(part),
                        (true, true) => {}
                        (false, locked) => {
                            pages.away.push(part);
                            if locked {
                                pages.locked_away.push(part);
                            }
                        }
                    }
                }
            }
        }
        table
    }

    /// All processes.
    pub(super) fn tasks(&self) -> impl Iterator<Item = TaskId> {
        self.processes.all.keys().copied()
    }

    /// Pages that may leave.
    pub(super) fn movable(&self, task: TaskId) -> Vec<Region> {
        self.pages.get(&task).map_or_else(Vec::new, |pages| pages.movable.clone())
    }

    /// Pages that have left.
    pub(super) fn away(&self, task: TaskId) -> Vec<Region> {
        self.pages.get(&task).map_or_else(Vec::new, |pages| pages.away.clone())
    }

    /// Pages that have left and must come home.
    pub(super) fn locked_away(&self, task: TaskId) -> Vec<Region> {
        self.pages.get(&task).map_or_else(Vec::new, |pages| pages.locked_away.clone())
    }

    /// Base pages that have left.
    pub(super) fn pages_away(&self, task: TaskId) -> u64 {
        let away = self.pages.get(&task).into_iter().flat_map(|pages| &pages.away);
        away.fold(0, |all, run| all.saturating_add(run.pages * run.size.base_pages()))
    }
}

/// The part of a region whose pages begin in a buffer.
fn clipped(region: &Region, start: Vpn, pages: u64) -> Option<Region> {
    let size = region.size.base_pages();
    let first = start.0.saturating_sub(region.start.0).div_ceil(size);
    let end = start.0.saturating_add(pages).saturating_sub(region.start.0).div_ceil(size).min(region.pages);
    (first < end).then(|| Region { start: Vpn(region.start.0 + first * size), pages: end - first, ..*region })
}

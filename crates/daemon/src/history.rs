//! What the daemon remembers: what it saw last, and the last decision about each page, as far as there is room.

use std::collections::{BTreeMap, VecDeque};

use memtide_core::epoch::Watcher;
use memtide_core::policy::{Event, NodeUse, Observation, Outcome, Plan, Region};
use memtide_core::{NodeId, TaskId, Time, Vpn};

use crate::journal::MoveOutcome;

/// Runs of pages that are remembered.
const RUNS_MAX: usize = 8192;

/// What is remembered.
#[derive(Debug, Default)]
pub struct History {
    seen: Observation,
    at: Time,
    /// The nodes in the epoch before, and when that was.
    before: (Time, Vec<NodeUse>),
    decisions: VecDeque<MoveOutcome>,
    moved: BTreeMap<TaskId, u64>,
}

impl History {
    /// Pages of a task that were moved.
    pub fn moved(&self, task: TaskId) -> u64 {
        self.moved.get(&task).copied().unwrap_or(0)
    }

    /// Base pages of a task on each of so many nodes, as far as regions tell; none if it has not been seen.
    pub fn pages(&self, task: TaskId, nodes: usize) -> Option<Vec<u64>> {
        let mut regions = self.seen.iter().filter(|region| region.task == task).peekable();
        regions.peek()?;
        let mut pages = vec![0; nodes];
        for region in regions {
            pages[region.node.index()] += region.pages * region.size.base_pages();
        }
        Some(pages)
    }

    /// How full a node is.
    pub fn used(&self, node: NodeId) -> Option<&NodeUse> {
        self.seen.nodes_use.iter().find(|used| used.node == node)
    }

    /// What was read from a node and written to it, in MB/s, from the epoch before the last one to that, where it is counted.
    pub fn traffic_mbps(&self, node: NodeId) -> Option<(f64, f64)> {
        let (since, before) = (self.before.0, self.before.1.iter().find(|used| used.node == node)?.traffic?);
        let now = self.used(node)?.traffic?;
        let seconds = self.at.since(since).as_seconds();
        let mbps = |now: u64, before: u64| now.saturating_sub(before) as f64 / 1e6 / seconds;
        let both = (mbps(now.read_bytes, before.read_bytes), mbps(now.written_bytes, before.written_bytes));
        (seconds > 0.0).then_some(both)
    }

    /// The region of a page when it was last seen.
    pub fn region(&self, task: TaskId, page: Vpn) -> Option<Region> {
        self.seen.iter().find(|region| {
            let end = region.start.0 + region.pages * region.size.base_pages();
            region.task == task && (region.start.0..end).contains(&page.0)
        })
    }

    /// The last decision about a page.
    pub fn last(&self, task: TaskId, page: Vpn) -> Option<&MoveOutcome> {
        let about = |made: &&MoveOutcome| {
            made.run.first.task == task && (made.run.start()..made.run.end()).contains(&page)
        };
        self.decisions.iter().rev().find(about)
    }

    fn note(&mut self, outcome: &Outcome) {
        let wanted = outcome.wanted;
        if outcome.result.is_ok() {
            *self.moved.entry(wanted.task).or_default() += wanted.size.base_pages();
        }
        if self.decisions.back_mut().is_some_and(|last| last.add(outcome)) {
            return;
        }
        if self.decisions.len() == RUNS_MAX {
            self.decisions.pop_front();
        }
        self.decisions.push_back(MoveOutcome::of(outcome));
    }
}

impl Watcher for History {
    fn planned(&mut self, now: Time, _: &[Event], seen: &Observation, _: &Plan) {
        self.before = (self.at, std::mem::take(&mut self.seen.nodes_use));
        self.at = now;
        self.seen = seen.clone();
    }

    fn happened(&mut self, outcomes: &[Outcome]) {
        outcomes.iter().for_each(|outcome| self.note(outcome));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtide_core::policy::{Move, Reason, Refusal};
    use memtide_core::{NodeId, PageSize};

    fn outcome(page: u64, result: Result<(), Refusal>) -> Outcome {
        let (task, page, size) = (TaskId(7), Vpn(page), PageSize::Base);
        let wanted = Move { task, page, size, from: NodeId(1), to: NodeId(0), reason: Reason::Hot };
        Outcome { time: Time::from_ms(3), wanted, result }
    }

    #[test]
    fn neighbouring_pages_are_one_decision_and_the_last_one_counts() {
        let mut history = History::default();
        history.happened(&[
            outcome(1, Ok(())),
            outcome(2, Ok(())),
            outcome(3, Err(Refusal::Busy)),
            outcome(5, Ok(())),
        ]);
        assert_eq!((history.decisions.len(), history.moved(TaskId(7))), (3, 3));
        history.happened(&[outcome(2, Err(Refusal::NoRoom))]);
        assert_eq!(history.last(TaskId(7), Vpn(2)).and_then(|made| made.refused), Some(Refusal::NoRoom));
        assert_eq!(history.last(TaskId(7), Vpn(1)).map(|made| made.refused), Some(None));
        assert_eq!((history.last(TaskId(7), Vpn(4)), history.last(TaskId(8), Vpn(1))), (None, None));
        for page in (10..10 + 2 * RUNS_MAX as u64 + 10).step_by(2) {
            history.happened(&[outcome(page, Ok(()))]);
        }
        assert_eq!(history.decisions.len(), RUNS_MAX);
    }
}

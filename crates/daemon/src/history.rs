//! The last view, and the last decision about each page, up to a limit.

use std::collections::{BTreeMap, VecDeque};

use memtide_core::epoch::Watcher;
use memtide_core::policy::{Completion, Event, NodeView, Outcome, Plan, Region, View};
use memtide_core::{Machine, NodeId, TaskId, Time, Vpn};

use crate::accesses::Accesses;
use crate::journal::MoveOutcome;
use crate::recent::Recent;
use crate::status::{NodeStatus, RecentMoves};

/// Maximum runs of pages with a decision.
const RUNS_MAX: usize = 8192;

/// The last two views' nodes, and the last decisions.
#[derive(Debug, Default)]
pub struct History {
    view: View,
    /// The nodes in the previous epoch, and its time.
    before: (Time, Vec<NodeView>),
    decisions: VecDeque<MoveOutcome>,
    moved: BTreeMap<TaskId, u64>,
    /// Where sampled accesses went.
    pub accesses: Accesses,
    recent: Recent,
}

impl History {
    /// Base pages of a task moved so far.
    pub fn moved(&self, task: TaskId) -> u64 {
        self.moved.get(&task).copied().unwrap_or(0)
    }

    /// Base pages of a task on each node, by its regions; `None` before the first epoch that observes it.
    pub fn pages(&self, task: TaskId) -> Option<Vec<u64>> {
        self.view.task(task).map(|task| task.footprint.clone()).filter(|pages| !pages.is_empty())
    }

    /// A node in the last epoch.
    pub fn node_status(&self, machine: &Machine, node: NodeId) -> NodeStatus {
        let mib = |pages: u64| pages >> 8;
        let shares = self.accesses.of_all(machine.nodes.len());
        NodeStatus {
            name: machine.nodes[node.index()].name.clone(),
            tier: machine.tier_of(node).index(),
            memory: self.view.node(node).map(|used| (mib(used.pages), mib(used.free_pages))),
            traffic_mbps: self.traffic_mbps(node),
            accesses_percent: shares.map(|shares| shares[node.index()]),
        }
    }

    /// The last moves, newest first, of tasks that a user may see: by their ids and owners.
    pub fn recent(
        &self,
        machine: &Machine,
        now: Time,
        may_see: impl Fn(TaskId, Option<u32>) -> bool,
    ) -> Vec<RecentMoves> {
        let name = |node: NodeId| machine.nodes[node.index()].name.clone();
        let seen = self.recent.newest_first().filter(|moves| may_see(moves.task, moves.owner));
        let recent = seen.map(|moves| RecentMoves {
            pid: moves.task.0,
            name: moves.name.clone(),
            from: name(moves.from),
            to: name(moves.to),
            reason: moves.reason.to_string(),
            refused: match moves.outcome {
                Outcome::Made(_) => None,
                Outcome::Refused(why) => Some(why.to_string()),
                Outcome::Cancelled(why) => Some(why.to_string()),
            },
            pages: moves.pages,
            seconds_ago: now.since(moves.time).as_seconds(),
        });
        recent.collect()
    }

    /// Bytes read from a node and written to it between the last two epochs, in MB/s; `None` if not counted.
    fn traffic_mbps(&self, node: NodeId) -> Option<(f64, f64)> {
        let (since, before) = (self.before.0, self.before.1.get(node.index())?.traffic?);
        let now = self.view.node(node)?.traffic?;
        let seconds = self.view.time.since(since).as_seconds();
        let mbps = |now: u64, before: u64| now.saturating_sub(before) as f64 / 1e6 / seconds;
        let both = (mbps(now.read_bytes, before.read_bytes), mbps(now.written_bytes, before.written_bytes));
        (seconds > 0.0).then_some(both)
    }

    /// The region of a page in the last view.
    pub fn region(&self, task: TaskId, page: Vpn) -> Option<Region> {
        self.view.regions.at(task, page)
    }

    /// The last decision about a page.
    pub fn last(&self, task: TaskId, page: Vpn) -> Option<&MoveOutcome> {
        let about = |made: &&MoveOutcome| {
            made.run.first.task == task && (made.run.start()..made.run.end()).contains(&page)
        };
        self.decisions.iter().rev().find(about)
    }

    fn record(&mut self, completion: &Completion) {
        if completion.outcome.is_made() {
            for wanted in completion.planned.action.moves() {
                *self.moved.entry(wanted.task).or_default() += wanted.size.base_pages();
            }
        }
        for wanted in completion.planned.action.moves() {
            self.recent.add(completion, wanted, self.view.task(wanted.task));
        }
        let Some(outcome) = MoveOutcome::of(completion) else { return };
        if self.decisions.back_mut().is_some_and(|last| last.add(&outcome)) {
            return;
        }
        if self.decisions.len() == RUNS_MAX {
            self.decisions.pop_front();
        }
        self.decisions.push_back(outcome);
    }
}

impl Watcher for History {
    fn planned(&mut self, events: &[Event], view: &View, _: &Plan) {
        self.accesses.end_epoch(events);
        self.recent.end_epoch();
        let before = std::mem::replace(&mut self.view, view.clone());
        self.before = (before.time, before.nodes);
    }

    fn completed(&mut self, done: &[Completion]) {
        done.iter().for_each(|completion| self.record(completion));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtide_core::policy::{Action, Frame, Move, Planned, Reason, Refusal};
    use memtide_core::{ActionId, NodeId, PageSize};

    fn completion(id: u64, page: u64, outcome: Outcome) -> Completion {
        let (task, page, size, wish) = (TaskId(7), Vpn(page), PageSize::Base, Frame::ANY);
        let action = Action::Move(Move { task, page, size, from: NodeId(1), to: NodeId(0), wish });
        let planned = Planned { id: ActionId(id), action, reason: Reason::Hot };
        Completion { time: Time::from_ms(3), planned, outcome }
    }

    #[test]
    fn adjacent_pages_are_one_decision_and_last_decision_counts() {
        let (made, refused) = (Outcome::MADE, Outcome::Refused);
        let mut history = History::default();
        history.completed(&[
            completion(1, 1, made),
            completion(2, 2, made),
            completion(3, 3, refused(Refusal::Busy)),
            completion(4, 5, made),
        ]);
        assert_eq!((history.decisions.len(), history.moved(TaskId(7))), (3, 3));
        history.completed(&[completion(5, 2, refused(Refusal::NoRoom))]);
        let last = |page| history.last(TaskId(7), Vpn(page)).map(|last| last.outcome);
        assert_eq!((last(2), last(1), last(4)), (Some(refused(Refusal::NoRoom)), Some(made), None));
        assert_eq!(history.last(TaskId(8), Vpn(1)), None);
        for page in (10..10 + 2 * RUNS_MAX as u64 + 10).step_by(2) {
            history.completed(&[completion(page, page, made)]);
        }
        assert_eq!(history.decisions.len(), RUNS_MAX);
    }
}

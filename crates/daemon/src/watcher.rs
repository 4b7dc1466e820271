//! Watches all epochs: history, journal and log.

use std::collections::VecDeque;

use memtide_core::epoch::Watcher;
use memtide_core::policy::{Completion, Event, Outcome, Plan, Refusal, View};

use super::history::History;
use crate::journal::{Journal, Run, move_outcomes};

/// Maximum logged runs of pages that a dry run remembers.
const REPORTED_MAX: usize = 1024;

/// Receives log messages, a line each.
pub type Log = Box<dyn FnMut(&str) + Send>;

/// History, journal and log of all epochs.
pub struct EpochWatcher {
    /// For `memtide status` and `memtide why`.
    pub history: History,
    /// For `memtide replay`.
    pub journal: Option<Journal>,
    /// The last runs that a dry run has logged.
    reported: VecDeque<Run>,
    log: Log,
}

impl EpochWatcher {
    /// No epoch yet.
    pub fn new(journal: Option<Journal>, log: Log) -> EpochWatcher {
        EpochWatcher { history: History::default(), journal, reported: VecDeque::new(), log }
    }

    /// Logs a message.
    pub fn log(&mut self, message: &str) {
        (self.log)(message);
    }

    /// Logs planned moves, unless they were logged before.
    fn would_move(&mut self, run: Run) {
        if run.is_much_as(self.reported.iter()) {
            return;
        }
        self.log(&format!("would move {run}"));
        if self.reported.len() == REPORTED_MAX {
            self.reported.pop_front();
        }
        self.reported.push_back(run);
    }
}

impl Watcher for EpochWatcher {
    fn planned(&mut self, events: &[Event], view: &View, plan: &Plan) {
        self.history.planned(events, view, plan);
        if let Some(journal) = &mut self.journal {
            journal.planned(events, view, plan);
        }
    }

    fn completed(&mut self, done: &[Completion]) {
        self.history.completed(done);
        let dry = done.iter().filter(|completion| completion.outcome == Outcome::Refused(Refusal::DryRun));
        for run in move_outcomes(dry).into_iter().map(|outcome| outcome.run) {
            self.would_move(run);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtide_core::policy::{Frame, Move, Reason};
    use memtide_core::{ActionId, NodeId, PageSize, TaskId, Vpn};

    #[test]
    fn run_that_shifts_is_logged_once() {
        let mut watcher = EpochWatcher::new(None, Box::new(|_| ()));
        let mut logged = |start: u64, pages: u64, to: u8| {
            let (task, size, wish) = (TaskId(1), PageSize::Base, Frame::ANY);
            let first = Move { task, page: Vpn(start), size, from: NodeId(2), to: NodeId(to), wish };
            watcher.would_move(Run { id: ActionId(start), first, reason: Reason::Hot, pages });
            watcher.reported.len()
        };
        assert_eq!(
            [logged(100, 10, 0), logged(100, 10, 0), logged(105, 10, 0), logged(106, 10, 0)],
            [1, 1, 1, 2]
        );
        assert_eq!([logged(50, 200, 0), logged(60, 10, 0), logged(60, 10, 1)], [3, 3, 4]);
        // Half of it covered by logged runs, and just under half.
        assert_eq!(
            [logged(400, 10, 0), logged(420, 10, 0), logged(400, 40, 0), logged(390, 60, 0)],
            [5, 6, 6, 7]
        );
        for start in 0..2 * REPORTED_MAX as u64 {
            logged(1000 + start, 1, 0);
        }
        assert_eq!(logged(0, 1, 0), REPORTED_MAX);
    }
}

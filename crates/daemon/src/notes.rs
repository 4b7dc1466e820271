//! Who is told what happens.

use std::collections::VecDeque;

use memtide_core::epoch::Watcher;
use memtide_core::policy::{Completion, Event, Outcome, Plan, Refusal, View};

use super::history::History;
use crate::journal::{Journal, Run, move_outcomes};

/// Runs of pages that are remembered on a dry run.
const REPORTED_MAX: usize = 1024;

/// Takes messages for people, a line each.
pub type Log = Box<dyn FnMut(&str) + Send>;

/// What is noted of all epochs.
pub struct Notes {
    /// For those who ask.
    pub history: History,
    /// For `memtide replay`.
    pub journal: Option<Journal>,
    /// What was told that it would be moved, as far as there is room.
    reported: VecDeque<Run>,
    log: Log,
}

impl Notes {
    /// Nothing noted yet.
    pub fn new(journal: Option<Journal>, log: Log) -> Notes {
        Notes { history: History::default(), journal, reported: VecDeque::new(), log }
    }

    /// Hands on a message for people.
    pub fn log(&mut self, message: &str) {
        (self.log)(message);
    }

    /// Says what would be moved, unless it has said so before.
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

impl Watcher for Notes {
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
    fn a_run_is_told_once_however_it_shifts() {
        let mut notes = Notes::new(None, Box::new(|_| ()));
        let mut told = |start: u64, pages: u64, to: u8| {
            let (task, size, wish) = (TaskId(1), PageSize::Base, Frame::ANY);
            let first = Move { task, page: Vpn(start), size, from: NodeId(2), to: NodeId(to), wish };
            notes.would_move(Run { id: ActionId(start), first, reason: Reason::Hot, pages });
            notes.reported.len()
        };
        assert_eq!([told(100, 10, 0), told(100, 10, 0), told(105, 10, 0), told(106, 10, 0)], [1, 1, 1, 2]);
        assert_eq!([told(50, 200, 0), told(60, 10, 0), told(60, 10, 1)], [3, 3, 4]);
        // Half of it by several that were told, and not quite.
        assert_eq!([told(400, 10, 0), told(420, 10, 0), told(400, 40, 0), told(390, 60, 0)], [5, 6, 6, 7]);
        for start in 0..2 * REPORTED_MAX as u64 {
            told(1000 + start, 1, 0);
        }
        assert_eq!(told(0, 1, 0), REPORTED_MAX);
    }
}

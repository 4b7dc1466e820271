//! Who is told what happens.

use memtide_core::Time;
use memtide_core::epoch::Watcher;
use memtide_core::policy::{Event, Observation, Outcome, Plan};

use super::history::History;
use crate::journal::Journal;

/// What is noted of all epochs.
#[derive(Debug)]
pub struct Notes {
    /// For those who ask.
    pub history: History,
    /// For `memtide replay`.
    pub journal: Option<Journal>,
}

impl Watcher for Notes {
    fn planned(&mut self, now: Time, events: &[Event], seen: &Observation, plan: &Plan) {
        self.history.planned(now, events, seen, plan);
        if let Some(journal) = &mut self.journal {
            journal.planned(now, events, seen, plan);
        }
    }

    fn happened(&mut self, outcomes: &[Outcome]) {
        self.history.happened(outcomes);
    }
}

//! Who is told what happens.

use memtide_core::Time;
use memtide_core::epoch::Watcher;
use memtide_core::policy::{Event, Observation, Outcome, Plan, Refusal};

use super::history::History;
use crate::journal::{Journal, Run, became};

/// What is noted of all epochs.
#[derive(Debug, Default)]
pub struct Notes {
    /// For those who ask.
    pub history: History,
    /// For `memtide replay`.
    pub journal: Option<Journal>,
    /// What would have been moved in the last epoch.
    pub dry: Vec<Run>,
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
        let dry = became(outcomes.iter().filter(|outcome| outcome.result == Err(Refusal::DryRun)));
        let dry: Vec<Run> = dry.into_iter().map(|became| became.run).collect();
        for run in dry.iter().filter(|run| !self.dry.contains(run)) {
            eprintln!("memtide daemon: would move {run}");
        }
        self.dry = dry;
    }
}

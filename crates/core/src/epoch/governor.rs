//! The governor: which moves are admitted, and the record of what became of all of them.

use std::collections::{BTreeMap, BTreeSet};

use super::cooldown::Cooldown;
use crate::ids::{NodeId, TaskId};
use crate::policy::{Move, Outcome, Refusal};
use crate::units::{Time, Vpn};

/// Least time over which the bytes that may move can be saved up.
const SAVED_UP_MIN: Time = Time::from_ms(100);

/// How much may move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes a second; none for no limit. What an epoch's or a tenth of a second's length allows can be saved up,
    /// whichever is longer; the page that exceeds what is left still moves, and later ones are refused until that is
    /// made up for.
    pub bytes_per_second: Option<u64>,
    /// Moves an epoch; none for no limit.
    pub moves_per_epoch: Option<u64>,
    /// How long a page that moved may not move anywhere else; doubled each time that it comes back to where it was, up to 64 times that.
    pub cooldown: Time,
}

/// What became of moves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Moves that were made, in base pages, by the nodes they went from and to.
    pub moved_pages: BTreeMap<(NodeId, NodeId), u64>,
    /// Moves that were not made, by reason.
    pub refused: BTreeMap<Refusal, u64>,
}

/// Admits moves within [`Limits`].
#[derive(Clone, Debug)]
pub struct Governor {
    limits: Limits,
    /// Bytes that may move now, times 10^12 so that a rate times picoseconds is exact.
    credit: i128,
    credit_max: i128,
    credited_at: Time,
    named: BTreeSet<(TaskId, Vpn)>,
    cooldown: Cooldown,
    admitted: u64,
    record: Record,
    outcomes: Vec<Outcome>,
}

impl Governor {
    /// A governor that has admitted nothing yet, for a policy with this epoch.
    pub fn new(limits: Limits, epoch: Time) -> Governor {
        let credit_max = earned(limits.bytes_per_second, epoch.max(SAVED_UP_MIN));
        Governor {
            limits,
            credit: credit_max,
            credit_max,
            credited_at: Time::ZERO,
            named: BTreeSet::new(),
            cooldown: Cooldown::new(limits.cooldown),
            admitted: 0,
            record: Record::default(),
            outcomes: Vec::new(),
        }
    }

    /// From now on other limits hold; what is known of earlier moves still counts.
    pub fn set_limits(&mut self, limits: Limits, epoch: Time) {
        self.credit_max = earned(limits.bytes_per_second, epoch.max(SAVED_UP_MIN));
        self.credit = self.credit.min(self.credit_max);
        self.cooldown.set_time(limits.cooldown);
        self.limits = limits;
    }

    /// What became of all moves so far.
    pub fn recorded(&self) -> &Record {
        &self.record
    }

    /// From now on the cap counts anew.
    pub(super) fn start_epoch(&mut self) {
        self.admitted = 0;
    }

    /// From now on pages may be named again.
    pub(super) fn start_plan(&mut self) {
        self.named.clear();
    }

    /// Decides on a move; what it admits counts towards the limits.
    pub(super) fn admit(&mut self, now: Time, wanted: &Move) -> Result<(), Refusal> {
        self.earn(now);
        let head = Vpn(wanted.page.0 - wanted.page.0 % wanted.size.base_pages());
        if wanted.from == wanted.to {
            return Err(Refusal::AlreadyThere);
        }
        if self.named.contains(&(wanted.task, head)) {
            return Err(Refusal::Duplicate);
        }
        if !self.cooldown.allows(now, wanted) {
            return Err(Refusal::Cooling);
        }
        if self.limits.moves_per_epoch.is_some_and(|cap| self.admitted >= cap) {
            return Err(Refusal::OverCap);
        }
        if self.limits.bytes_per_second.is_some() {
            if self.credit <= 0 {
                return Err(Refusal::RateLimited);
            }
            self.credit -= i128::from(wanted.size.bytes()) * 1_000_000_000_000;
        }
        self.named.insert((wanted.task, head));
        self.admitted += 1;
        Ok(())
    }

    /// A move that was admitted was not made: others may have its share.
    pub(super) fn take_back(&mut self, wanted: &Move) {
        self.admitted -= 1;
        if self.limits.bytes_per_second.is_some() {
            self.credit += i128::from(wanted.size.bytes()) * 1_000_000_000_000;
        }
    }

    pub(super) fn record(&mut self, outcome: Outcome) {
        let Move { from, to, size, .. } = outcome.wanted;
        match outcome.result {
            Ok(()) => {
                *self.record.moved_pages.entry((from, to)).or_default() += size.base_pages();
                self.cooldown.note(outcome.time, &outcome.wanted);
            }
            Err(refusal) => {
                *self.record.refused.entry(refusal).or_default() += 1;
                if refusal == Refusal::NotAllowed {
                    self.cooldown.note_stays(outcome.time, &outcome.wanted);
                }
            }
        }
        self.outcomes.push(outcome);
    }

    /// What became of the moves since they were last taken.
    pub(super) fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }

    pub(super) fn take_outcomes(&mut self) -> Vec<Outcome> {
        std::mem::take(&mut self.outcomes)
    }

    fn earn(&mut self, now: Time) {
        let earned = earned(self.limits.bytes_per_second, now.since(self.credited_at));
        self.credit = (self.credit + earned).min(self.credit_max);
        self.credited_at = now;
    }
}

fn earned(bytes_per_second: Option<u64>, time: Time) -> i128 {
    i128::from(bytes_per_second.unwrap_or(0)) * i128::from(time.0)
}

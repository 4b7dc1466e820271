//! The governor: admits or refuses actions, and records what became of all of them.
//!
//! Everything that moves a page passes it, a user's request too. It knows no host, so that limits, cooldown
//! and pins hold alike everywhere.
//!
//! ```text
//! bytes per second ──▶ credit, at most one epoch's worth
//!                        │ - page size, when a move is admitted
//!                        ▼ + page size, when it is refused by the host, or cancelled
//!                     admit while credit > 0
//! ```
//!
//! Invariant: over any time t, admitted bytes that were not given back are at most rate x t + one epoch's
//! worth + one page. Credit may go below zero by one page, so that a huge page larger than the credit ever
//! saved still moves, and later ones pay for it. Credit is in bytes x 10^12, so that a rate times picoseconds
//! is exact.

use std::collections::{BTreeMap, BTreeSet};

use super::cooldown::Cooldown;
use crate::ids::{ActionId, NodeId, TaskId};
use crate::policy::{Action, Cancellation, Completion, Move, Outcome, Planned, Reason, Refusal, View};
use crate::units::{Time, Vpn};

/// Least time over which credit can be saved up.
const SAVED_UP_MIN: Time = Time::from_ms(100);

/// Credit of a byte.
const BYTE: i128 = 1_000_000_000_000;

/// Limits of migration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes per second; none for no limit. Credit of an epoch or a tenth of a second, whichever is longer,
    /// can be saved up; the page that exceeds what is left still moves, and later ones are refused until that
    /// is made up for.
    pub bytes_per_second: Option<u64>,
    /// Page moves per epoch; none for no limit.
    pub moves_per_epoch: Option<u64>,
    /// How long a page that moved may not move elsewhere; doubled each time that it returns to where it was,
    /// up to 64 times that. Users' requests do not wait.
    pub cooldown: Time,
}

/// What became of actions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Base pages that moved, by the nodes they went from and to; the same node twice if only the frame
    /// changed.
    pub moved_pages: BTreeMap<(NodeId, NodeId), u64>,
    /// Actions that did not begin, by reason.
    pub refused: BTreeMap<Refusal, u64>,
    /// Actions that began and were not finished, by reason.
    pub cancelled: BTreeMap<Cancellation, u64>,
}

/// Admits actions within [`Limits`].
#[derive(Clone, Debug)]
pub struct Governor {
    limits: Limits,
    /// Bytes that may move now, times 10^12.
    credit: i128,
    credit_max: i128,
    credited_at: Time,
    /// Pages that the plan has named.
    named: BTreeSet<(TaskId, Vpn)>,
    pinned: BTreeSet<(TaskId, Vpn)>,
    cooldown: Cooldown,
    /// Moves admitted in this epoch, and the first action id of the epoch.
    admitted: u64,
    epoch_first: ActionId,
    in_flight: BTreeSet<ActionId>,
    record: Record,
    /// Completions of what the governor itself refused or carried out.
    refused: Vec<Completion>,
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
            pinned: BTreeSet::new(),
            cooldown: Cooldown::new(limits.cooldown),
            admitted: 0,
            epoch_first: ActionId(0),
            in_flight: BTreeSet::new(),
            record: Record::default(),
            refused: Vec::new(),
        }
    }

    /// Goes on with other limits; earlier moves still count.
    pub fn set_limits(&mut self, limits: Limits, epoch: Time) {
        self.credit_max = earned(limits.bytes_per_second, epoch.max(SAVED_UP_MIN));
        self.credit = self.credit.min(self.credit_max);
        self.cooldown.set_time(limits.cooldown);
        self.limits = limits;
    }

    /// What became of all actions so far.
    pub fn recorded(&self) -> &Record {
        &self.record
    }

    /// Bytes that may move now before moves are refused; none for no limit. One page may exceed it.
    pub fn allowance_bytes(&self, now: Time) -> Option<u64> {
        let rate = self.limits.bytes_per_second?;
        let credit = self.credit + earned(Some(rate), now.since(self.credited_at));
        Some(u64::try_from(credit.min(self.credit_max) / BYTE).unwrap_or(0))
    }

    /// Actions that were admitted and have no completion yet.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// The cap of moves counts from zero; the epoch's first action gets this id.
    pub(super) fn start_epoch(&mut self, first: ActionId) {
        self.admitted = 0;
        self.epoch_first = first;
    }

    /// Pages may be named again.
    pub(super) fn start_plan(&mut self) {
        self.named.clear();
    }

    /// Pins end with their tasks: another task may get the same id.
    pub(super) fn unpin_tasks_not_in(&mut self, view: &View) {
        self.pinned.retain(|(task, _)| view.task(*task).is_some());
    }

    pub(super) fn unpin_all(&mut self) {
        self.pinned.clear();
    }

    /// Decides on an action: true if the host is to begin it. If not, its completion is among
    /// [`take_refused`](Governor::take_refused).
    pub(super) fn admit(&mut self, now: Time, planned: &Planned) -> bool {
        self.earn(now);
        let outcome = match &planned.action {
            Action::Pin(page) => {
                self.pinned.insert((page.task, page.page));
                Outcome::MADE
            }
            Action::Unpin(page) => {
                self.pinned.remove(&(page.task, page.page));
                Outcome::MADE
            }
            action => match self.check(now, action.moves(), planned.reason) {
                Ok(()) => {
                    self.begin(planned);
                    return true;
                }
                Err(refusal) => Outcome::Refused(refusal),
            },
        };
        let completion = Completion { time: now, planned: planned.clone(), outcome };
        self.record(&completion);
        self.refused.push(completion);
        false
    }

    /// Whether all of an action's moves may begin.
    fn check(&self, now: Time, moves: &[Move], reason: Reason) -> Result<(), Refusal> {
        let key = |wanted: &Move| (wanted.task, wanted.head());
        for (at, wanted) in moves.iter().enumerate() {
            let page = key(wanted);
            if wanted.from == wanted.to && wanted.wish.is_any() {
                return Err(Refusal::AlreadyThere);
            }
            if self.named.contains(&page) || moves[..at].iter().any(|other| key(other) == page) {
                return Err(Refusal::Duplicate);
            }
            if self.pinned.contains(&page) {
                return Err(Refusal::Pinned);
            }
            if reason != Reason::Request && !self.cooldown.allows(now, wanted) {
                return Err(Refusal::Cooling);
            }
        }
        if moves.is_empty() {
            return Ok(());
        }
        if self.limits.moves_per_epoch.is_some_and(|cap| self.admitted + moves.len() as u64 > cap) {
            return Err(Refusal::OverCap);
        }
        if self.limits.bytes_per_second.is_some() && self.credit <= 0 {
            return Err(Refusal::RateLimited);
        }
        Ok(())
    }

    fn begin(&mut self, planned: &Planned) {
        let moves = planned.action.moves();
        if self.limits.bytes_per_second.is_some() {
            self.credit -= cost(moves);
        }
        self.named.extend(moves.iter().map(|wanted| (wanted.task, wanted.head())));
        self.admitted += moves.len() as u64;
        assert!(self.in_flight.insert(planned.id), "{} was planned twice", planned.id);
    }

    /// Takes in what became of an action that was admitted. What was not made leaves its share to others.
    pub(super) fn complete(&mut self, completion: &Completion) {
        let planned = &completion.planned;
        assert!(self.in_flight.remove(&planned.id), "{} completed, but was not in flight", planned.id);
        if !completion.outcome.is_made() {
            let moves = planned.action.moves();
            if planned.id >= self.epoch_first {
                self.admitted -= moves.len() as u64;
            }
            if self.limits.bytes_per_second.is_some() {
                self.credit += cost(moves);
            }
        }
        self.record(completion);
    }

    fn record(&mut self, completion: &Completion) {
        let moves = completion.planned.action.moves();
        match completion.outcome {
            Outcome::Made(_) => {
                for wanted in moves {
                    let Move { from, to, size, .. } = *wanted;
                    *self.record.moved_pages.entry((from, to)).or_default() += size.base_pages();
                    self.cooldown.note(completion.time, wanted);
                }
            }
            Outcome::Refused(refusal) => {
                *self.record.refused.entry(refusal).or_default() += 1;
                if refusal == Refusal::NotAllowed {
                    moves.iter().for_each(|wanted| self.cooldown.note_stays(completion.time, wanted));
                }
            }
            Outcome::Cancelled(why) => *self.record.cancelled.entry(why).or_default() += 1,
        }
    }

    /// Completions of what the governor refused since they were last taken.
    pub(super) fn take_refused(&mut self) -> Vec<Completion> {
        std::mem::take(&mut self.refused)
    }

    fn earn(&mut self, now: Time) {
        let earned = earned(self.limits.bytes_per_second, now.since(self.credited_at));
        self.credit = (self.credit + earned).min(self.credit_max);
        self.credited_at = now;
    }
}

/// What moves cost in credit.
fn cost(moves: &[Move]) -> i128 {
    moves.iter().map(|wanted| i128::from(wanted.size.bytes()) * BYTE).sum()
}

fn earned(bytes_per_second: Option<u64>, time: Time) -> i128 {
    i128::from(bytes_per_second.unwrap_or(0)) * i128::from(time.0)
}

//! The governor: admits or refuses actions, and records the outcomes of all.
//!
//! Everything that moves a page passes it, including users' requests. It is independent of the host, so
//! limits, cooldown and pins are the same on all.
//!
//! ```text
//! bytes per second ──▶ credit, at most one epoch's worth
//!                        │ - page size, when a move is admitted
//!                        ▼ + page size, when it is refused by the host, or cancelled
//!                     admit while credit > 0
//! ```
//!
//! Invariant: over any time t, admitted bytes that were not returned are at most rate x t, plus one epoch's
//! worth and one page. Credit may go below zero by one page, so that a huge page larger than the maximum
//! credit still moves, and later ones pay for it. Credit is in bytes x 10^12, so that a rate times
//! picoseconds is exact.

use std::collections::{BTreeMap, BTreeSet};

use super::cooldown::Cooldown;
use crate::ids::{ActionId, NodeId, TaskId};
use crate::policy::{Action, Cancellation, Completion, Move, Outcome, Planned, Reason, Refusal, View};
use crate::units::{Time, Vpn};

/// Minimum time over which credit accumulates.
const CREDIT_TIME_MIN: Time = Time::from_ms(100);

/// Time over which credit accumulates for a policy with this epoch, or without one.
fn credit_time(epoch: Time) -> Time {
    if epoch == Time::NEVER { CREDIT_TIME_MIN } else { epoch.max(CREDIT_TIME_MIN) }
}

/// Credit per byte.
const BYTE: i128 = 1_000_000_000_000;

/// Limits of migration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes per second; `None`: no limit. Credit accumulates over at most an epoch or a tenth of a second,
    /// whichever is longer. The page that exceeds the remaining credit still moves; later ones are refused
    /// until the credit is positive again.
    pub bytes_per_second: Option<u64>,
    /// Page moves per epoch; `None`: no limit.
    pub moves_per_epoch: Option<u64>,
    /// How long a page that moved may not move elsewhere. Doubles each time that it returns to its previous
    /// node, up to 64 times. Does not apply to users' requests.
    pub cooldown: Time,
}

/// Outcomes of actions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Base pages moved, by source and target node; both are equal if only the frame changed.
    pub moved_pages: BTreeMap<(NodeId, NodeId), u64>,
    /// Actions that did not begin, by reason.
    pub refused: BTreeMap<Refusal, u64>,
    /// Actions that began but were not completed, by reason.
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
    /// Pages named by the plan so far.
    named: BTreeSet<(TaskId, Vpn)>,
    pinned: BTreeSet<(TaskId, Vpn)>,
    cooldown: Cooldown,
    /// Moves admitted in this epoch, and the epoch's first action id.
    admitted: u64,
    epoch_first: ActionId,
    in_flight: BTreeSet<ActionId>,
    record: Record,
    /// Completions of actions that the governor itself refused or performed.
    refused: Vec<Completion>,
}

impl Governor {
    /// A governor without admitted actions, for a policy with this epoch.
    pub fn new(limits: Limits, epoch: Time) -> Governor {
        let credit_max = earned(limits.bytes_per_second, credit_time(epoch));
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

    /// Changes the limits; earlier moves still count.
    pub fn set_limits(&mut self, limits: Limits, epoch: Time) {
        self.credit_max = earned(limits.bytes_per_second, credit_time(epoch));
        self.credit = self.credit.min(self.credit_max);
        self.cooldown.set_time(limits.cooldown);
        self.limits = limits;
    }

    /// Outcomes of all actions so far.
    pub fn recorded(&self) -> &Record {
        &self.record
    }

    /// Bytes that may move now before moves are refused; `None`: no limit. One page may exceed it.
    pub fn allowance_bytes(&self, now: Time) -> Option<u64> {
        let rate = self.limits.bytes_per_second?;
        let credit = self.credit + earned(Some(rate), now.since(self.credited_at));
        Some(u64::try_from(credit.min(self.credit_max) / BYTE).unwrap_or(0))
    }

    /// Admitted actions without a completion.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Resets the count of moves; `first` is the epoch's first action id.
    pub(super) fn start_epoch(&mut self, first: ActionId) {
        self.admitted = 0;
        self.epoch_first = first;
    }

    /// Resets the pages named by the plan.
    pub(super) fn start_plan(&mut self) {
        self.named.clear();
    }

    /// Removes pins of tasks that have ended: another task may get the same id.
    pub(super) fn unpin_tasks_not_in(&mut self, view: &View) {
        self.pinned.retain(|(task, _)| view.task(*task).is_some());
    }

    pub(super) fn unpin_all(&mut self) {
        self.pinned.clear();
    }

    /// Decides on an action: true if the host is to begin it. Otherwise its completion is returned by
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

    /// Records the outcome of an admitted action. A move that was not made returns its credit.
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
                    self.cooldown.record_move(completion.time, wanted);
                }
            }
            Outcome::Refused(refusal) => {
                *self.record.refused.entry(refusal).or_default() += 1;
                if refusal == Refusal::NotAllowed {
                    moves.iter().for_each(|wanted| self.cooldown.record_refused(completion.time, wanted));
                }
            }
            Outcome::Cancelled(why) => *self.record.cancelled.entry(why).or_default() += 1,
        }
    }

    /// Takes the completions of refused actions since the last call.
    pub(super) fn take_refused(&mut self) -> Vec<Completion> {
        std::mem::take(&mut self.refused)
    }

    fn earn(&mut self, now: Time) {
        let earned = earned(self.limits.bytes_per_second, now.since(self.credited_at));
        self.credit = (self.credit + earned).min(self.credit_max);
        self.credited_at = now;
    }
}

/// Cost of moves in credit.
fn cost(moves: &[Move]) -> i128 {
    moves.iter().map(|wanted| i128::from(wanted.size.bytes()) * BYTE).sum()
}

fn earned(bytes_per_second: Option<u64>, time: Time) -> i128 {
    i128::from(bytes_per_second.unwrap_or(0)) * i128::from(time.0)
}

//! A bank: its open row, the earliest times of its commands, and its requests.

use super::queues::{Fifo, NONE};
use super::schedule::Handle;
use super::timing::{Cycle, NEVER};
use crate::counters::BankCounters;

/// No open row.
pub(super) const CLOSED: u32 = u32::MAX;

#[derive(Clone, Debug)]
pub(super) struct Bank {
    /// Open row.
    pub row: u32,
    /// Earliest activate, by the bank's own timings.
    pub activate_at: Cycle,
    /// Earliest column command.
    pub column_at: Cycle,
    /// Earliest precharge.
    pub precharge_at: Cycle,
    /// Queued reads and writes.
    pub queues: [Fifo; 2],
    /// The request for which a row was opened, until its column command, and whether it is a write. It has
    /// left its queue, and is served even if the channel switches direction meanwhile; if a refresh closes
    /// the row first, it is opened again.
    pub opened_for: Option<(u16, bool)>,
    /// Row hits that overtook the oldest request since it was the oldest.
    pub overtaken: u16,
    /// Its candidate in the schedule.
    pub candidate: Option<Handle>,
    /// Bank group of the channel.
    pub group: u16,
    /// When the bank will be precharged for a pending refresh; until then it only takes column commands.
    pub refresh_at: Cycle,
    pub counters: BankCounters,
}

impl Bank {
    pub fn new(group: usize) -> Bank {
        Bank {
            row: CLOSED,
            activate_at: 0,
            column_at: 0,
            precharge_at: 0,
            queues: [Fifo::EMPTY; 2],
            opened_for: None,
            overtaken: 0,
            candidate: None,
            group: group as u16,
            refresh_at: NEVER,
            counters: BankCounters::default(),
        }
    }

    /// Whether it has a candidate, or requests for one.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.candidate.is_some() || self.queues.iter().any(|fifo| fifo.head != NONE)
    }

    /// Closes the row; the bank can be activated from `at` on.
    #[inline]
    pub fn close(&mut self, at: Cycle) {
        self.row = CLOSED;
        self.activate_at = at;
    }

    /// Moves the base of its times forward by `by`.
    pub fn rebase(&mut self, by: Cycle) {
        if self.refresh_at != NEVER {
            self.refresh_at = self.refresh_at.saturating_sub(by);
        }
        for at in [&mut self.activate_at, &mut self.column_at, &mut self.precharge_at] {
            *at = at.saturating_sub(by);
        }
    }
}

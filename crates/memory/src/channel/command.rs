//! Effects of a command on bank, limits and queues.

use super::candidate::COLUMN;
use super::observer::{Banks, Command, Observer};
use super::queues::RowState;
use super::schedule::{Candidate, Handle};
use super::timing::{Cycle, Kind, NEVER};
use super::{Channel, Completion};

/// Column commands between two checks for starving requests, and the number of younger requests that makes a
/// request starving.
const STARVATION_AGE: u32 = 2048;

impl<O: Observer> Channel<O> {
    /// Sends a candidate now; returns whether a request was served.
    pub(super) fn send(&mut self, handle: Handle, done: &mut Vec<Completion>) -> bool {
        let candidate = *self.schedule.get(handle);
        let at = self.now;
        let bus = self.command_bus(candidate.kind, at);
        match candidate.kind {
            Kind::Activate => self.activate(&candidate, at),
            Kind::Precharge => self.precharge(&candidate, at),
            Kind::Read | Kind::Write => {
                if !self.column(&candidate, at, done) {
                    self.schedule.end_priority(candidate.bank);
                    self.withdraw(candidate.bank);
                    return false;
                }
                self.schedule.sent(candidate.bank, candidate.kind, bus);
                if !self.turn() {
                    self.update(candidate.bank);
                }
                return true;
            }
        }
        self.schedule.sent(candidate.bank, candidate.kind, bus);
        false
    }

    fn activate(&mut self, candidate: &Candidate, at: Cycle) {
        let bank = &mut self.banks[usize::from(candidate.bank)];
        let slot = self.slots.get_mut(candidate.slot);
        if slot.row_state == RowState::Hit {
            slot.row_state = RowState::Miss;
        }
        bank.row = slot.row;
        bank.column_at = at + self.timing.rcd;
        bank.precharge_at = at + self.timing.ras;
        bank.opened_for = Some((candidate.slot, self.writing));
        self.limits.activate(usize::from(bank.group), at);
        self.counters.activates += 1;
        let command = Command::Activate { bank: candidate.bank, row: bank.row };
        let then = Candidate { ready: bank.column_at, ..*candidate };
        self.want(then, COLUMN[usize::from(self.writing)]);
        self.observer.command(self.base + u64::from(at), command);
    }

    fn precharge(&mut self, candidate: &Candidate, at: Cycle) {
        self.banks[usize::from(candidate.bank)].close(at + self.timing.rp);
        self.slots.get_mut(candidate.slot).row_state = RowState::Conflict;
        self.want(Candidate { ready: at + self.timing.rp, ..*candidate }, Kind::Activate);
        self.observer.command(self.base + u64::from(at), Command::Precharge(Banks::one(candidate.bank)));
    }

    /// Sends a column command, unless it would delay a refresh; returns whether it did.
    fn column(&mut self, candidate: &Candidate, at: Cycle, done: &mut Vec<Completion>) -> bool {
        let write = candidate.kind == Kind::Write;
        let bank = &mut self.banks[usize::from(candidate.bank)];
        let precharge_at = bank.precharge_at.max(at + self.timing.to_precharge[usize::from(write)]);
        if bank.refresh_at != NEVER && precharge_at > bank.refresh_at {
            return false;
        }
        bank.precharge_at = precharge_at;
        bank.opened_for = None;
        let fifo = &mut bank.queues[usize::from(write)];
        bank.overtaken = if fifo.head == candidate.slot { 0 } else { bank.overtaken + 1 };
        self.slots.remove(fifo, candidate.slot);
        self.limits.column(candidate.kind, usize::from(bank.group), at);
        self.schedule.end_priority(candidate.bank);

        let row = bank.row;
        let auto_precharge =
            self.policy.closed_page && bank.queues.iter().all(|&q| self.slots.first_of_row(q, row).is_none());
        if auto_precharge {
            bank.close(precharge_at + self.timing.rp);
        }
        let slot = self.slots.get(candidate.slot);
        let command =
            Command::Column { bank: candidate.bank, row, column: slot.column, write, auto_precharge };
        self.observer.command(self.base + u64::from(at), command);
        if !write {
            done.push(Completion { id: slot.id, at: self.time(at + self.timing.read_done) });
        }
        let row_state = slot.row_state;
        self.count(write, row_state);
        true
    }

    fn count(&mut self, write: bool, row_state: RowState) {
        self.queued[usize::from(write)] -= 1;
        let counters = &mut self.counters;
        if write {
            counters.writes += 1;
            self.drained = if self.queued[0] == 0 { 0 } else { self.drained + 1 };
        } else {
            counters.reads += 1;
            self.owed = self.owed.saturating_sub(1);
        }
        *match row_state {
            RowState::Hit => &mut counters.row_hits,
            RowState::Miss => &mut counters.row_misses,
            RowState::Conflict => &mut counters.row_conflicts,
        } += 1;
        if counters.lines().is_multiple_of(STARVATION_AGE.into()) {
            self.schedule.prioritise_oldest(self.slots.next_age().saturating_sub(STARVATION_AGE));
        }
    }
}

//! Effects of a command on bank, limits and queues.

use super::candidate::COLUMN;
use super::observer::{Command, Observer};
use super::queues::RowState;
use super::schedule::{Candidate, Handle};
use super::timing::{Cycle, Kind, NEVER};
use super::{Channel, Completion};

/// Column commands between two checks for starving requests, and the number of younger requests that makes a
/// request starving.
const STARVATION_AGE: u32 = 2048;

impl<O: Observer> Channel<O> {
    /// Sends a candidate now; returns whether a request left its queue or was served.
    pub(super) fn send(&mut self, handle: Handle, done: &mut Vec<Completion>) -> bool {
        let candidate = *self.schedule.get(handle);
        let at = self.now;
        let bus = self.command_bus(candidate.kind, at);
        match candidate.kind {
            Kind::Activate => {
                let released = self.activate(&candidate, at);
                self.schedule.sent(candidate.bank, candidate.kind, bus);
                if released {
                    self.turn();
                }
                released
            }
            Kind::Precharge => {
                self.precharge(&candidate, at);
                self.schedule.sent(candidate.bank, candidate.kind, bus);
                false
            }
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
                true
            }
        }
    }

    /// Opens the row of a request, which leaves its queue unless it already has; returns whether it did.
    fn activate(&mut self, candidate: &Candidate, at: Cycle) -> bool {
        let writing = self.writing;
        let bank = &mut self.banks[usize::from(candidate.bank)];
        let reopened = bank.opened_for;
        let slot = self.slots.get_mut(candidate.slot);
        if slot.row_state == RowState::Hit {
            slot.row_state = RowState::Miss;
        }
        bank.row = slot.row;
        bank.column_at = bank.column_at.max(at + self.timing.rcd);
        bank.precharge_at = at + self.timing.ras;
        let (_, write) = *bank.opened_for.get_or_insert((candidate.slot, writing));
        self.limits.activate(usize::from(bank.group), at);
        self.counters.activates += 1;
        bank.counters.activates += 1;
        let command = Command::Activate { bank: self.units.bank(candidate.bank), row: bank.row };
        let then = Candidate { ready: bank.column_at, ..*candidate };
        self.want(then, COLUMN[usize::from(write)]);
        self.observer.command(self.base + u64::from(at), command);
        if reopened.is_none() {
            self.activated += 1;
            self.leave_queue(candidate.bank, write);
        }
        reopened.is_none()
    }

    /// Counts a request that leaves its queue.
    fn leave_queue(&mut self, unit: u16, write: bool) {
        self.queued.leave(self.units.bank(unit), write);
        if write {
            self.drained = if self.queued.total[0] == 0 { 0 } else { self.drained + 1 };
        } else {
            self.owed = self.owed.saturating_sub(1);
        }
    }

    fn precharge(&mut self, candidate: &Candidate, at: Cycle) {
        let bank = &mut self.banks[usize::from(candidate.bank)];
        let command = Command::Precharge { bank: self.units.bank(candidate.bank), row: bank.row };
        bank.close(at + self.timing.rp);
        self.slots.get_mut(candidate.slot).row_state = RowState::Conflict;
        self.want(Candidate { ready: at + self.timing.rp, ..*candidate }, Kind::Activate);
        self.observer.command(self.base + u64::from(at), command);
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
        let was_activated = bank.opened_for.take().is_some();
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
        let command = Command::Column {
            bank: self.units.bank(candidate.bank),
            row,
            column: slot.column,
            write,
            auto_precharge,
        };
        self.observer.command(self.base + u64::from(at), command);
        if !write {
            done.push(Completion { id: slot.id, at: self.time(at + self.timing.read_done) });
        }
        let row_state = slot.row_state;
        match was_activated {
            true => self.activated -= 1,
            false => self.leave_queue(candidate.bank, write),
        }
        self.count(candidate.bank, write, row_state);
        if self.policy.subarray_select > 0 {
            self.select_subarray(candidate.bank, at);
        }
        true
    }

    /// Delays column commands to the other subarrays of a bank.
    fn select_subarray(&mut self, unit: u16, at: Cycle) {
        let from = at + self.policy.subarray_select;
        for sibling in self.units.siblings(unit) {
            let bank = &mut self.banks[usize::from(sibling)];
            bank.column_at = bank.column_at.max(from);
            if bank.candidate.is_some() {
                self.update(sibling);
            }
        }
    }

    fn count(&mut self, unit: u16, write: bool, row_state: RowState) {
        let of_bank = &mut self.banks[usize::from(unit)].counters;
        *if write { &mut of_bank.writes } else { &mut of_bank.reads } += 1;
        of_bank.row_conflicts += u64::from(row_state == RowState::Conflict);
        let counters = &mut self.counters;
        *if write { &mut counters.writes } else { &mut counters.reads } += 1;
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

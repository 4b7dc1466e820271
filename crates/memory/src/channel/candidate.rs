//! The next command of a bank, and the channel's direction: reads or writes.

use memtide_core::Time;

use super::bank::CLOSED;
use super::observer::Observer;
use super::queues::NONE;
use super::schedule::{Candidate, ROW};
use super::timing::{Kind, NEVER};
use super::{Channel, Completion};
use crate::node::REPORT_ACCEPTED;

/// Column commands for reads and writes.
pub(super) const COLUMN: [Kind; 2] = [Kind::Read, Kind::Write];

impl<O: Observer> Channel<O> {
    /// Moves the first request of the backlog into the queues.
    pub(super) fn admit(&mut self, done: &mut Vec<Completion>) {
        let Some(arrival) = self.backlog.pop() else { return };
        if arrival.write && arrival.id & REPORT_ACCEPTED != 0 {
            done.push(Completion { id: arrival.id, at: self.time(self.now) });
        }
        let bank = &mut self.banks[usize::from(arrival.place.bank)];
        if bank.queues[1].head != NONE && self.slots.has_line(bank.queues[1], arrival.place) {
            return self.answer_from_write_queue(arrival.write, arrival.id, done);
        }
        let slot = self.slots.append(&mut bank.queues[usize::from(arrival.write)], arrival.id, arrival.place);
        self.queued.enter(self.units.bank(arrival.place.bank), arrival.write);
        if !self.turn() && arrival.write == self.writing {
            self.offer(arrival.place.bank, slot);
        }
    }

    /// Forwards a queued write's line: a read gets its data in the next cycle, a write replaces it.
    fn answer_from_write_queue(&mut self, write: bool, id: u64, done: &mut Vec<Completion>) {
        if write {
            self.counters.merged_writes += 1;
        } else {
            self.counters.forwarded_reads += 1;
            let at = self.time(self.now) + Time(self.policy.clock_ps);
            done.push(Completion { id, at });
        }
    }

    /// A request of the current direction was queued at a bank.
    fn offer(&mut self, bank: u16, slot: u16) {
        let b = &self.banks[usize::from(bank)];
        let Some(held) = b.candidate else { return self.update(bank) };
        let hits = b.row == self.slots.get(slot).row && b.overtaken < self.policy.hit_cap;
        if hits && self.schedule.get(held).kind == Kind::Precharge {
            self.update(bank);
        }
    }

    /// Recomputes the bank's candidate.
    pub(super) fn update(&mut self, bank: u16) {
        match self.candidate(bank) {
            Some((wanted, kind)) => self.want(wanted, kind),
            None => {
                self.withdraw(bank);
                self.schedule.end_priority(bank);
            }
        }
    }

    /// Sets a bank's candidate to a command of the given kind; all fields except for class, kind and rank
    /// bits are already correct.
    #[inline]
    pub(super) fn want(&mut self, wanted: Candidate, kind: Kind) {
        let bank = &self.banks[usize::from(wanted.bank)];
        let row = matches!(kind, Kind::Activate | Kind::Precharge);
        let wanted = Candidate {
            rank: wanted.rank & !ROW | if row { ROW } else { 0 },
            class: self.limits.class(kind, usize::from(bank.group)),
            kind,
            ..wanted
        };
        if let Some(held) = bank.candidate {
            if self.schedule.replace(held, wanted, self.limits.earliest()) {
                return;
            }
            self.withdraw(wanted.bank);
        }
        let handle = self.schedule.add(wanted, self.limits.earliest());
        self.banks[usize::from(wanted.bank)].candidate = Some(handle);
    }

    /// Removes the bank's candidate, if any, from the schedule.
    pub(super) fn withdraw(&mut self, bank: u16) {
        let Some(handle) = self.banks[usize::from(bank)].candidate.take() else { return };
        if let Some(moved) = self.schedule.remove(handle) {
            self.banks[usize::from(moved)].candidate = Some(handle);
        }
    }

    fn candidate(&self, bank: u16) -> Option<(Candidate, Kind)> {
        let b = &self.banks[usize::from(bank)];
        let fifo = b.queues[usize::from(self.writing)];
        let hit = || match b.overtaken < self.policy.hit_cap {
            true => self.slots.first_of_row(fifo, b.row),
            false => Some(fifo.head).filter(|&slot| self.slots.get(slot).row == b.row),
        };
        let (slot, kind, ready) = if let Some((slot, write)) = b.opened_for {
            match b.row {
                CLOSED => (slot, Kind::Activate, b.activate_at),
                _ => (slot, COLUMN[usize::from(write)], b.column_at),
            }
        } else if fifo.head == NONE {
            return None;
        } else if b.row == CLOSED {
            (fifo.head, Kind::Activate, b.activate_at)
        } else if let Some(slot) = hit() {
            (slot, COLUMN[usize::from(self.writing)], b.column_at)
        } else {
            (fifo.head, Kind::Precharge, b.precharge_at)
        };
        if matches!(kind, Kind::Activate | Kind::Precharge) && b.refresh_at != NEVER {
            return None;
        }
        let rank = self.slots.get(slot).age;
        Some((Candidate { ready: ready.max(self.now), rank, class: 0, bank, slot, kind }, kind))
    }

    /// Switches between reads and writes if due; returns whether it did.
    pub(super) fn turn(&mut self) -> bool {
        let [reads, writes] = self.queued.total;
        let turn = if self.writing {
            let long = self.drained >= 4 * u32::from(self.policy.write_queue);
            if long {
                self.owed = reads;
            }
            writes == 0 || (reads > 0 && (long || writes <= self.policy.drain_low))
        } else {
            writes > 0 && (reads == 0 || (writes >= self.policy.drain_high && self.owed == 0))
        };
        if turn {
            self.writing = !self.writing;
            self.drained = 0;
            for bank in 0..self.banks.len() {
                if self.banks[bank].is_wanted() {
                    self.update(bank as u16);
                }
            }
        }
        turn
    }
}

//! Refresh, by units: the banks of a rank that one command refreshes.
//!
//! When a refresh is due, its banks take no more activates or precharges. Column commands to open rows
//! continue unless they delay the precharge of all its banks, after which the refresh command follows.

use memtide_core::machine::{Dram, Refresh};

use super::observer::{Banks, Command, Observer};
use super::timing::{Cycle, Kind, NEVER};
use super::{Channel, bank::CLOSED};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    FallDue,
    Precharge,
    Refresh,
}

/// Banks that one command refreshes.
#[derive(Clone, Debug)]
struct Unit {
    banks: Banks,
    /// When the current or the next refresh is due, in cycles from the start of the run.
    due: u64,
    /// Its next step, and when.
    step: Step,
    at: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Refreshes {
    units: Vec<Unit>,
    interval: u64,
    /// The unit with the earliest next step.
    next: usize,
    /// Number of bank refreshes.
    pub refreshed_banks: u64,
}

impl Refreshes {
    pub fn new(dram: &Dram) -> Refreshes {
        let interval = u64::from(dram.refi);
        let ranks = if interval == 0 { 0 } else { u16::from(dram.ranks) };
        let (groups, banks) = (u16::from(dram.bank_groups), u16::from(dram.banks));
        let (parts, step, count) = match dram.refresh {
            Refresh::AllBank => (1, 1, groups * banks),
            Refresh::SameBank => (banks, banks, groups),
            Refresh::PerBank => (groups * banks, 1, 1),
        };
        let turn = interval / u64::from(parts);
        let mut units = Vec::new();
        for rank in 0..ranks {
            let stagger = if dram.refresh_staggered { turn * u64::from(rank) / u64::from(ranks) } else { 0 };
            units.extend((0..parts).map(|part| {
                let due = turn * u64::from(part + 1) + stagger;
                let banks = Banks { first: rank * groups * banks + part, step, count };
                Unit { banks, due, step: Step::FallDue, at: due }
            }));
        }
        let mut refreshes = Refreshes { units, interval, next: 0, refreshed_banks: 0 };
        refreshes.find_next();
        refreshes
    }

    /// Time of the next step.
    #[inline]
    pub fn next_at(&self) -> u64 {
        self.units.get(self.next).map_or(u64::MAX, |unit| unit.at)
    }

    fn find_next(&mut self) {
        let earliest = (0..self.units.len()).min_by_key(|&unit| self.units[unit].at);
        self.next = earliest.unwrap_or(0);
    }

    /// Counts the refreshes before `to` as done, except for the last: the channel was idle.
    pub fn skip(&mut self, to: u64) {
        for unit in self.units.iter_mut().filter(|unit| unit.step == Step::FallDue && unit.due < to) {
            let passed = (to - unit.due) / self.interval;
            self.refreshed_banks += passed * u64::from(unit.banks.count);
            unit.due += passed * self.interval;
            unit.at = unit.due;
        }
        self.find_next();
    }

    /// Number of bank refreshes by `to` if the channel stays idle.
    pub fn refreshed_banks_by(&self, to: u64) -> u64 {
        let due = self.units.iter().filter(|unit| unit.due <= to);
        self.refreshed_banks
            + due.map(|u| ((to - u.due) / self.interval + 1) * u64::from(u.banks.count)).sum::<u64>()
    }
}

impl<O: Observer> Channel<O> {
    /// Performs the next step of the next refresh.
    pub(super) fn refresh_step(&mut self, at: Cycle) {
        let unit = &self.refreshes.units[self.refreshes.next];
        let (banks, step) = (unit.banks, unit.step);
        let (step, at) = match step {
            Step::FallDue => self.hold(banks, at),
            _ if self.schedule.row_bus() > at => (step, self.schedule.row_bus()),
            Step::Precharge => self.precharge_all(banks, at),
            Step::Refresh => self.refresh(banks, at),
        };
        let at = self.base + u64::from(at);
        let interval = self.refreshes.interval;
        let unit = &mut self.refreshes.units[self.refreshes.next];
        (unit.step, unit.at) = (step, at);
        if step == Step::FallDue {
            unit.due += interval;
            unit.at = unit.due.max(at);
        }
        self.refreshes.find_next();
    }

    fn hold(&mut self, banks: Banks, at: Cycle) -> (Step, Cycle) {
        let open = self
            .units
            .of_banks(banks)
            .map(|unit| &self.banks[usize::from(unit)])
            .filter(|bank| bank.row != CLOSED);
        let Some(precharge_at) = open.map(|bank| bank.precharge_at).max() else {
            self.hold_back(banks, at, |_| true);
            return (Step::Refresh, self.closed_by(banks).max(at));
        };
        let precharge_at = precharge_at.max(at);
        self.hold_back(banks, precharge_at, |kind| matches!(kind, Kind::Activate | Kind::Precharge));
        (Step::Precharge, precharge_at)
    }

    fn precharge_all(&mut self, banks: Banks, at: Cycle) -> (Step, Cycle) {
        let mut any = false;
        for bank in self.units.of_banks(banks).map(usize::from) {
            if self.banks[bank].row == CLOSED {
                continue;
            }
            self.banks[bank].close(at + self.timing.rp_refresh);
            any = true;
        }
        self.hold_back(banks, at, |_| true);
        if any {
            self.row_command(at, Command::PrechargeAll(banks));
        }
        (Step::Refresh, self.closed_by(banks).max(at))
    }

    fn refresh(&mut self, banks: Banks, at: Cycle) -> (Step, Cycle) {
        self.row_command(at, Command::Refresh(banks));
        self.refreshes.refreshed_banks += u64::from(banks.count);
        for bank in self.units.of_banks(banks) {
            let b = &mut self.banks[usize::from(bank)];
            b.activate_at = at + self.timing.rfc;
            b.refresh_at = NEVER;
            b.overtaken = 0;
            self.update(bank);
        }
        (Step::FallDue, at)
    }

    /// Marks banks as to be closed at `by`, and withdraws their candidates of some kinds.
    fn hold_back(&mut self, banks: Banks, by: Cycle, which: impl Fn(Kind) -> bool) {
        for bank in self.units.of_banks(banks) {
            self.banks[usize::from(bank)].refresh_at = by;
            let candidate = self.banks[usize::from(bank)].candidate;
            if candidate.is_some_and(|handle| which(self.schedule.get(handle).kind)) {
                self.withdraw(bank);
                self.schedule.end_priority(bank);
            }
        }
    }

    /// When the last of some closed banks is precharged.
    fn closed_by(&self, banks: Banks) -> Cycle {
        self.units.of_banks(banks).map(|unit| self.banks[usize::from(unit)].activate_at).max().unwrap_or(0)
    }

    fn row_command(&mut self, at: Cycle, command: Command) {
        self.schedule.occupy(self.command_bus(Kind::Precharge, at));
        self.observer.command(self.base + u64::from(at), command);
    }
}

//! A plain memory controller that examines every request in every cycle.

use memtide_core::machine::{Arbitration, Dram, PagePolicy, Refresh};
use memtide_memory::channel::{Banks, Command, Place};

use super::Arrival;
use super::rules::Past;

struct Waiting {
    id: usize,
    place: Place,
    write: bool,
}

struct Unit {
    banks: Banks,
    due: u64,
    /// When its banks are precharged; `None` before it is due.
    deadline: Option<u64>,
}

pub struct Plain<'a> {
    dram: &'a Dram,
    past: Past<'a>,
    now: u64,
    /// In order of age, both directions.
    waiting: Vec<Waiting>,
    opened_for: Vec<Option<usize>>,
    overtaken: Vec<u16>,
    units: Vec<Unit>,
    writing: bool,
    drained: u32,
    owed: usize,
    rotation: u16,
    pub log: Vec<(u64, Command)>,
    pub ends: Vec<Option<u64>>,
}

impl<'a> Plain<'a> {
    /// Serves all requests, given in time order.
    pub fn run(dram: &'a Dram, arrivals: &[Arrival]) -> Plain<'a> {
        let banks = u16::from(dram.ranks) * u16::from(dram.bank_groups) * u16::from(dram.banks);
        let mut plain = Plain {
            dram,
            past: Past::new(dram),
            now: 0,
            waiting: Vec::new(),
            opened_for: vec![None; usize::from(banks)],
            overtaken: vec![0; usize::from(banks)],
            units: units(dram),
            writing: false,
            drained: 0,
            owed: 0,
            rotation: 0,
            log: Vec::new(),
            ends: vec![None; arrivals.len()],
        };
        let mut next = 0;
        while next < arrivals.len() || !plain.waiting.is_empty() {
            let admitted = arrivals.get(next).is_some_and(|arrival| plain.admit(next, arrival));
            if admitted {
                next += 1;
            } else if !(plain.refresh() || plain.command()) {
                plain.now += 1;
            }
        }
        plain
    }

    fn queued(&self, write: bool) -> usize {
        self.waiting.iter().filter(|w| w.write == write).count()
    }

    fn admit(&mut self, id: usize, arrival: &Arrival) -> bool {
        let room = if arrival.write { self.dram.write_queue } else { self.dram.read_queue };
        if arrival.at > self.now || self.queued(arrival.write) >= usize::from(room) {
            return false;
        }
        if self.waiting.iter().any(|w| w.write && w.place == arrival.place) {
            self.ends[id] = (!arrival.write).then_some(self.now + 1);
            return true;
        }
        self.waiting.push(Waiting { id, place: arrival.place, write: arrival.write });
        self.turn();
        true
    }

    fn turn(&mut self) {
        let (reads, writes) = (self.queued(false), self.queued(true));
        let long = self.drained >= 4 * u32::from(self.dram.write_queue);
        if self.writing {
            self.owed = if long { reads } else { self.owed };
            self.writing =
                writes > 0 && (reads == 0 || !(long || writes <= usize::from(self.dram.drain_low)));
        } else {
            let many = writes >= usize::from(self.dram.drain_high) && self.owed == 0;
            self.writing = writes > 0 && (reads == 0 || many);
            self.drained = 0;
        }
    }

    fn send(&mut self, command: Command) {
        self.past.add(self.now, command);
        self.log.push((self.now, command));
    }

    /// Performs one step of a refresh, if possible now.
    fn refresh(&mut self) -> bool {
        for i in 0..self.units.len() {
            let Unit { banks, due, deadline } = self.units[i];
            let open = banks.iter().filter(|&bank| self.past.open_row(bank).is_some());
            let precharge_at = open.map(|bank| self.past.precharge_at(bank)).max();
            match deadline {
                None if due <= self.now => {
                    self.units[i].deadline = Some(precharge_at.unwrap_or(0).max(self.now));
                    return true;
                }
                Some(deadline) if deadline <= self.now => {
                    let command = if precharge_at.is_some() {
                        Command::Precharge(banks)
                    } else {
                        Command::Refresh(banks)
                    };
                    if self.past.objection(self.now, command).is_some() {
                        continue;
                    }
                    self.send(command);
                    if precharge_at.is_none() {
                        self.units[i] = Unit { banks, due: due + u64::from(self.dram.refi), deadline: None };
                    }
                    for bank in banks.iter().map(usize::from) {
                        (self.opened_for[bank], self.overtaken[bank]) = (None, 0);
                    }
                    return true;
                }
                _ => {}
            }
        }
        false
    }

    /// The next command of a bank in the current direction, and the index of its request.
    fn wanted(&self, bank: u16) -> Option<(usize, Command)> {
        let column = |i: usize| {
            let Waiting { place, write, .. } = self.waiting[i];
            let last = self
                .waiting
                .iter()
                .enumerate()
                .all(|(j, w)| j == i || (w.place.bank, w.place.row) != (place.bank, place.row));
            let auto_precharge = last && self.dram.page_policy == PagePolicy::Closed;
            (i, Command::Column { bank, row: place.row, column: place.column, write, auto_precharge })
        };
        if let Some(id) = self.opened_for[usize::from(bank)] {
            return self.waiting.iter().position(|w| w.id == id).map(column);
        }
        let here = |w: &Waiting| w.place.bank == bank && w.write == self.writing;
        let first = self.waiting.iter().position(here)?;
        let Some(row) = self.past.open_row(bank) else {
            return Some((first, Command::Activate { bank, row: self.waiting[first].place.row }));
        };
        let hit = self.waiting.iter().position(|w| here(w) && w.place.row == row);
        let capped = self.overtaken[usize::from(bank)] >= self.dram.hit_cap;
        match hit {
            Some(hit) if hit == first || !capped => Some(column(hit)),
            _ => Some((first, Command::Precharge(Banks::one(bank)))),
        }
    }

    fn delays_refresh(&self, bank: u16, command: Command) -> bool {
        let unit = self.units.iter().find(|u| u.deadline.is_some() && u.banks.iter().any(|b| b == bank));
        let Some(deadline) = unit.and_then(|unit| unit.deadline) else { return false };
        let d = self.dram;
        let recovery = match command {
            Command::Column { write: true, .. } => u64::from(d.cwl) + u64::from(d.burst) + u64::from(d.wr),
            Command::Column { .. } => d.rtp.into(),
            _ => return true,
        };
        (self.now + recovery).max(self.past.precharge_at(bank)) > deadline
    }

    /// Sends the first in order of the commands possible now, if any.
    fn command(&mut self) -> bool {
        let banks = self.opened_for.len() as u16;
        let may = |bank: u16| {
            let (i, command) = self.wanted(bank)?;
            let free =
                self.past.objection(self.now, command).is_none() && !self.delays_refresh(bank, command);
            let rank = match self.dram.arbitration {
                Arbitration::Oldest => i,
                Arbitration::RoundRobin => usize::from(bank.wrapping_sub(self.rotation) % banks),
            };
            free.then_some((!matches!(command, Command::Column { .. }), rank, i, bank, command))
        };
        let Some((_, _, i, bank, command)) = (0..banks).filter_map(may).min_by_key(|c| (c.0, c.1)) else {
            return false;
        };
        self.send(command);
        self.rotation = (bank + 1) % banks;
        match command {
            Command::Activate { .. } => self.opened_for[usize::from(bank)] = Some(self.waiting[i].id),
            Command::Column { .. } => self.served(i),
            _ => {}
        }
        true
    }

    fn served(&mut self, i: usize) {
        let Waiting { id, place, write } = self.waiting.remove(i);
        let bank = usize::from(place.bank);
        self.opened_for[bank] = None;
        let overtook = self.waiting[..i].iter().any(|w| w.place.bank == place.bank && w.write == write);
        self.overtaken[bank] = if overtook { self.overtaken[bank] + 1 } else { 0 };
        if write {
            self.drained = if self.queued(false) == 0 { 0 } else { self.drained + 1 };
        } else {
            self.owed = self.owed.saturating_sub(1);
            self.ends[id] = Some(self.now + u64::from(self.dram.cl) + u64::from(self.dram.burst));
        }
        self.turn();
    }
}

fn units(dram: &Dram) -> Vec<Unit> {
    let (groups, banks) = (u16::from(dram.bank_groups), u16::from(dram.banks));
    let (parts, step, count) = match dram.refresh {
        Refresh::AllBank => (1, 1, groups * banks),
        Refresh::SameBank => (banks, banks, groups),
        Refresh::PerBank => (groups * banks, 1, 1),
    };
    let turn = u64::from(dram.refi) / u64::from(parts);
    let ranks = if dram.refi == 0 { 0 } else { dram.ranks };
    let unit = |rank: u8, part: u16| {
        let stagger = if dram.refresh_staggered { turn * u64::from(rank) / u64::from(ranks) } else { 0 };
        let banks = Banks { first: u16::from(rank) * groups * banks + part, step, count };
        Unit { banks, due: turn * u64::from(part + 1) + stagger, deadline: None }
    };
    (0..ranks).flat_map(|rank| (0..parts).map(move |part| unit(rank, part))).collect()
}

//! A plain memory controller that examines every request in every cycle.

use memtide_core::machine::{Arbitration, Dram, PagePolicy, Refresh};
use memtide_memory::channel::{Banks, Command, Place};

use super::Arrival;
use super::rules::{Past, subarray, subarrays};

struct Waiting {
    id: usize,
    place: Place,
    write: bool,
    /// Whether a row was opened for it: it has left its queue.
    activated: bool,
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
    /// By subarray, as `overtaken`.
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
        let subarrays = dram.channel_banks() * usize::from(dram.row_buffers());
        let mut plain = Plain {
            dram,
            past: Past::new(dram),
            now: 0,
            waiting: Vec::new(),
            opened_for: vec![None; subarrays],
            overtaken: vec![0; subarrays],
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
        self.waiting.iter().filter(|w| w.write == write && !w.activated).count()
    }

    fn admit(&mut self, id: usize, arrival: &Arrival) -> bool {
        if arrival.at > self.now || !self.has_room(arrival) {
            return false;
        }
        if self.waiting.iter().any(|w| w.write && w.place == arrival.place) {
            self.ends[id] = (!arrival.write).then_some(self.now + 1);
            return true;
        }
        self.waiting.push(Waiting { id, place: arrival.place, write: arrival.write, activated: false });
        self.turn();
        true
    }

    /// Whether the bank's own entries have room, or the shared ones, which hold what banks cannot.
    fn has_room(&self, arrival: &Arrival) -> bool {
        let shared = if arrival.write { self.dram.write_queue } else { self.dram.read_queue };
        let own = usize::from(self.dram.bank_queue);
        let of_bank = |bank: u16| {
            let queued = |w: &&Waiting| w.place.bank == bank && w.write == arrival.write && !w.activated;
            self.waiting.iter().filter(queued).count()
        };
        let excess = (0..self.dram.channel_banks() as u16).map(|bank| of_bank(bank).saturating_sub(own));
        of_bank(arrival.place.bank) < own || excess.sum::<usize>() < usize::from(shared)
    }

    fn subarray(&self, place: Place) -> u16 {
        subarray(self.dram, place.bank, place.row)
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
            let open = subarrays(self.dram, banks).filter(|&bank| self.past.open_row(bank).is_some());
            let precharge_at = open.map(|bank| self.past.precharge_at(bank)).max();
            match deadline {
                None if due <= self.now => {
                    self.units[i].deadline = Some(precharge_at.unwrap_or(0).max(self.now));
                    return true;
                }
                Some(deadline) if deadline <= self.now => {
                    let command = if precharge_at.is_some() {
                        Command::PrechargeAll(banks)
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
                    for bank in subarrays(self.dram, banks).map(usize::from) {
                        self.overtaken[bank] = 0;
                    }
                    return true;
                }
                _ => {}
            }
        }
        false
    }

    /// The next command of a subarray in the current direction, and the index of its request.
    fn wanted(&self, subarray: u16) -> Option<(usize, Command)> {
        let bank = subarray / self.dram.row_buffers();
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
        let open_row = self.past.open_row(subarray);
        let activate = |i: usize| (i, Command::Activate { bank, row: self.waiting[i].place.row });
        if let Some(id) = self.opened_for[usize::from(subarray)] {
            let activated = self.waiting.iter().position(|w| w.id == id);
            return activated.map(|i| if open_row.is_some() { column(i) } else { activate(i) });
        }
        let here = |w: &Waiting| self.subarray(w.place) == subarray && w.write == self.writing;
        let first = self.waiting.iter().position(here)?;
        let Some(row) = open_row else { return Some(activate(first)) };
        let hit = self.waiting.iter().position(|w| here(w) && w.place.row == row);
        let capped = self.overtaken[usize::from(subarray)] >= self.dram.hit_cap;
        match hit {
            Some(hit) if hit == first || !capped => Some(column(hit)),
            _ => Some((first, Command::Precharge { bank, row })),
        }
    }

    fn delays_refresh(&self, bank: u16, command: Command) -> bool {
        let held = |u: &&Unit| u.deadline.is_some() && subarrays(self.dram, u.banks).any(|b| b == bank);
        let unit = self.units.iter().find(held);
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
            Command::Activate { .. } => self.activated(bank, i),
            Command::Column { .. } => self.served(i),
            _ => {}
        }
        true
    }

    fn activated(&mut self, bank: u16, i: usize) {
        let request = &mut self.waiting[i];
        self.opened_for[usize::from(bank)] = Some(request.id);
        if !std::mem::replace(&mut request.activated, true) {
            let write = request.write;
            self.left_queue(write);
        }
    }

    fn left_queue(&mut self, write: bool) {
        if write {
            self.drained = if self.queued(false) == 0 { 0 } else { self.drained + 1 };
        } else {
            self.owed = self.owed.saturating_sub(1);
        }
        self.turn();
    }

    fn served(&mut self, i: usize) {
        let Waiting { id, place, write, activated } = self.waiting.remove(i);
        let bank = usize::from(self.subarray(place));
        self.opened_for[bank] = None;
        let of_bank = |w: &Waiting| usize::from(self.subarray(w.place)) == bank;
        let overtook = self.waiting[..i].iter().any(|w| of_bank(w) && w.write == write);
        self.overtaken[bank] = if overtook { self.overtaken[bank] + 1 } else { 0 };
        if !write {
            self.ends[id] = Some(self.now + u64::from(self.dram.cl) + u64::from(self.dram.burst));
        }
        if activated {
            self.turn();
        } else {
            self.left_queue(write);
        }
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

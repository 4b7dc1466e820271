//! The schedule: of every bank that has something to do its next command, and which of them goes next.

use memtide_core::machine::Arbitration;

use super::queues::NONE;
use super::timing::{Cycle, Kind};

/// The next command of a bank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    /// Earliest cycle as far as its bank goes.
    pub ready: Cycle,
    /// Age of its request; row commands have [`ROW`] added, so that column commands come first.
    pub rank: u32,
    /// Its place among the limits.
    pub class: u16,
    pub bank: u16,
    pub slot: u16,
    pub kind: Kind,
}

/// What sets row commands behind column commands.
pub(super) const ROW: u32 = 1 << 31;

/// The command that goes next: cycle and priority (the less the earlier), and index of its candidate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Best {
    order: u64,
    pub index: u16,
}

impl Best {
    const NOTHING: Best = Best { order: u64::MAX, index: NONE };

    /// When it goes; [`NEVER`](super::timing::NEVER) if there is no candidate.
    #[inline]
    pub fn at(self) -> Cycle {
        (self.order >> 32) as Cycle
    }
}

/// The candidates.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    candidates: Vec<Candidate>,
    best: Best,
    stale: bool,
    rotation: Option<Rotation>,
    /// The candidate's bank that goes before all others: its request has waited too long.
    urgent: Option<u16>,
    /// Since when the buses for column and for row commands are free.
    bus: [Cycle; 2],
}

#[derive(Clone, Copy, Debug)]
struct Rotation {
    next: u16,
    banks: u16,
}

impl Schedule {
    pub fn new(arbitration: Arbitration, banks: usize) -> Schedule {
        let rotation = Rotation { next: 0, banks: banks as u16 };
        Schedule {
            candidates: Vec::with_capacity(banks),
            best: Best::NOTHING,
            stale: false,
            rotation: (arbitration == Arbitration::RoundRobin).then_some(rotation),
            urgent: None,
            bus: [0; 2],
        }
    }

    #[inline]
    pub fn get(&self, index: u16) -> &Candidate {
        &self.candidates[usize::from(index)]
    }

    /// Adds a candidate and returns its index.
    #[inline]
    pub fn add(&mut self, candidate: Candidate, limits: &[Cycle]) -> u16 {
        let index = self.candidates.len() as u16;
        self.candidates.push(candidate);
        if !self.stale && self.urgent.is_none() {
            let order = self.order(&candidate, limits);
            if order < self.best.order {
                self.best = Best { order, index };
            }
        }
        index
    }

    #[inline]
    pub fn replace(&mut self, index: u16, candidate: Candidate) {
        self.candidates[usize::from(index)] = candidate;
        self.stale = true;
    }

    /// Takes a candidate out; the bank of the one that then has its index, if any.
    #[inline]
    pub fn remove(&mut self, index: u16) -> Option<u16> {
        let removed = self.candidates.swap_remove(usize::from(index));
        if self.urgent == Some(removed.bank) {
            self.urgent = None;
        }
        self.stale = true;
        self.candidates.get(usize::from(index)).map(|moved| moved.bank)
    }

    /// The command that goes next.
    #[inline]
    pub fn best(&mut self, limits: &[Cycle]) -> Best {
        if self.stale {
            self.best = self.find(limits);
            self.stale = false;
        }
        self.best
    }

    /// The command that goes next, not kept.
    pub fn peek(&self, limits: &[Cycle]) -> Best {
        if self.stale { self.find(limits) } else { self.best }
    }

    fn find(&self, limits: &[Cycle]) -> Best {
        let mut best = Best::NOTHING;
        for (index, candidate) in self.candidates.iter().enumerate() {
            if self.urgent.is_some_and(|bank| bank != candidate.bank) {
                continue;
            }
            let order = self.order(candidate, limits);
            if order < best.order {
                best = Best { order, index: index as u16 };
            }
        }
        best
    }

    #[inline]
    fn order(&self, candidate: &Candidate, limits: &[Cycle]) -> u64 {
        let bus = self.bus[(candidate.rank >> 31) as usize];
        let at = candidate.ready.max(limits[usize::from(candidate.class)]).max(bus);
        let rank = match self.rotation {
            None => candidate.rank,
            Some(Rotation { next, banks }) => {
                candidate.rank & ROW | u32::from(candidate.bank.wrapping_sub(next) & (banks - 1))
            }
        };
        u64::from(at) << 32 | u64::from(rank)
    }

    /// A command was sent that occupies the command buses until the given cycles.
    #[inline]
    pub fn sent(&mut self, bank: u16, bus: [Cycle; 2]) {
        self.occupy(bus);
        if let Some(rotation) = &mut self.rotation {
            rotation.next = bank + 1;
        }
    }

    /// The command buses are occupied until the given cycles.
    #[inline]
    pub fn occupy(&mut self, bus: [Cycle; 2]) {
        self.bus = [self.bus[0].max(bus[0]), self.bus[1].max(bus[1])];
        self.stale = true;
    }

    /// Earliest cycle for a row command.
    pub fn row_bus(&self) -> Cycle {
        self.bus[1]
    }

    /// Puts the oldest request first until it is served, if it is older than `age`.
    pub fn hurry(&mut self, age: u32) {
        let oldest = self.candidates.iter().min_by_key(|c| c.rank & !ROW);
        self.urgent = oldest.filter(|c| c.rank & !ROW < age).map(|c| c.bank);
        self.stale = true;
    }

    /// The bank's oldest request was served.
    pub fn calm(&mut self, bank: u16) {
        if self.urgent == Some(bank) {
            self.urgent = None;
        }
    }

    /// Counts cycles and ages from later bases.
    pub fn rebase(&mut self, cycles: Cycle, ages: u32) {
        for candidate in &mut self.candidates {
            candidate.ready = candidate.ready.saturating_sub(cycles);
            candidate.rank -= ages;
        }
        for free in &mut self.bus {
            *free = free.saturating_sub(cycles);
        }
        self.stale = true;
    }
}

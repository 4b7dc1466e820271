//! The command schedule of a channel: FR-FCFS without scanning all banks in each cycle.
//!
//! Each bank with a request has one candidate: the next command for that request. The next command sent is
//! the candidate of least order (cycle, row command?, age): the earliest that the timing set allows, column
//! before row commands, older before younger. The order fits one `u64`, so a comparison is one instruction:
//!
//! ```text
//! bits  63 ............ 32 | 31    | 30 ............ 0
//!       cycle it can go in | `ROW` | age of its request   (round-robin: distance from the bank served last)
//! cycle = max(ready: bank timings, limits[class]: rank and channel timings, bus: the command bus is free)
//! ```
//!
//! Invariant: unless a list is `stale`, `best` is its candidate of least order under the current limits.
//! Limits and the bus only move forward (until `rebase`), so a candidate's order only grows: a new candidate
//! is compared with `best` alone, and the list is searched again only if `best` itself was removed, replaced
//! or overtaken.
//!
//! ```text
//!   sent Read/Write --> column limits move --> columns stale, rows keep their best
//!   sent Activate ----> row limits move -----> rows stale,    columns keep theirs
//! ```
//!
//! Why two lists: a command only moves the limits of its own kind, so each command causes a search of one of
//! them. Why not a heap: one moved limit changes the orders of most candidates, and a search of at most 64
//! entries touches a few cache lines.

use memtide_core::machine::Arbitration;

use super::timing::{Cycle, Kind};

/// The next command of a bank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    /// Earliest cycle by its bank's timings.
    pub ready: Cycle,
    /// Age of its request; row commands have [`ROW`] added, so that column commands come first.
    pub rank: u32,
    /// Its index into the limits.
    pub class: u16,
    pub bank: u16,
    pub slot: u16,
    pub kind: Kind,
}

/// Orders row commands after column commands.
pub(super) const ROW: u32 = 1 << 31;

/// Position of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Handle {
    row: bool,
    index: u16,
}

/// The candidates, column and row commands separately: a column command only moves the limits of column
/// commands, an activate those of row commands, so each makes one of the two lists stale.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    lists: [List; 2],
    rules: Rules,
}

#[derive(Clone, Debug)]
struct List {
    candidates: Vec<Candidate>,
    /// Order and index of the next candidate, unless `stale`.
    best: (u64, u16),
    stale: bool,
    /// When the command bus becomes free.
    bus: Cycle,
}

const NO_CANDIDATE: (u64, u16) = (u64::MAX, u16::MAX);

#[derive(Clone, Copy, Debug)]
struct Rules {
    rotation: Option<Rotation>,
    /// The bank with top priority: its request has waited too long.
    urgent: Option<u16>,
}

#[derive(Clone, Copy, Debug)]
struct Rotation {
    next: u16,
    banks: u16,
}

impl Rules {
    #[inline]
    fn order(&self, candidate: &Candidate, bus: Cycle, limits: &[Cycle]) -> u64 {
        let rank = match self.rotation {
            None => candidate.rank,
            Some(Rotation { next, banks }) => {
                candidate.rank & ROW | u32::from(candidate.bank.wrapping_sub(next) & (banks - 1))
            }
        };
        order(candidate, rank, bus, limits)
    }
}

/// Order of candidates: first the earliest cycle, then the rank.
#[inline]
fn order(candidate: &Candidate, rank: u32, bus: Cycle, limits: &[Cycle]) -> u64 {
    let own = candidate.ready.max(limits[usize::from(candidate.class)]);
    // The later of the two cycles, without a branch.
    (u64::from(own) << 32 | u64::from(rank)).max(u64::from(bus) << 32 | u64::from(rank))
}

impl List {
    fn new(banks: usize) -> List {
        List { candidates: Vec::with_capacity(banks), best: NO_CANDIDATE, stale: false, bus: 0 }
    }

    /// Updates the best candidate after a new one at an index.
    #[inline]
    fn consider(&mut self, index: u16, rules: &Rules, limits: &[Cycle]) {
        if self.best.1 == index || rules.urgent.is_some() {
            self.stale = true;
        } else if !self.stale {
            let order = rules.order(&self.candidates[usize::from(index)], self.bus, limits);
            if order < self.best.0 {
                self.best = (order, index);
            }
        }
    }

    /// Removes a candidate; returns the bank of the one that takes its index, if any.
    #[inline]
    fn remove(&mut self, index: u16) -> Option<u16> {
        self.candidates.swap_remove(usize::from(index));
        if self.best.1 == index {
            self.stale = true;
        } else if usize::from(self.best.1) == self.candidates.len() {
            self.best.1 = index;
        }
        self.candidates.get(usize::from(index)).map(|moved| moved.bank)
    }

    #[inline]
    fn occupy(&mut self, until: Cycle) {
        self.bus = self.bus.max(until);
        self.stale |= ((self.best.0 >> 32) as Cycle) < self.bus;
    }

    fn find(&self, rules: &Rules, limits: &[Cycle]) -> (u64, u16) {
        match (rules.rotation, rules.urgent) {
            (None, None) => self.least(|c| order(c, c.rank, self.bus, limits)),
            (_, None) => self.least(|c| rules.order(c, self.bus, limits)),
            (_, Some(bank)) => self.least(|c| match c.bank == bank {
                true => rules.order(c, self.bus, limits),
                false => u64::MAX,
            }),
        }
    }

    #[inline]
    fn least(&self, order: impl Fn(&Candidate) -> u64) -> (u64, u16) {
        let mut best = NO_CANDIDATE;
        for (index, candidate) in self.candidates.iter().enumerate() {
            let order = order(candidate);
            if order < best.0 {
                best = (order, index as u16);
            }
        }
        best
    }
}

impl Schedule {
    pub fn new(arbitration: Arbitration, banks: usize) -> Schedule {
        let rotation = Rotation { next: 0, banks: banks as u16 };
        let rotation = (arbitration == Arbitration::RoundRobin).then_some(rotation);
        Schedule { lists: [List::new(banks), List::new(banks)], rules: Rules { rotation, urgent: None } }
    }

    #[inline]
    pub fn get(&self, handle: Handle) -> &Candidate {
        &self.lists[usize::from(handle.row)].candidates[usize::from(handle.index)]
    }

    /// Adds a candidate.
    #[inline]
    pub fn add(&mut self, candidate: Candidate, limits: &[Cycle]) -> Handle {
        let row = candidate.rank & ROW != 0;
        debug_assert_eq!(
            row,
            matches!(candidate.kind, Kind::Activate | Kind::Precharge),
            "row commands are ranked behind"
        );
        let list = &mut self.lists[usize::from(row)];
        let index = list.candidates.len() as u16;
        list.candidates.push(candidate);
        list.consider(index, &self.rules, limits);
        Handle { row, index }
    }

    /// Replaces a candidate by one of the same list; returns false if the lists differ.
    #[inline]
    pub fn replace(&mut self, handle: Handle, candidate: Candidate, limits: &[Cycle]) -> bool {
        let same = handle.row == (candidate.rank & ROW != 0);
        if same {
            let list = &mut self.lists[usize::from(handle.row)];
            list.candidates[usize::from(handle.index)] = candidate;
            list.consider(handle.index, &self.rules, limits);
        }
        same
    }

    /// Removes a candidate; returns the bank of the one that takes its handle, if any.
    #[inline]
    pub fn remove(&mut self, handle: Handle) -> Option<u16> {
        self.lists[usize::from(handle.row)].remove(handle.index)
    }

    /// The next command and its time; `None` without candidates.
    #[inline]
    pub fn best(&mut self, limits: &[Cycle]) -> Option<(Cycle, Handle)> {
        for list in &mut self.lists {
            if list.stale {
                list.best = list.find(&self.rules, limits);
                list.stale = false;
            } else {
                debug_assert_eq!(list.best, list.find(&self.rules, limits), "a best that is not the least");
            }
        }
        first(self.lists[0].best, self.lists[1].best)
    }

    /// As [`best`](Self::best), without caching it.
    pub fn peek(&self, limits: &[Cycle]) -> Option<(Cycle, Handle)> {
        let best = |list: &List| if list.stale { list.find(&self.rules, limits) } else { list.best };
        first(best(&self.lists[0]), best(&self.lists[1]))
    }

    /// Updates for a command sent to a bank, which moves the limits of its kind and occupies the column and
    /// row command buses until the given cycles.
    #[inline]
    pub fn sent(&mut self, bank: u16, kind: Kind, bus: [Cycle; 2]) {
        self.occupy(bus);
        match kind {
            Kind::Read | Kind::Write => self.lists[0].stale = true,
            Kind::Activate => self.lists[1].stale = true,
            Kind::Precharge => {}
        }
        if let Some(rotation) = &mut self.rules.rotation {
            rotation.next = bank + 1;
            self.search();
        }
    }

    /// Occupies the command buses until the given cycles.
    #[inline]
    pub fn occupy(&mut self, bus: [Cycle; 2]) {
        self.lists[0].occupy(bus[0]);
        self.lists[1].occupy(bus[1]);
    }

    /// Earliest cycle for a row command.
    pub fn row_bus(&self) -> Cycle {
        self.lists[1].bus
    }

    /// Gives the bank of the oldest request top priority until it is served, if the request is older than
    /// `age`.
    pub fn prioritise_oldest(&mut self, age: u32) {
        let candidates = self.lists.iter().flat_map(|list| &list.candidates);
        let oldest = candidates.min_by_key(|c| c.rank & !ROW);
        self.rules.urgent = oldest.filter(|c| c.rank & !ROW < age).map(|c| c.bank);
        self.search();
    }

    /// Ends a bank's top priority: its request was served, or cannot be served now.
    #[inline]
    pub fn end_priority(&mut self, bank: u16) {
        if self.rules.urgent == Some(bank) {
            self.rules.urgent = None;
            self.search();
        }
    }

    fn search(&mut self) {
        self.lists.iter_mut().for_each(|list| list.stale = true);
    }

    /// Moves the bases of cycles and ages forward.
    pub fn rebase(&mut self, cycles: Cycle, ages: u32) {
        for list in &mut self.lists {
            for candidate in &mut list.candidates {
                debug_assert!(candidate.rank & !ROW >= ages, "a request older than the oldest");
                candidate.ready = candidate.ready.saturating_sub(cycles);
                candidate.rank -= ages;
            }
            list.bus = list.bus.saturating_sub(cycles);
        }
        self.search();
    }
}

/// The better one of the best of both lists.
#[inline]
fn first(column: (u64, u16), row: (u64, u16)) -> Option<(Cycle, Handle)> {
    let is_row = row.0 < column.0;
    let (order, index) = if is_row { row } else { column };
    (order != u64::MAX).then_some(((order >> 32) as Cycle, Handle { row: is_row, index }))
}

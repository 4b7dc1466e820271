//! Way partitioning: caches of the same sets that give ways to each other.
//!
//! ```text
//! set     a cache of 8 ways          split off b's lines, then resize to 5 and 3 ways
//!  0      a1 b1 a2 a3 b2 a4 b3 b4    a1 a2 a3 a4 .   b1 b2 b3   (b4 is dropped)
//! ```
//!
//! Each part has exact LRU among its own lines, as a cache whose programs replace lines of their own ways.

use super::{Cache, DIRTY, LANES, Lanes, MAX_WAYS, Victim, find, slot};

impl Cache {
    /// Its associativity.
    pub fn ways(&self) -> u16 {
        self.ways as u16
    }

    /// Number of sets.
    pub fn sets(&self) -> u64 {
        self.sets
    }

    /// An empty cache with as many sets and another associativity. With 0 ways every access misses, and
    /// evicts its own line.
    ///
    /// # Panics
    /// If `ways` is more than 64.
    #[must_use]
    pub fn with_ways(&self, ways: u16) -> Cache {
        let ways = usize::from(ways);
        assert!(ways <= MAX_WAYS, "a cache of {ways} ways");
        let lanes_of_set = ways.div_ceil(LANES).max(1);
        let lanes = vec![Lanes([0; LANES]); self.sets as usize * lanes_of_set];
        Cache { ways, lanes_of_set, lanes, ..*self }
    }

    /// Changes the associativity. Each set keeps its most recently used lines; returns the dropped ones.
    pub fn resize(&mut self, ways: u16) -> Vec<Victim> {
        let resized = self.with_ways(ways);
        let old = std::mem::replace(self, resized);
        self.append(&old)
    }

    /// Takes all lines that match out, into a cache of as many ways.
    #[must_use]
    pub fn split_off(&mut self, mut is_taken: impl FnMut(u64) -> bool) -> Cache {
        let (mut rest, mut taken) = (self.with_ways(self.ways()), self.with_ways(self.ways()));
        for set in 0..self.sets as usize {
            for slot in self.slots(set) {
                let line = self.victim(set, slot).expect("an occupied slot").line;
                let to = if is_taken(line) { &mut taken } else { &mut rest };
                to.push_back(set, slot);
            }
        }
        *self = rest;
        taken
    }

    /// Appends the lines of a cache of as many sets, as less recently used than all present ones; returns
    /// those that do not fit.
    pub fn append(&mut self, other: &Cache) -> Vec<Victim> {
        let mut dropped = Vec::new();
        for set in 0..self.sets as usize {
            for slot in other.slots(set) {
                if !self.push_back(set, slot) {
                    dropped.extend(self.victim(set, slot));
                }
            }
        }
        dropped
    }

    /// Appends a slot to a set; returns whether there is room for it or the set has its line already.
    fn push_back(&mut self, set: usize, new: u32) -> bool {
        let (way, ways) = (self.slots(set).count(), self.ways);
        let lanes = self.lanes_mut(set);
        if let Some(way) = find(lanes, new & !DIRTY) {
            lanes[way / LANES].0[way % LANES] |= new & DIRTY;
            return true;
        }
        let fits = way < ways;
        if fits {
            lanes[way / LANES].0[way % LANES] = new;
        }
        fits
    }

    /// The occupied slots of a set, most recently used first.
    fn slots(&self, set: usize) -> impl Iterator<Item = u32> + '_ {
        let lanes = &self.lanes[set * self.lanes_of_set..][..self.lanes_of_set];
        (0..self.ways).map(|way| slot(lanes, way)).take_while(|slot| *slot != 0)
    }
}

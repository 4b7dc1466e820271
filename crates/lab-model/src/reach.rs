//! A virtual CPU's TLB: which pages it reaches without a page walk.

use memtide_core::Time;
use memtide_core::machine::Machine;

/// Inclusive TLB levels: a page evicted from the last level is in no level, and the emulator can drop its own
/// translation.
#[derive(Clone, Debug)]
pub(super) struct Reach {
    levels: Vec<Level>,
    walk: Time,
    pub walks: u64,
}

/// Result of a TLB lookup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lookup {
    /// Time beyond a first-level hit.
    pub takes: Time,
    /// The evicted page.
    pub evicted: Option<u64>,
}

/// Sets are contiguous, most recently used page first; entries are page number + 1, 0 if empty.
#[derive(Clone, Debug)]
struct Level {
    ways: usize,
    sets: u64,
    latency: Time,
    pages: Vec<u64>,
}

impl Reach {
    pub fn new(machine: &Machine) -> Reach {
        let levels = machine.tlbs.iter().map(|tlb| {
            let sets = (tlb.entries / u32::from(tlb.ways)).max(1);
            Level {
                ways: tlb.ways.into(),
                sets: sets.into(),
                latency: machine.core.cycles(tlb.latency_cycles),
                pages: vec![0; sets as usize * usize::from(tlb.ways)],
            }
        });
        let walk = machine.tlbs.last().map_or(0.0, |tlb| tlb.walk_cycles);
        Reach { levels: levels.collect(), walk: machine.core.cycles(walk), walks: 0 }
    }

    /// Looks a base page up; a miss walks and inserts it.
    pub fn lookup(&mut self, page: u64) -> Lookup {
        if self.levels.is_empty() {
            return Lookup::default();
        }
        let hit = self.levels.iter_mut().position(|level| level.touch(page));
        let missed = hit.unwrap_or(self.levels.len());
        let mut evicted = None;
        for index in (0..missed).rev() {
            evicted = self.levels[index].fill(page).filter(|_| index + 1 == self.levels.len()).or(evicted);
        }
        if let Some(gone) = evicted {
            self.levels.iter_mut().for_each(|level| level.drop(gone));
        }
        self.walks += u64::from(hit.is_none());
        Lookup { takes: hit.map_or(self.walk, |index| self.levels[index].latency), evicted }
    }

    /// Drops everything.
    pub fn flush(&mut self) {
        self.levels.iter_mut().for_each(|level| level.pages.fill(0));
    }
}

impl Level {
    fn set(&mut self, page: u64) -> &mut [u64] {
        // Most TLBs have a power of two, which needs no division.
        let set = if self.sets.is_power_of_two() { page & (self.sets - 1) } else { page % self.sets };
        let start = set as usize * self.ways;
        &mut self.pages[start..start + self.ways]
    }

    fn touch(&mut self, page: u64) -> bool {
        let set = self.set(page);
        let Some(way) = set.iter().position(|&held| held == page + 1) else { return false };
        set.copy_within(..way, 1);
        set[0] = page + 1;
        true
    }

    fn fill(&mut self, page: u64) -> Option<u64> {
        let set = self.set(page);
        let last = set.len() - 1;
        let gone = set[last];
        set.copy_within(..last, 1);
        set[0] = page + 1;
        gone.checked_sub(1)
    }

    fn drop(&mut self, page: u64) {
        let set = self.set(page);
        if let Some(way) = set.iter().position(|&held| held == page + 1) {
            set[way..].rotate_left(1);
            let last = set.len() - 1;
            set[last] = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn reach() -> Reach {
        let level = |ways, sets, latency| Level {
            ways,
            sets,
            latency: Time(latency),
            pages: vec![0; ways * sets as usize],
        };
        Reach { levels: vec![level(2, 2, 0), level(4, 2, 7)], walk: Time(30), walks: 0 }
    }

    #[test]
    fn page_walks_once_then_hits() {
        let mut r = reach();
        assert_eq!(r.lookup(8), Lookup { takes: Time(30), evicted: None });
        assert_eq!(r.lookup(8), Lookup::default());
        for page in [10, 12] {
            r.lookup(page);
        }
        assert_eq!(r.lookup(8).takes, Time(7), "the first level has two ways");
        assert_eq!(r.walks, 3);
    }

    #[test]
    fn least_recently_used_page_is_evicted() {
        let mut r = reach();
        for page in [0, 2, 4, 6, 0] {
            r.lookup(page);
        }
        assert_eq!(r.lookup(8).evicted, Some(2));
    }

    proptest! {
        #[test]
        fn evicted_pages_are_in_no_level_and_others_need_no_walk(
            pages in proptest::collection::vec(0u64..24, 1..300),
        ) {
            let mut r = reach();
            let mut held = BTreeSet::new();
            for page in pages {
                let lookup = r.lookup(page);
                prop_assert_eq!(lookup.takes == Time(30), !held.contains(&page));
                held.insert(page);
                if let Some(gone) = lookup.evicted {
                    prop_assert!(held.remove(&gone));
                }
                prop_assert!(held.len() <= 8);
            }
        }
    }
}

//! A virtual CPU's TLB: which pages it reaches without a page walk.

use memtide_core::Time;
use memtide_core::machine::Machine;
use memtide_memory::PageKey;

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
    pub evicted: Option<PageKey>,
}

/// Sets are contiguous, most recently used page first. Pages of both sizes share them.
#[derive(Clone, Debug)]
struct Level {
    ways: usize,
    sets: u64,
    latency: Time,
    pages: Vec<Option<PageKey>>,
}

impl Reach {
    pub fn new(machine: &Machine) -> Reach {
        let levels = machine.tlbs.iter().map(|tlb| {
            let sets = (tlb.entries / u32::from(tlb.ways)).max(1);
            Level {
                ways: tlb.ways.into(),
                sets: sets.into(),
                latency: machine.core.cycles(tlb.latency_cycles),
                pages: vec![None; sets as usize * usize::from(tlb.ways)],
            }
        });
        let walk = machine.tlbs.last().map_or(0.0, |tlb| tlb.walk_cycles);
        Reach { levels: levels.collect(), walk: machine.core.cycles(walk), walks: 0 }
    }

    /// Looks a page up; a miss walks and inserts it.
    pub fn lookup(&mut self, page: PageKey) -> Lookup {
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
        self.levels.iter_mut().for_each(|level| level.pages.fill(None));
    }
}

impl Level {
    fn set(&mut self, page: PageKey) -> &mut [Option<PageKey>] {
        let page = page.page();
        // Most TLBs have a power of two, which needs no division.
        let set = if self.sets.is_power_of_two() { page & (self.sets - 1) } else { page % self.sets };
        let start = set as usize * self.ways;
        &mut self.pages[start..start + self.ways]
    }

    fn touch(&mut self, page: PageKey) -> bool {
        let set = self.set(page);
        let Some(way) = set.iter().position(|&held| held == Some(page)) else { return false };
        set.copy_within(..way, 1);
        set[0] = Some(page);
        true
    }

    fn fill(&mut self, page: PageKey) -> Option<PageKey> {
        let set = self.set(page);
        let last = set.len() - 1;
        let gone = set[last];
        set.copy_within(..last, 1);
        set[0] = Some(page);
        gone
    }

    fn drop(&mut self, page: PageKey) {
        let set = self.set(page);
        if let Some(way) = set.iter().position(|&held| held == Some(page)) {
            set[way..].rotate_left(1);
            let last = set.len() - 1;
            set[last] = None;
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
            pages: vec![None; ways * sets as usize],
        };
        Reach { levels: vec![level(2, 2, 0), level(4, 2, 7)], walk: Time(30), walks: 0 }
    }

    fn base(number: u64) -> PageKey {
        PageKey::new(0, number, false)
    }

    fn huge(number: u64) -> PageKey {
        PageKey::new(0, number, true)
    }

    #[test]
    fn page_walks_once_then_hits() {
        let mut r = reach();
        assert_eq!(r.lookup(base(8)), Lookup { takes: Time(30), evicted: None });
        assert_eq!(r.lookup(base(8)), Lookup::default());
        for page in [10, 12] {
            r.lookup(base(page));
        }
        assert_eq!(r.lookup(base(8)).takes, Time(7), "the first level has two ways");
        assert_eq!(r.walks, 3);
    }

    #[test]
    fn least_recently_used_page_is_evicted() {
        let mut r = reach();
        for page in [0, 2, 4, 6, 0] {
            r.lookup(base(page));
        }
        assert_eq!(r.lookup(base(8)).evicted, Some(base(2)));
    }

    #[test]
    fn pages_of_both_sizes_share_the_entries() {
        let mut r = reach();
        for page in [base(2), huge(2), huge(4), huge(6)] {
            assert_eq!(r.lookup(page), Lookup { takes: Time(30), evicted: None });
        }
        assert_eq!(r.lookup(huge(2)).takes, Time(7));
        assert_eq!(r.lookup(base(8)).evicted, Some(base(2)));
        assert_eq!(r.lookup(base(10)).evicted, Some(huge(4)));
    }

    proptest! {
        #[test]
        fn evicted_pages_are_in_no_level_and_others_need_no_walk(
            pages in proptest::collection::vec((0u64..12, any::<bool>()), 1..300),
        ) {
            let mut r = reach();
            let mut held = BTreeSet::new();
            for page in pages {
                let key = |(number, is_huge)| PageKey::new(0, number, is_huge);
                let lookup = r.lookup(key(page));
                prop_assert_eq!(lookup.takes == Time(30), !held.contains(&page));
                held.insert(page);
                if let Some(gone) = lookup.evicted {
                    prop_assert!(held.remove(&(gone.page(), gone.is_huge())));
                }
                prop_assert!(held.len() <= 8);
            }
        }
    }
}

//! The first cache of a virtual CPU, made for lookups between two instructions of the guest.
//!
//! It does what [`memtide_lab_model::Cache`] does, with exact least-recently-used replacement. Lines stay in
//! their ways; each way has an age, and all ages of a set change at once:
//!
//! ```text
//! ways    A  B  C  D
//! ages    2  0  3  1     B is the most recently used one, C the next victim
//! hit D   3  1  3  0     younger ones than D get older
//! ```
//!
//! Invariant: the ages of a set are 0 to its ways - 1, each of them once.

use memtide_core::machine;
use memtide_lab_model::Victim;
use wide::{u8x16, u32x8};

/// Maximum ways: the bytes of a vector.
const WAYS: usize = 16;

/// Ways compared at once.
const LANES: usize = 8;

const DIRTY: u32 = 1;

/// A set-associative cache; lines are identified by number.
#[derive(Clone, Debug)]
pub struct First {
    ways: u8,
    /// `log2` of the number of sets.
    shift: u32,
    sets: Box<[Set]>,
}

#[derive(Clone, Copy, Debug)]
struct Set {
    /// By way: `(tag + 1) << 1 | dirty`, 0 if empty.
    slots: [u32; WAYS],
    /// By way; [`UNUSED`] if the cache has fewer.
    ages: u8x16,
}

const UNUSED: u8 = u8::MAX;

impl First {
    /// An empty cache; `None` if it has more ways than 16, or a number of sets that is no power of two.
    pub fn new(cache: &machine::Cache) -> Option<First> {
        const LINES_OF_KIB: u64 = 1024 / memtide_core::LINE_BYTES;
        let sets = cache.capacity_kib * LINES_OF_KIB / u64::from(cache.ways);
        if usize::from(cache.ways) > WAYS || !sets.is_power_of_two() {
            return None;
        }
        let ways = cache.ways as u8;
        let ages = std::array::from_fn(|way| if way < ways.into() { way as u8 } else { UNUSED });
        let sets = vec![Set { slots: [0; WAYS], ages: u8x16::new(ages) }; sets as usize];
        Some(First { ways, shift: sets.len().trailing_zeros(), sets: sets.into() })
    }

    /// Looks a line up for a load or store: a hit makes it the most recently used one and, for a store,
    /// dirty. A miss changes nothing.
    #[inline(always)]
    pub fn touch(&mut self, line: u64, write: bool) -> bool {
        let (wide, key) = (usize::from(self.ways) > LANES, self.key(line));
        let set = self.set(line);
        let Some(way) = set.find(key, wide) else { return false };
        if write {
            set.slots[way] |= DIRTY;
        }
        set.refresh(set.ages.as_array()[way]);
        true
    }

    /// Inserts a missing line as the most recently used one; returns the evicted one.
    pub fn fill(&mut self, line: u64, write: bool) -> Option<Victim> {
        let (oldest, key, shift) = (self.ways - 1, self.key(line), self.shift);
        let set = self.set(line);
        let way = set.aged(oldest);
        let old = std::mem::replace(&mut set.slots[way], key | u32::from(write));
        set.refresh(oldest);
        let number = line & ((1 << shift) - 1);
        let evicted = || u64::from((old >> 1) - 1) << shift | number;
        (old != 0).then(|| Victim { line: evicted(), dirty: old & DIRTY != 0 })
    }

    /// Drops a line, whose way is the next to be filled.
    pub fn evict(&mut self, line: u64) {
        let (oldest, key) = (self.ways - 1, self.key(line));
        let set = self.set(line);
        let Some(way) = set.find(key, true) else { return };
        set.slots[way] = 0;
        let ages = set.ages.as_mut_array();
        let age = ages[way];
        ages.iter_mut().filter(|other| (age + 1..=oldest).contains(other)).for_each(|other| *other -= 1);
        ages[way] = oldest;
    }

    #[inline(always)]
    fn key(&self, line: u64) -> u32 {
        ((line >> self.shift) as u32 + 1) << 1
    }

    #[inline(always)]
    fn set(&mut self, line: u64) -> &mut Set {
        let number = line as usize & (self.sets.len() - 1);
        &mut self.sets[number]
    }
}

impl Set {
    /// The way that has a line; only the first [`LANES`] are searched unless `wide`.
    #[inline(always)]
    fn find(&self, key: u32, wide: bool) -> Option<usize> {
        let (first, second) = self.slots.split_at(LANES);
        let equal = |slots: &[u32]| {
            let slots = u32x8::new(slots.try_into().expect("half a set"));
            (slots & u32x8::splat(!DIRTY)).simd_eq(u32x8::splat(key)).to_bitmask()
        };
        let found = equal(first) | if wide { equal(second) << LANES } else { 0 };
        (found != 0).then(|| found.trailing_zeros() as usize % WAYS)
    }

    /// Makes the way of this age the youngest.
    #[inline(always)]
    fn refresh(&mut self, age: u8) {
        let (ages, age) = (self.ages, u8x16::splat(age));
        let younger = !ages.max(age).simd_eq(ages);
        // A mask is -1.
        self.ages = (ages - younger) & !ages.simd_eq(age);
    }

    /// The way of this age.
    #[inline(always)]
    fn aged(&self, age: u8) -> usize {
        self.ages.simd_eq(u8x16::splat(age)).to_bitmask().trailing_zeros() as usize % WAYS
    }
}

/// A private cache.
#[cfg(test)]
pub fn geometry(capacity_kib: u64, ways: u16) -> machine::Cache {
    let name = "L1d".to_owned();
    machine::Cache { name, capacity_kib, ways, latency_cycles: 4.0, shared_by: 1, slice: false }
}

#[cfg(test)]
mod tests {
    use memtide_lab_model::{Cache, CacheAccess};

    use super::*;

    #[test]
    fn accesses_hit_and_evict_as_in_model() {
        for (capacity_kib, ways) in [(1, 1), (1, 2), (2, 8), (3, 12), (4, 16), (32, 8)] {
            let mut first = First::new(&geometry(capacity_kib, ways)).expect("a cache");
            let mut model = Cache::new(capacity_kib, ways);
            let mut state = 88_172_645_463_325_252_u64;
            for _ in 0..20_000 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let line = (state >> 40) % (capacity_kib * 24);
                match state >> 33 & 15 {
                    0 => {
                        first.evict(line);
                        model.evict(line);
                    }
                    kind => {
                        let write = kind < 4;
                        let hit = first.touch(line, write);
                        let access =
                            if hit { CacheAccess::Hit } else { CacheAccess::Miss(first.fill(line, write)) };
                        assert_eq!(access, model.access(line, write), "{capacity_kib} KiB, {ways} ways");
                    }
                }
            }
        }
    }

    #[test]
    fn other_geometries_are_left_to_model() {
        assert!(First::new(&geometry(48, 8)).is_none());
        assert!(First::new(&geometry(32, 32)).is_none());
    }
}

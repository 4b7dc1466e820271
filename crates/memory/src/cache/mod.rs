//! One instance of a cache level.

mod partition;

use memtide_core::LINE_BYTES;
use wide::u32x8;

/// A set-associative, write-back, write-allocate cache with exact least-recently-used replacement. Lines are
/// identified by number: physical address / 64.
///
/// A set is contiguous, most recently used line first, four bytes per line, in whole `Lanes`: a set of eight
/// ways is searched and moved at once, without a branch, and fits into one cache line of the host.
#[derive(Clone, Debug)]
pub struct Cache {
    ways: usize,
    lanes_of_set: usize,
    sets: u64,
    /// `log2(sets)` if integral, which avoids divisions.
    shift: Option<u32>,
    lanes: Vec<Lanes>,
}

/// Slots of a set: `(tag + 1) << 1 | dirty`, 0 if empty.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Lanes([u32; LANES]);

const LANES: usize = 8;

/// Maximum associativity; the ways that match a line are bits of an integer.
const MAX_WAYS: usize = u64::BITS as usize;

/// Result of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Hit.
    Hit,
    /// Miss: the line was inserted, and evicted another one if the set was full.
    Miss(Option<Victim>),
}

/// An evicted line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Victim {
    /// Its number.
    pub line: u64,
    /// Whether it is dirty and must be written to the next level.
    pub dirty: bool,
}

const DIRTY: u32 = 1;

/// Number of tags that fit into a slot.
const TAGS: u64 = (1 << 31) - 1;

/// Number of sets.
pub(crate) fn sets(capacity_kib: u64, ways: u16) -> u64 {
    (capacity_kib * 1024 / LINE_BYTES / u64::from(ways)).max(1)
}

impl Cache {
    /// An empty cache; the line count of `capacity_kib` is a multiple of `ways`, which is at most 64.
    ///
    /// # Panics
    /// If `ways` is larger, which checked machines exclude.
    pub fn new(capacity_kib: u64, ways: u16) -> Cache {
        assert!(usize::from(ways) <= MAX_WAYS, "a cache of {ways} ways");
        let sets = sets(capacity_kib, ways);
        let shift = sets.is_power_of_two().then(|| sets.trailing_zeros());
        let lanes_of_set = usize::from(ways).div_ceil(LANES);
        let lanes = vec![Lanes([0; LANES]); sets as usize * lanes_of_set];
        Cache { ways: ways.into(), lanes_of_set, sets, shift, lanes }
    }

    /// The first line number that does not fit into a slot of such a cache.
    pub fn line_limit(capacity_kib: u64, ways: u16) -> u64 {
        sets(capacity_kib, ways) * TAGS
    }

    /// A load or store: inserts the line if missing, and makes it the most recently used one and, for a
    /// store, dirty.
    #[inline]
    pub fn access(&mut self, line: u64, write: bool) -> Access {
        let (set, key) = self.place(line);
        let ways = self.ways;
        let lanes = self.lanes_mut(set);
        if touch(lanes, key, write) {
            return Access::Hit;
        }
        let old = replace_last(lanes, ways, key | u32::from(write));
        Access::Miss(self.victim(set, old))
    }

    /// Looks a line up for a load or store: a hit makes it the most recently used one and, for a store,
    /// dirty. A miss changes nothing.
    #[inline]
    pub fn touch(&mut self, line: u64, write: bool) -> bool {
        let (set, key) = self.place(line);
        touch(self.lanes_mut(set), key, write)
    }

    /// Inserts a missing line as the most recently used one; returns the evicted one.
    #[inline]
    pub fn fill(&mut self, line: u64, dirty: bool) -> Option<Victim> {
        let (set, key) = self.place(line);
        let ways = self.ways;
        let old = replace_last(self.lanes_mut(set), ways, key | u32::from(dirty));
        self.victim(set, old)
    }

    /// Inserts a dirty line evicted from the previous level; if present, it becomes dirty without a change of
    /// order.
    #[inline]
    pub fn write_back(&mut self, line: u64) -> Option<Victim> {
        let (set, key) = self.place(line);
        let ways = self.ways;
        let lanes = self.lanes_mut(set);
        if let Some(way) = find(lanes, key) {
            lanes[way / LANES].0[way % LANES] |= DIRTY;
            return None;
        }
        let old = replace_last(lanes, ways, key | DIRTY);
        self.victim(set, old)
    }

    /// Drops a line, whether dirty or not; returns whether the cache contained it.
    pub fn evict(&mut self, line: u64) -> bool {
        let (set, key) = self.place(line);
        let lanes = self.lanes_mut(set);
        let Some(way) = find(lanes, key) else { return false };
        let slots = lanes.len() * LANES;
        for at in way..slots {
            let next = if at + 1 < slots { slot(lanes, at + 1) } else { 0 };
            lanes[at / LANES].0[at % LANES] = next;
        }
        true
    }

    /// Prefetches the host memory that a lookup of this line will read.
    #[inline]
    pub fn warm(&self, line: u64) {
        let (set, _) = self.place(line);
        prefetch_index::prefetch_index(&self.lanes, set * self.lanes_of_set);
        prefetch_index::prefetch_index(&self.lanes, (set + 1) * self.lanes_of_set - 1);
    }

    /// Whether the cache contains a line; changes nothing.
    #[inline]
    pub fn holds(&self, line: u64) -> bool {
        let (set, key) = self.place(line);
        find(&self.lanes[set * self.lanes_of_set..][..self.lanes_of_set], key).is_some()
    }

    #[inline]
    fn place(&self, line: u64) -> (usize, u32) {
        let (set, tag) = match self.shift {
            Some(shift) => (line & (self.sets - 1), line >> shift),
            None => (line % self.sets, line / self.sets),
        };
        debug_assert!(tag < TAGS);
        (set as usize, ((tag as u32) + 1) << 1)
    }

    #[inline]
    fn lanes_mut(&mut self, set: usize) -> &mut [Lanes] {
        &mut self.lanes[set * self.lanes_of_set..][..self.lanes_of_set]
    }

    /// The line in an evicted slot.
    #[inline]
    fn victim(&self, set: usize, slot: u32) -> Option<Victim> {
        let line = || u64::from((slot >> 1) - 1) * self.sets + set as u64;
        (slot != 0).then(|| Victim { line: line(), dirty: slot & DIRTY != 0 })
    }
}

/// Inserts a slot at the front of a set of `ways`; the last one is evicted.
#[inline]
fn replace_last(set: &mut [Lanes], ways: usize, new: u32) -> u32 {
    let mut old = new;
    for lanes in &mut set[..ways / LANES] {
        old = lanes.push(old);
    }
    if !ways.is_multiple_of(LANES) {
        let last = ways % LANES - 1;
        let rest = &mut set[ways / LANES];
        let pushed = std::mem::replace(&mut old, rest.0[last]);
        rest.push_up_to(pushed, last);
    }
    old
}

/// Makes a line the most recently used one of its set and, for a store, dirty; returns whether the set
/// contains it.
#[inline]
fn touch(set: &mut [Lanes], key: u32, write: bool) -> bool {
    let first = &mut set[0].0[0];
    if *first & !DIRTY == key {
        *first |= u32::from(write);
        return true;
    }
    let Some(way) = find(set, key) else { return false };
    put_first(set, way, slot(set, way) | u32::from(write));
    true
}

/// The way of a set that contains a line.
#[inline]
fn find(set: &[Lanes], key: u32) -> Option<usize> {
    let key = u32x8::splat(key);
    let found = set.iter().rev().fold(0u64, |found, lanes| found << LANES | u64::from(lanes.equal(key)));
    (found != 0).then(|| found.trailing_zeros() as usize)
}

#[inline]
fn slot(set: &[Lanes], way: usize) -> u32 {
    set[way / LANES].0[way % LANES]
}

/// Moves a slot from `way` to the front of a set; those before it move back by one.
#[inline]
fn put_first(set: &mut [Lanes], way: usize, slot: u32) {
    let mut slot = slot;
    for lanes in &mut set[..way / LANES] {
        slot = lanes.push(slot);
    }
    set[way / LANES].push_up_to(slot, way % LANES);
}

/// Slice from `LANES - 1 - lane` on: ones up to that lane, zeros after it.
static UP_TO: [u32; 2 * LANES] = {
    let mut mask = [0; 2 * LANES];
    let (ones, _) = mask.split_at_mut(LANES);
    let mut at = 0;
    while at < LANES {
        ones[at] = u32::MAX;
        at += 1;
    }
    mask
};

impl Lanes {
    /// The slots equal to a key, as bits.
    #[inline]
    fn equal(&self, key: u32x8) -> u32 {
        (u32x8::new(self.0) & u32x8::splat(!DIRTY)).simd_eq(key).to_bitmask()
    }

    /// Inserts a slot at the front; the others move back by one, and the last is returned.
    #[inline]
    fn push(&mut self, slot: u32) -> u32 {
        let [a, b, c, d, e, f, g, h] = self.0;
        self.0 = [slot, a, b, c, d, e, f, g];
        h
    }

    /// Inserts a slot at the front; those before `lane` move back by one and replace it.
    #[inline]
    fn push_up_to(&mut self, slot: u32, lane: usize) {
        let (old, mask) = (self.0, &UP_TO[LANES - 1 - lane..][..LANES]);
        self.push(slot);
        for at in 0..LANES {
            self.0[at] = self.0[at] & mask[at] | old[at] & !mask[at];
        }
    }
}

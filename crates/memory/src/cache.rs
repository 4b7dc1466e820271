//! One instance of a cache level.

use memtide_core::LINE_BYTES;
use wide::u32x8;

/// A set-associative, write-back, write-allocate cache with exact least-recently-used replacement. Lines are
/// named by their number: physical address / 64.
///
/// A set lies in one run of memory, most recently used line first, four bytes a line, in whole `Lanes`: those
/// of a set of eight ways are searched and moved at once, without a branch, and lie in one line of the host's
/// cache.
#[derive(Clone, Debug)]
pub struct Cache {
    ways: usize,
    lanes_of_set: usize,
    sets: u64,
    /// `log2(sets)` if that is whole, so that no division is needed.
    shift: Option<u32>,
    lanes: Vec<Lanes>,
}

/// Slots of a set: `(tag + 1) << 1 | dirty`, 0 where nothing is held.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Lanes([u32; LANES]);

const LANES: usize = 8;

/// Ways that a machine's caches have at most; those that hold a line are found as bits of a number.
const MAX_WAYS: usize = u64::BITS as usize;

/// What an access found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The line was held.
    Hit,
    /// It was not, but is now; what it displaced has left.
    Miss(Option<Victim>),
}

/// A line that had to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Victim {
    /// Its number.
    pub line: u64,
    /// It was written and must go to the next level.
    pub dirty: bool,
}

const DIRTY: u32 = 1;

/// Tags that a slot can hold.
const TAGS: u64 = (1 << 31) - 1;

fn sets(capacity_kib: u64, ways: u16) -> u64 {
    (capacity_kib * 1024 / LINE_BYTES / u64::from(ways)).max(1)
}

impl Cache {
    /// An empty cache; the line count of `capacity_kib` is a multiple of `ways`, of which there are at most 64.
    ///
    /// # Panics
    /// If there are more ways; a checked machine's caches have no more.
    pub fn new(capacity_kib: u64, ways: u16) -> Cache {
        assert!(usize::from(ways) <= MAX_WAYS, "a cache of {ways} ways");
        let sets = sets(capacity_kib, ways);
        let shift = sets.is_power_of_two().then(|| sets.trailing_zeros());
        let lanes_of_set = usize::from(ways).div_ceil(LANES);
        let lanes = vec![Lanes([0; LANES]); sets as usize * lanes_of_set];
        Cache { ways: ways.into(), lanes_of_set, sets, shift, lanes }
    }

    /// The first line number that such a cache cannot represent.
    pub fn line_limit(capacity_kib: u64, ways: u16) -> u64 {
        sets(capacity_kib, ways) * TAGS
    }

    /// A load or store: the line, put in if it was not held, becomes the most recently used and, for a store,
    /// dirty.
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

    /// Looks a line up as a load or store does: a hit becomes the most recently used and, for a store, dirty.
    /// A miss changes nothing.
    #[inline]
    pub fn touch(&mut self, line: u64, write: bool) -> bool {
        let (set, key) = self.place(line);
        touch(self.lanes_mut(set), key, write)
    }

    /// Puts a line that is not held in front; what it displaces leaves.
    #[inline]
    pub fn fill(&mut self, line: u64, dirty: bool) -> Option<Victim> {
        let (set, key) = self.place(line);
        let ways = self.ways;
        let old = replace_last(self.lanes_mut(set), ways, key | u32::from(dirty));
        self.victim(set, old)
    }

    /// Takes a dirty line from the level before: a held line becomes dirty where it stands, another one is
    /// put in.
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

    /// Brings the host's own cache the memory that a look-up of this line will read, ahead of time.
    #[inline]
    pub fn warm(&self, line: u64) {
        let (set, _) = self.place(line);
        prefetch_index::prefetch_index(&self.lanes, set * self.lanes_of_set);
        prefetch_index::prefetch_index(&self.lanes, (set + 1) * self.lanes_of_set - 1);
    }

    /// Whether a line is held; changes nothing.
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

    /// What a slot that had to leave a set held.
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

/// Makes a line the most recently used of its set and, for a store, dirty; says whether the set holds it.
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

/// The way of a set that holds a line.
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

/// Puts a slot in front of a set; those before `way`, which it comes from, move up by one.
#[inline]
fn put_first(set: &mut [Lanes], way: usize, slot: u32) {
    let mut slot = slot;
    for lanes in &mut set[..way / LANES] {
        slot = lanes.push(slot);
    }
    set[way / LANES].push_up_to(slot, way % LANES);
}

/// From `LANES - 1 - lane` on: ones up to a lane, zeros beyond it.
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
    /// The slots that hold a key, as bits.
    #[inline]
    fn equal(&self, key: u32x8) -> u32 {
        (u32x8::new(self.0) & u32x8::splat(!DIRTY)).simd_eq(key).to_bitmask()
    }

    /// Puts a slot in front; the others move up by one, and the last is handed out.
    #[inline]
    fn push(&mut self, slot: u32) -> u32 {
        let [a, b, c, d, e, f, g, h] = self.0;
        self.0 = [slot, a, b, c, d, e, f, g];
        h
    }

    /// Puts a slot in front; those before `lane` move up by one, and the one there is lost.
    #[inline]
    fn push_up_to(&mut self, slot: u32, lane: usize) {
        let (old, mask) = (self.0, &UP_TO[LANES - 1 - lane..][..LANES]);
        self.push(slot);
        for at in 0..LANES {
            self.0[at] = self.0[at] & mask[at] | old[at] & !mask[at];
        }
    }
}

//! One instance of a cache level.

use memtide_core::LINE_BYTES;

/// A set-associative, write-back, write-allocate cache with exact least-recently-used replacement. Lines are named by
/// their number: physical address / 64.
///
/// A set lies in one run of memory, most recently used line first, four bytes a line: a hit near the front, the common
/// case, reads one host cache line and moves a few words.
#[derive(Clone, Debug)]
pub struct Cache {
    ways: usize,
    sets: u64,
    /// `log2(sets)` if that is whole, so that no division is needed.
    shift: Option<u32>,
    /// `(tag + 1) << 1 | dirty`, 0 where nothing is held.
    slots: Vec<u32>,
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
    /// An empty cache; the line count of `capacity_kib` is a multiple of `ways`.
    pub fn new(capacity_kib: u64, ways: u16) -> Cache {
        let sets = sets(capacity_kib, ways);
        let shift = sets.is_power_of_two().then(|| sets.trailing_zeros());
        Cache { ways: ways.into(), sets, shift, slots: vec![0; (sets * u64::from(ways)) as usize] }
    }

    /// The first line number that such a cache cannot tell from others.
    pub fn line_limit(capacity_kib: u64, ways: u16) -> u64 {
        sets(capacity_kib, ways) * TAGS
    }

    /// Looks a line up as a load or store does: a hit becomes the most recently used and, for a store, dirty. A miss
    /// changes nothing.
    #[inline]
    pub fn touch(&mut self, line: u64, write: bool) -> bool {
        let (start, key) = self.place(line);
        let set = &mut self.slots[start..start + self.ways];
        let Some(way) = find(set, key) else { return false };
        let slot = set[way] | u32::from(write);
        set.copy_within(..way, 1);
        set[0] = slot;
        true
    }

    /// Puts a line that is not held in front; what it displaces leaves.
    #[inline]
    pub fn fill(&mut self, line: u64, dirty: bool) -> Option<Victim> {
        let (start, key) = self.place(line);
        let set = &mut self.slots[start..start + self.ways];
        let last = set[set.len() - 1];
        set.copy_within(..set.len() - 1, 1);
        set[0] = key | u32::from(dirty);
        (last != 0).then(|| Victim { line: self.line_of(last, start), dirty: last & DIRTY != 0 })
    }

    /// Takes a dirty line from the level before: a held line becomes dirty where it stands, another one is put in.
    #[inline]
    pub fn write_back(&mut self, line: u64) -> Option<Victim> {
        let (start, key) = self.place(line);
        let set = &mut self.slots[start..start + self.ways];
        match find(set, key) {
            Some(way) => {
                set[way] |= DIRTY;
                None
            }
            None => self.fill(line, true),
        }
    }

    /// Brings the host's own cache the memory that a look-up of this line will read, ahead of time.
    #[inline]
    pub fn warm(&self, line: u64) {
        let (start, _) = self.place(line);
        prefetch_index::prefetch_index(&self.slots, start);
        prefetch_index::prefetch_index(&self.slots, start + self.ways - 1);
    }

    /// Whether a line is held; changes nothing.
    #[inline]
    pub fn holds(&self, line: u64) -> bool {
        let (start, key) = self.place(line);
        find(&self.slots[start..start + self.ways], key).is_some()
    }

    #[inline]
    fn place(&self, line: u64) -> (usize, u32) {
        let (set, tag) = match self.shift {
            Some(shift) => (line & (self.sets - 1), line >> shift),
            None => (line % self.sets, line / self.sets),
        };
        debug_assert!(tag < TAGS);
        (set as usize * self.ways, ((tag as u32) + 1) << 1)
    }

    fn line_of(&self, slot: u32, start: usize) -> u64 {
        u64::from((slot >> 1) - 1) * self.sets + (start / self.ways) as u64
    }
}

/// The way that holds a line. The most recently used one is tried first; whether any holds it is found without a branch
/// a way.
#[inline]
fn find(set: &[u32], key: u32) -> Option<usize> {
    if set[0] & !DIRTY == key {
        return Some(0);
    }
    let held = set.iter().fold(false, |held, &slot| held | (slot & !DIRTY == key));
    if held { set.iter().position(|&slot| slot & !DIRTY == key) } else { None }
}

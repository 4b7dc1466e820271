//! A core's translation look-aside buffers.

use std::num::NonZeroU64;

use memtide_core::Time;
use memtide_core::machine;

/// A translation: a page of an address space and its frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Translation {
    /// First base frame of the page.
    pub frame: u32,
    /// Whether the dirty bit is already set, so that a store need not set it.
    pub dirty: bool,
}

/// Key of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageKey(NonZeroU64);

impl PageKey {
    /// The page number `page` (in units of its own size) of address space `space`.
    #[inline]
    pub fn new(space: u32, page: u64, huge: bool) -> PageKey {
        let bits = 1 << 63 | u64::from(space) << 41 | (page & ((1 << 40) - 1)) << 1 | u64::from(huge);
        PageKey(NonZeroU64::new(bits).expect("its highest bit is set"))
    }

    /// Its number, in units of its own size.
    #[inline]
    pub fn page(self) -> u64 {
        (self.0.get() >> 1) & ((1 << 40) - 1)
    }

    /// Whether it is a huge page.
    #[inline]
    pub fn is_huge(self) -> bool {
        self.0.get() & 1 == 1
    }

    /// The line of page tables with this page's entry, below `lines`, with `entries` in each. The tables of
    /// each address space and page size begin elsewhere.
    pub(crate) fn table_line(self, entries: u64, lines: u64) -> u64 {
        let key = self.0.get();
        let table = (key >> 41) << 1 | key & 1;
        (self.page() / entries).wrapping_add(table.wrapping_mul(TABLES_APART)) % lines
    }
}

/// Distance of two tables' first lines: odd and large, so that tables of neighbouring spaces do not overlap.
const TABLES_APART: u64 = 0x9E37_79B9_7F4A_7C15;

/// A core's TLB levels: each set-associative with exact least-recently-used replacement. A hit in an outer
/// level also fills the inner ones; a walk fills all.
#[derive(Clone, Debug)]
pub struct Tlb {
    levels: Vec<Level>,
}

/// Sets are contiguous. Each is a ring with the most recently used way at its head: a new entry goes in front
/// of the head and moves no other.
#[derive(Clone, Debug)]
struct Level {
    ways: usize,
    sets: u64,
    /// `sets - 1` if that masks a set's bits in a page number.
    mask: Option<u64>,
    latency: Time,
    entries: Vec<Entry>,
    /// The most recently used way of each set.
    heads: Vec<u16>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    key: Option<PageKey>,
    /// The frame, and [`DIRTY`].
    value: u64,
}

const DIRTY: u64 = 1 << 32;

impl Entry {
    #[inline]
    fn new(key: PageKey, translation: Translation) -> Entry {
        let dirty = if translation.dirty { DIRTY } else { 0 };
        Entry { key: Some(key), value: u64::from(translation.frame) | dirty }
    }

    #[inline]
    fn translation(self) -> Translation {
        Translation { frame: self.value as u32, dirty: self.value & DIRTY != 0 }
    }
}

impl Tlb {
    /// Empty TLBs of a machine.
    pub fn new(machine: &machine::Machine) -> Tlb {
        let levels = machine.tlbs.iter().map(|tlb| {
            let sets = (tlb.entries / u32::from(tlb.ways)).max(1);
            let entries = sets as usize * usize::from(tlb.ways);
            Level {
                ways: tlb.ways.into(),
                sets: sets.into(),
                mask: sets.is_power_of_two().then(|| u64::from(sets) - 1),
                latency: machine.core.cycles(tlb.latency_cycles),
                entries: vec![Entry::default(); entries],
                heads: vec![0; sets as usize],
            }
        });
        Tlb { levels: levels.collect() }
    }

    /// Number of levels; 0 if translation is free.
    pub fn levels(&self) -> usize {
        self.levels.len()
    }

    /// Looks a page up; on a hit returns the translation and its latency beyond a first-level hit.
    #[inline]
    pub fn lookup(&mut self, key: PageKey) -> Option<(Translation, Time)> {
        for index in 0..self.levels.len() {
            if let Some(entry) = self.levels[index].touch(key) {
                for inner in &mut self.levels[..index] {
                    inner.replace_oldest(key, entry);
                }
                return Some((entry.translation(), self.levels[index].latency));
            }
        }
        None
    }

    /// Inserts the result of a walk, after a miss in [`Tlb::lookup`].
    pub fn fill(&mut self, key: PageKey, translation: Translation) {
        let entry = Entry::new(key, translation);
        for level in &mut self.levels {
            level.replace_oldest(key, entry);
        }
    }

    /// Sets the page's dirty flag in every level.
    pub fn set_dirty(&mut self, key: PageKey) {
        for level in &mut self.levels {
            let set = level.set(key);
            if let Some(way) = level.find(set, key) {
                level.ways_of(set)[way].value |= DIRTY;
            }
        }
    }

    /// Drops one page.
    pub fn invalidate(&mut self, key: PageKey) {
        for level in &mut self.levels {
            let set = level.set(key);
            if let Some(way) = level.find(set, key) {
                level.empty(set, way);
            }
        }
    }

    /// Drops everything.
    pub fn flush(&mut self) {
        for level in &mut self.levels {
            level.entries.fill(Entry::default());
        }
    }
}

impl Level {
    #[inline]
    fn set(&self, key: PageKey) -> usize {
        let page = key.page();
        let set = match self.mask {
            Some(mask) => page & mask,
            None => page % self.sets,
        };
        set as usize
    }

    #[inline]
    fn ways_of(&mut self, set: usize) -> &mut [Entry] {
        &mut self.entries[set * self.ways..][..self.ways]
    }

    #[inline]
    fn find(&self, set: usize, key: PageKey) -> Option<usize> {
        let entries = &self.entries[set * self.ways..][..self.ways];
        entries.iter().position(|entry| entry.key == Some(key))
    }

    /// Looks a page up, and makes it the most recently used one.
    #[inline]
    fn touch(&mut self, key: PageKey) -> Option<Entry> {
        let set = self.set(key);
        let mut way = self.find(set, key)?;
        let head = usize::from(self.heads[set]);
        let entries = self.ways_of(set);
        let entry = entries[way];
        while way != head {
            let before = way.checked_sub(1).unwrap_or(entries.len() - 1);
            entries[way] = entries[before];
            way = before;
        }
        entries[head] = entry;
        Some(entry)
    }

    /// Replaces the least recently used entry.
    #[inline]
    fn replace_oldest(&mut self, key: PageKey, entry: Entry) {
        let set = self.set(key);
        let head = &mut self.heads[set];
        *head = head.checked_sub(1).unwrap_or(self.ways as u16 - 1);
        self.entries[set * self.ways + usize::from(*head)] = entry;
    }

    /// Empties a way, which is the next to be filled.
    fn empty(&mut self, set: usize, way: usize) {
        let (mut way, head) = (way, usize::from(self.heads[set]));
        let entries = self.ways_of(set);
        loop {
            let after = if way + 1 == entries.len() { 0 } else { way + 1 };
            if after == head {
                break;
            }
            entries[way] = entries[after];
            way = after;
        }
        entries[way] = Entry::default();
    }
}

//! A core's translation look-aside buffers.

use memtide_core::Time;
use memtide_core::machine;

/// A translation: a page of one address space and the frame it lies in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Translation {
    /// First base frame of the page.
    pub frame: u32,
    /// A store through it need not set the dirty bit any more.
    pub dirty: bool,
}

/// What a page is looked up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageKey(u64);

impl PageKey {
    /// The page number `page` (in units of its own size) of address space `space`.
    #[inline]
    pub fn new(space: u32, page: u64, huge: bool) -> PageKey {
        PageKey(1 << 63 | u64::from(space) << 41 | (page & ((1 << 40) - 1)) << 1 | u64::from(huge))
    }

    fn page(self) -> u64 {
        (self.0 >> 1) & ((1 << 40) - 1)
    }
}

/// A core's TLB levels: each set-associative with exact least-recently-used replacement. A hit in an outer level also
/// fills the ones before it; a walk fills all.
#[derive(Clone, Debug)]
pub struct Tlb {
    levels: Vec<Level>,
    walk: Time,
}

/// Sets lie one after the other, the most recently used way first.
#[derive(Clone, Debug)]
struct Level {
    ways: usize,
    sets: u64,
    /// `sets - 1` if that picks a set's bits out of a page number.
    mask: Option<u64>,
    latency: Time,
    /// 0 where nothing is held.
    keys: Vec<u64>,
    translations: Vec<Translation>,
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
                keys: vec![0; entries],
                translations: vec![Translation::default(); entries],
            }
        });
        let walk = machine.tlbs.last().map_or(0.0, |tlb| tlb.walk_cycles);
        Tlb { levels: levels.collect(), walk: machine.core.cycles(walk) }
    }

    /// How many levels there are; none if translation is free.
    pub fn levels(&self) -> usize {
        self.levels.len()
    }

    /// Time of a page walk.
    pub fn walk(&self) -> Time {
        self.walk
    }

    /// Looks a page up; gives what the access waits for, beside a hit in the first level.
    #[inline]
    pub fn lookup(&mut self, key: PageKey) -> Option<(Translation, Time)> {
        for index in 0..self.levels.len() {
            if let Some(translation) = self.levels[index].touch(key) {
                for inner in &mut self.levels[..index] {
                    inner.replace_oldest(key, translation);
                }
                return Some((translation, self.levels[index].latency));
            }
        }
        None
    }

    /// Takes in what a walk found, after [`Tlb::lookup`] did not find it.
    pub fn fill(&mut self, key: PageKey, translation: Translation) {
        for level in &mut self.levels {
            level.replace_oldest(key, translation);
        }
    }

    /// Notes in every level that the page's dirty bit is set.
    pub fn set_dirty(&mut self, key: PageKey) {
        for level in &mut self.levels {
            if let Some(at) = level.find(key) {
                level.translations[at].dirty = true;
            }
        }
    }

    /// Drops one page.
    pub fn invalidate(&mut self, key: PageKey) {
        for level in &mut self.levels {
            if let Some(at) = level.find(key) {
                level.drop_at(at, level.start(key) + level.ways);
            }
        }
    }

    /// Drops everything.
    pub fn flush(&mut self) {
        for level in &mut self.levels {
            level.keys.fill(0);
        }
    }
}

impl Level {
    #[inline]
    fn start(&self, key: PageKey) -> usize {
        let set = match self.mask {
            Some(mask) => key.page() & mask,
            None => key.page() % self.sets,
        };
        set as usize * self.ways
    }

    #[inline]
    fn find(&self, key: PageKey) -> Option<usize> {
        let start = self.start(key);
        self.keys[start..start + self.ways].iter().position(|&other| other == key.0).map(|way| start + way)
    }

    #[inline]
    fn touch(&mut self, key: PageKey) -> Option<Translation> {
        let at = self.find(key)?;
        let translation = self.translations[at];
        self.put_first(self.start(key), at, key, translation);
        Some(translation)
    }

    /// The page, which is not held, takes the place of the least recently used one.
    fn replace_oldest(&mut self, key: PageKey, translation: Translation) {
        let start = self.start(key);
        self.put_first(start, start + self.ways - 1, key, translation);
    }

    /// Empties a way; it is the next to be filled.
    fn drop_at(&mut self, at: usize, end: usize) {
        self.keys[at] = 0;
        self.keys[at..end].rotate_left(1);
        self.translations[at..end].rotate_left(1);
    }

    fn put_first(&mut self, start: usize, from: usize, key: PageKey, translation: Translation) {
        self.keys.copy_within(start..from, start + 1);
        self.translations.copy_within(start..from, start + 1);
        self.keys[start] = key.0;
        self.translations[start] = translation;
    }
}

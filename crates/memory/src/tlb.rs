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

#[derive(Clone, Debug)]
struct Level {
    ways: usize,
    sets: u64,
    latency: Time,
    slots: Vec<Slot>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// 0 where nothing is held.
    key: u64,
    translation: Translation,
}

impl Tlb {
    /// Empty TLBs of a machine.
    pub fn new(machine: &machine::Machine) -> Tlb {
        let levels = machine.tlbs.iter().map(|tlb| {
            let sets = (tlb.entries / u32::from(tlb.ways)).max(1);
            Level {
                ways: tlb.ways.into(),
                sets: sets.into(),
                latency: machine.core.cycles(tlb.latency_cycles),
                slots: vec![Slot::default(); sets as usize * usize::from(tlb.ways)],
            }
        });
        let walk = machine.tlbs.last().map_or(0.0, |tlb| tlb.walk_cycles);
        Tlb { levels: levels.collect(), walk: machine.core.cycles(walk) }
    }

    /// Time of a page walk.
    pub fn walk(&self) -> Time {
        self.walk
    }

    /// Looks a page up; gives what the access waits for, beside a hit in the first level.
    #[inline]
    pub fn lookup(&mut self, key: PageKey) -> Option<(Translation, Time)> {
        for index in 0..self.levels.len() {
            if let Some(slot) = self.levels[index].touch(key) {
                for inner in &mut self.levels[..index] {
                    inner.fill(slot);
                }
                return Some((slot.translation, self.levels[index].latency));
            }
        }
        None
    }

    /// Takes in what a walk found.
    pub fn fill(&mut self, key: PageKey, translation: Translation) {
        for level in &mut self.levels {
            level.fill(Slot { key: key.0, translation });
        }
    }

    /// Notes in every level that the page's dirty bit is set.
    pub fn set_dirty(&mut self, key: PageKey) {
        for level in &mut self.levels {
            if let Some(slot) = level.set(key.page()).iter_mut().find(|slot| slot.key == key.0) {
                slot.translation.dirty = true;
            }
        }
    }

    /// Drops one page.
    pub fn invalidate(&mut self, key: PageKey) {
        for level in &mut self.levels {
            for slot in level.set(key.page()) {
                if slot.key == key.0 {
                    *slot = Slot::default();
                }
            }
        }
    }

    /// Drops everything.
    pub fn flush(&mut self) {
        for level in &mut self.levels {
            level.slots.fill(Slot::default());
        }
    }
}

impl Level {
    #[inline]
    fn set(&mut self, page: u64) -> &mut [Slot] {
        let set = if self.sets.is_power_of_two() { page & (self.sets - 1) } else { page % self.sets };
        let start = set as usize * self.ways;
        &mut self.slots[start..start + self.ways]
    }

    #[inline]
    fn touch(&mut self, key: PageKey) -> Option<Slot> {
        let set = self.set(key.page());
        let way = set.iter().position(|slot| slot.key == key.0)?;
        let slot = set[way];
        set.copy_within(..way, 1);
        set[0] = slot;
        Some(slot)
    }

    /// A page already held (it may be: its translation changed) is replaced where it stands.
    fn fill(&mut self, slot: Slot) {
        let set = self.set(PageKey(slot.key).page());
        let way = set.iter().position(|held| held.key == slot.key).unwrap_or(set.len() - 1);
        set.copy_within(..way, 1);
        set[0] = slot;
    }
}

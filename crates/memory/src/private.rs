//! Private cache levels of a core.

use memtide_core::Time;
use memtide_core::machine::Machine;

use crate::cache::{Access, Cache, Victim};

/// A core's private cache levels, neither inclusive nor exclusive: a miss fills every level on its path, and
/// an evicted dirty line goes to the next level.
#[derive(Clone, Debug)]
pub struct PrivateCaches {
    levels: Vec<Level>,
}

#[derive(Clone, Debug)]
struct Level {
    cache: Cache,
    latency: Time,
    hits: u64,
}

impl PrivateCaches {
    /// Empty caches of one core of the machine.
    pub fn new(machine: &Machine) -> PrivateCaches {
        let private = machine.caches.iter().filter(|c| !c.is_shared());
        let levels = private.map(|c| Level {
            cache: Cache::new(c.capacity_kib, c.ways),
            latency: machine.core.cycles(c.latency_cycles),
            hits: 0,
        });
        PrivateCaches { levels: levels.collect() }
    }

    /// A load or store of one line. Returns the load-to-use latency of a hit; `None` if no private level
    /// contained the line, which is then inserted into all. Dirty lines evicted from the last level are
    /// appended to `spilled`; without levels, every stored line is.
    #[inline]
    pub fn access(&mut self, line: u64, write: bool, spilled: &mut Vec<u64>) -> Option<Time> {
        if self.levels.is_empty() {
            spilled.extend(write.then_some(line));
        }
        self.reach(0, line, write, spilled)
    }

    /// Looks a line up from a level on, and inserts it into the levels that miss; returns the latency of the
    /// one that hits.
    #[inline]
    fn reach(&mut self, at: usize, line: u64, write: bool, spilled: &mut Vec<u64>) -> Option<Time> {
        let level = self.levels.get_mut(at)?;
        match level.cache.access(line, write) {
            Access::Hit => {
                level.hits += 1;
                Some(level.latency)
            }
            Access::Miss(victim) => self.miss(at, line, victim, spilled),
        }
    }

    /// A line was inserted into a level that missed; returns the latency of the next level that hits.
    fn miss(&mut self, at: usize, line: u64, victim: Option<Victim>, spilled: &mut Vec<u64>) -> Option<Time> {
        let latency = self.reach(at + 1, line, false, spilled);
        if let Some(victim) = victim.filter(|v| v.dirty) {
            self.write_back(at + 1, victim.line, spilled);
        }
        latency
    }

    fn write_back(&mut self, level: usize, line: u64, spilled: &mut Vec<u64>) {
        match self.levels.get_mut(level) {
            None => spilled.push(line),
            Some(next) => {
                if let Some(victim) = next.cache.write_back(line).filter(|v| v.dirty) {
                    self.write_back(level + 1, victim.line, spilled);
                }
            }
        }
    }

    /// Reads a line of a page table: returns whether a private level contained it, and inserts it into those
    /// that did not. Does not count as a hit of the program.
    pub(crate) fn read_table(&mut self, line: u64, spilled: &mut Vec<u64>) -> bool {
        for at in 0..self.levels.len() {
            match self.levels[at].cache.access(line, false) {
                Access::Hit => return true,
                Access::Miss(victim) => {
                    if let Some(victim) = victim.filter(|v| v.dirty) {
                        self.write_back(at + 1, victim.line, spilled);
                    }
                }
            }
        }
        false
    }

    /// Drops a line from every level, without a write-back: the caller writes the line.
    pub fn evict(&mut self, line: u64) {
        for level in &mut self.levels {
            level.cache.evict(line);
        }
    }

    /// Takes the first level out, for a caller that looks lines up there itself; `None` if there is no level.
    /// These are the other levels from then on.
    pub fn take_first(&mut self) -> Option<Cache> {
        (!self.levels.is_empty()).then(|| self.levels.remove(0).cache)
    }

    /// As [`PrivateCaches::access`], for a line that missed the level taken out, which replaced `victim` by
    /// it.
    #[inline]
    pub fn missed_first(
        &mut self,
        line: u64,
        victim: Option<Victim>,
        spilled: &mut Vec<u64>,
    ) -> Option<Time> {
        let latency = self.reach(0, line, false, spilled);
        if let Some(victim) = victim.filter(|v| v.dirty) {
            self.write_back(0, victim.line, spilled);
        }
        latency
    }

    /// Hits of each level so far, nearest to the core first.
    pub fn hits(&self) -> impl Iterator<Item = u64> + '_ {
        self.levels.iter().map(|level| level.hits)
    }
}

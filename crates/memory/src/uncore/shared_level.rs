//! A shared cache level, and who fills which of its ways.
//!
//! A cache of the level whose ways are partitioned is several caches of the same sets:
//!
//! ```text
//! cache 0, 16 ways   class 3: 10 ways | class 4: 5 ways | others: 1 way
//! CPU                1                | 2, 3           | 0
//! ```
//!
//! Invariant: the ways of a cache's parts sum to its associativity. A class finds no lines of another's part,
//! unlike in hardware, where only fills are limited: programs share no memory.

use std::num::NonZeroU16;

use memtide_core::machine::{self, Machine};
use memtide_core::{CacheId, CpuId, Time};

use crate::cache::{Cache, Victim};

/// Class of service: what a cache tells apart of the programs that fill it (Intel's CAT).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Class(pub u32);

/// All caches of a shared level.
#[derive(Clone)]
pub(super) struct SharedLevel {
    pub latency: Time,
    shared_by: u16,
    ways: u16,
    /// What each cache has for classes without a part of their own, then the parts.
    caches: Vec<Cache>,
    parts: Vec<Part>,
    /// Index in `caches` of what each CPU fills.
    of_cpu: Vec<u16>,
    classes: Vec<Class>,
    /// Whether each class has all caches to itself.
    is_isolated: bool,
}

/// Part of a cache for a class.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Part {
    cache: CacheId,
    class: Class,
}

impl SharedLevel {
    /// Empty caches without parts.
    pub fn new(machine: &Machine, level: &machine::Cache) -> SharedLevel {
        let cpus = machine.cpus();
        let caches = cpus.div_ceil(usize::from(level.shared_by));
        let mut shared = SharedLevel {
            latency: machine.core.cycles(level.latency_cycles),
            shared_by: level.shared_by,
            ways: level.ways,
            caches: vec![Cache::new(level.capacity_kib, level.ways); caches],
            parts: Vec::new(),
            of_cpu: vec![0; cpus],
            classes: vec![Class::default(); cpus],
            is_isolated: false,
        };
        shared.find_parts();
        shared
    }

    /// Gives each class caches of its own from now on, as large as those of the machine.
    pub fn isolate(&mut self) {
        self.is_isolated = true;
    }

    /// What a CPU looks lines up in.
    #[inline]
    pub fn of(&mut self, cpu: CpuId) -> &mut Cache {
        &mut self.caches[usize::from(self.of_cpu[cpu.index()])]
    }

    /// Prefetches the host memory of a line's set.
    #[inline]
    pub fn warm(&self, cpu: CpuId, line: u64) {
        self.caches[usize::from(self.of_cpu[cpu.index()])].warm(line);
    }

    /// The cache of a CPU.
    pub fn cache_of(&self, cpu: CpuId) -> CacheId {
        CacheId(cpu.0 / self.shared_by)
    }

    /// A CPU that uses a cache.
    pub fn first_cpu(&self, cache: CacheId) -> CpuId {
        CpuId(cache.0 * self.shared_by)
    }

    /// Number of caches.
    pub fn caches(&self) -> usize {
        self.index_of(0)
    }

    /// The class that runs on a CPU.
    pub fn class_on(&self, cpu: CpuId) -> Class {
        self.classes[cpu.index()]
    }

    /// Associativity.
    pub fn ways(&self) -> u16 {
        self.ways
    }

    /// A cache as the machine has it, for its sets.
    pub fn any_cache(&self) -> &Cache {
        &self.caches[0]
    }

    /// A class runs on a CPU from now on.
    pub fn runs(&mut self, cpu: CpuId, class: Class) {
        self.classes[cpu.index()] = class;
        let part = Part { cache: self.cache_of(cpu), class };
        if self.is_isolated && !self.parts.contains(&part) {
            self.parts.push(part);
            self.caches.push(self.caches[0].with_ways(self.ways));
        }
        self.find_part(cpu.index());
    }

    /// Whether a class may have this many ways of a cache.
    pub fn has_room(&self, cache: CacheId, class: Class, ways: NonZeroU16) -> bool {
        let others = self.parts_of(cache).filter(|(part, _)| part.class != class);
        others.map(|(_, ways)| ways).sum::<u16>() + ways.get() <= self.ways
    }

    /// Ways of a class's part of a cache, if it has one.
    pub fn quota(&self, cache: CacheId, class: Class) -> Option<NonZeroU16> {
        let (_, ways) = self.parts_of(cache).find(|(part, _)| part.class == class)?;
        NonZeroU16::new(ways)
    }

    /// Gives a class a part of a cache of this many ways, or none; `owns` says which lines are its own.
    /// Returns the lines dropped by parts that have become smaller.
    ///
    /// # Panics
    /// If there is no [room](SharedLevel::has_room).
    pub fn set_quota(
        &mut self,
        cache: CacheId,
        class: Class,
        ways: Option<NonZeroU16>,
        owns: impl FnMut(u64) -> bool,
    ) -> Vec<Victim> {
        assert!(ways.is_none_or(|ways| self.has_room(cache, class, ways)), "no room for {ways:?} ways");
        let part = Part { cache, class };
        let known = self.parts.iter().position(|known| *known == part);
        let mut dropped = match (known, ways) {
            (None, None) => return Vec::new(),
            (None, Some(ways)) => {
                let mut taken = self.caches[cache.index()].split_off(owns);
                let dropped = taken.resize(ways.get());
                self.parts.push(part);
                self.caches.push(taken);
                dropped
            }
            (Some(at), Some(ways)) => {
                let at = self.index_of(at);
                self.caches[at].resize(ways.get())
            }
            (Some(at), None) => {
                let removed = self.caches.remove(self.index_of(at));
                self.parts.remove(at);
                let rest = &mut self.caches[cache.index()];
                let grown = rest.resize(rest.ways() + removed.ways());
                debug_assert!(grown.is_empty());
                rest.append(&removed)
            }
        };
        let left = self.ways - self.parts_of(cache).map(|(_, ways)| ways).sum::<u16>();
        dropped.extend(self.caches[cache.index()].resize(left));
        self.find_parts();
        dropped
    }

    /// Index in `caches` of a part.
    fn index_of(&self, part: usize) -> usize {
        self.caches.len() - self.parts.len() + part
    }

    /// The parts of a cache, with their ways.
    fn parts_of(&self, cache: CacheId) -> impl Iterator<Item = (Part, u16)> + '_ {
        let parts = self.parts.iter().zip(&self.caches[self.index_of(0)..]);
        parts.filter(move |(part, _)| part.cache == cache).map(|(part, of)| (*part, of.ways()))
    }

    fn find_parts(&mut self) {
        (0..self.of_cpu.len()).for_each(|cpu| self.find_part(cpu));
    }

    /// Finds what a CPU fills.
    fn find_part(&mut self, cpu: usize) {
        let cache = self.cache_of(CpuId::from(cpu));
        let part = Part { cache, class: self.classes[cpu] };
        let known = self.parts.iter().position(|known| *known == part);
        self.of_cpu[cpu] = known.map_or(cache.index(), |at| self.index_of(at)) as u16;
    }
}

//! Way partitions of the last shared level, and its utility monitors.

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use memtide_core::{CacheId, CpuId, Time};

use super::shared_level::{Class, SharedLevel};
use super::{Requester, Uncore};
use crate::utility::{SampledSets, UtilityMonitor};

/// Utility of a class's use of the last shared level: see `View::cache_utility` in `memtide-core`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Utility {
    /// Hits by recency position on the sampled sets of all caches, most recently used first.
    pub hits: Vec<u64>,
    /// Misses at the full associativity.
    pub misses: u64,
}

/// Utility monitors: one for each class and each cache that it uses.
pub(super) struct Monitors {
    sets: SampledSets,
    ways: u16,
    of: BTreeMap<(Class, CacheId), UtilityMonitor>,
}

impl Monitors {
    fn new(level: &SharedLevel) -> Monitors {
        Monitors { sets: SampledSets::of(level.any_cache()), ways: level.ways(), of: BTreeMap::new() }
    }

    /// Counts an access of a CPU that missed its private caches.
    pub fn see(&mut self, levels: &[SharedLevel], cpu: CpuId, line: u64) {
        let (Some(level), Some(sampled)) = (levels.last(), self.sets.find(line)) else { return };
        let key = (level.class_on(cpu), level.cache_of(cpu));
        let new = || UtilityMonitor::new(&self.sets, self.ways);
        self.of.entry(key).or_insert_with(new).see(sampled);
    }

    fn of(&mut self, class: Class) -> impl Iterator<Item = &mut UtilityMonitor> {
        self.of.range_mut((class, CacheId(0))..=(class, CacheId(u16::MAX))).map(|(_, monitor)| monitor)
    }
}

impl Uncore {
    /// Associativity of the last level, if it is shared.
    pub fn ways(&self) -> Option<u16> {
        self.levels.last().map(SharedLevel::ways)
    }

    /// The cache of the last level that a CPU uses, if it is shared.
    pub fn cache_of(&self, cpu: CpuId) -> Option<CacheId> {
        self.levels.last().map(|level| level.cache_of(cpu))
    }

    /// The class of a CPU's accesses from now on.
    pub fn runs(&mut self, cpu: CpuId, class: Class) {
        if let Some(level) = self.levels.last_mut() {
            level.runs(cpu, class);
        }
        if let Some(ideal) = &mut self.ideal {
            ideal.runs(cpu, class);
        }
    }

    /// Whether a class may have this many ways of a cache of the last level beside the quotas of others.
    pub fn has_ways(&self, cache: CacheId, class: Class, ways: NonZeroU16) -> bool {
        self.levels.last().is_some_and(|level| level.has_room(cache, class, ways))
    }

    /// A class's quota of a cache of the last level, if it has one.
    pub fn quota(&self, cache: CacheId, class: Class) -> Option<NonZeroU16> {
        self.levels.last()?.quota(cache, class)
    }

    /// Limits the ways of a cache of the last level that a class fills, demand, prefetches and write-backs
    /// alike, or no longer; `owns` says which lines are its own. Page copies pass the caches.
    ///
    /// Each part keeps its most recently used lines. Dropped lines are gone at once, but the dirty ones among
    /// them are written one by one, at later misses: those fill the ways that have changed hands, and in
    /// hardware would evict them.
    ///
    /// # Panics
    /// If the last level is not shared, or without [room](Uncore::has_ways).
    pub fn set_quota(
        &mut self,
        cache: CacheId,
        class: Class,
        ways: Option<NonZeroU16>,
        owns: impl FnMut(u64) -> bool,
    ) {
        let level = self.levels.last_mut().expect("a shared last level");
        let dropped = level.set_quota(cache, class, ways, owns);
        let cpu = level.first_cpu(cache);
        let dirty = dropped.into_iter().filter(|victim| victim.dirty);
        self.dropped.extend(dirty.map(|victim| (cpu, victim.line)));
    }

    /// A class has ended: its quotas and its counts are dropped. Nothing changes in an ideal uncore.
    pub fn end(&mut self, class: Class) {
        if self.ideal.is_some() {
            return;
        }
        let caches = self.levels.last().map_or(0, SharedLevel::caches);
        for cache in (0..caches).map(CacheId::from) {
            self.set_quota(cache, class, None, |_| false);
        }
        if let Some(monitors) = &mut self.monitors {
            monitors.of.retain(|(known, _), _| *known != class);
        }
    }

    /// Counts each class's utility from now on.
    pub fn monitor_utility(&mut self) {
        self.monitors = self.levels.last().map(Monitors::new);
    }

    /// The utility of a class, whose counters are then halved; `None` unless monitored.
    pub fn take_utility(&mut self, class: Class) -> Option<Utility> {
        let monitors = self.monitors.as_mut()?;
        let mut utility = Utility { hits: vec![0; monitors.ways.into()], misses: 0 };
        for monitor in monitors.of(class) {
            utility.hits.iter_mut().zip(monitor.hits()).for_each(|(all, hits)| *all += hits);
            utility.misses += monitor.misses();
            monitor.halve();
        }
        Some(utility)
    }

    /// Writes a dirty line that a change of quotas has dropped.
    #[inline]
    pub(super) fn write_dropped(&mut self, at: Time) {
        if let Some((cpu, line)) = self.dropped.pop_front() {
            self.post(cpu, line, at, Requester::Demand);
        }
    }
}

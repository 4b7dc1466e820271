//! Latency over footprints: a chase through as many bytes as each level of the caches holds, and more, in
//! huge pages and in base pages.

use memtide_core::{CpuId, NodeId, PageSize};

use super::chase::{Chase, LINE_WORDS, link};
use super::{Effort, MeasureError, on};
use crate::topology::Cache;

/// The least footprint, in KiB.
const LEAST_KIB: u64 = 16;

/// Share of a chase's memory in huge pages from which on it counts as one in huge pages.
const MOSTLY_HUGE: f64 = 0.95;

/// Latencies of a footprint: minima over a chase's parts, in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rung {
    /// The footprint.
    pub kib: u64,
    /// In huge pages; `None` if the kernel provides too few.
    pub huge_ns: Option<f64>,
    /// In base pages.
    pub base_ns: f64,
}

/// Footprints to measure: powers of two from 16 KiB to this many MiB.
pub fn footprints_kib(most_mib: usize) -> Vec<u64> {
    let most_kib = (most_mib as u64) << 10;
    std::iter::successors(Some(LEAST_KIB), |kib| Some(2 * kib)).take_while(|&kib| kib <= most_kib).collect()
}

/// Measures a footprint.
///
/// # Errors
/// If the CPU or the memory is not available.
pub fn rung(cpu: CpuId, node: NodeId, kib: u64, effort: &Effort) -> Result<Rung, MeasureError> {
    let chase = |pages| -> Result<(f64, Option<f64>), MeasureError> {
        let lines = (kib << 10) as usize / (8 * LINE_WORDS);
        // A mapping of less than a huge page has none.
        let bytes = ((kib << 10) as usize).max(PageSize::Huge.bytes() as usize);
        let mut words = on(cpu, node, bytes, pages)?;
        link(&mut words, lines, effort.seed, |line| line);
        let mut chase = Chase::over(words, lines as u64, effort);
        Ok((chase.run(effort).ns.least, chase.huge))
    };
    let (huge_ns, share) = chase(PageSize::Huge)?;
    let (base_ns, _) = chase(PageSize::Base)?;
    let huge_ns = share.is_some_and(|share| share >= MOSTLY_HUGE).then_some(huge_ns);
    Ok(Rung { kib, huge_ns, base_ns })
}

impl Rung {
    /// Latency without page walks, as far as the kernel allows.
    pub fn ns(&self) -> f64 {
        self.huge_ns.unwrap_or(self.base_ns)
    }
}

/// Latency of each cache level in ns, nearest to the core first: that of the footprint in the middle, by
/// factors, between the level before and this one. Shorter than the machine's caches if a level has no
/// footprint between them.
pub fn cache_latencies_ns(caches: &[Cache], ladder: &[Rung]) -> Vec<f64> {
    let mut before_kib = 0;
    let mut latencies = Vec::new();
    for cache in caches {
        let middle = match before_kib {
            0 => cache.capacity_kib as f64 / 2.0,
            before => (before as f64 * cache.capacity_kib as f64).sqrt(),
        };
        let inside = |rung: &&Rung| rung.kib > before_kib && 4 * rung.kib <= 3 * cache.capacity_kib;
        let factor = |rung: &Rung| (rung.kib as f64 / middle).max(middle / rung.kib as f64);
        let nearest = ladder.iter().filter(inside).min_by(|a, b| factor(a).total_cmp(&factor(b)));
        let Some(rung) = nearest else { break };
        latencies.push(rung.ns());
        before_kib = cache.capacity_kib;
    }
    latencies
}

/// Latency of memory in ns: the least over the footprints from twice the last cache on, three at most. Other
/// work on the machine only adds to them. `None` if there are none.
pub fn memory_ns(caches: &[Cache], ladder: &[Rung]) -> Option<f64> {
    let last_kib = caches.last().map_or(0, |cache| cache.capacity_kib);
    let large = ladder.iter().rev().take_while(|rung| rung.kib >= 2 * last_kib).take(3);
    large.map(Rung::ns).min_by(f64::total_cmp)
}

/// Cost in ns of a page walk whose table is in no private cache: what base pages add to memory's latency at
/// the largest footprint. `None` without huge pages, as memory's latency then includes walks.
///
/// Huge pages of that footprint have walks of their own, of a hypervisor's small pages above all, so that
/// their latency is not what base pages add to.
pub fn cold_walk_ns(caches: &[Cache], ladder: &[Rung]) -> Option<f64> {
    let last = ladder.last()?;
    let memory_ns = memory_ns(caches, ladder).or(last.huge_ns)?;
    last.huge_ns.map(|huge_ns| (last.base_ns - memory_ns.min(huge_ns)).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::super::SMALL;
    use super::*;

    fn caches(kib: &[u64]) -> Vec<Cache> {
        let cache = |(&capacity_kib, level)| Cache { level, capacity_kib, ways: 8, cpus: 1 };
        kib.iter().zip(1..).map(cache).collect()
    }

    /// A machine with sharp edges: 2 ns up to 32 KiB, 5 up to 1 MiB, 20 up to 32 MiB, then 100.
    fn sharp() -> Vec<Rung> {
        let ns = |kib| match kib {
            ..=32 => 2.0,
            33..=1024 => 5.0,
            1025..=32768 => 20.0,
            _ => 100.0,
        };
        let rung = |kib| Rung { kib, huge_ns: Some(ns(kib)), base_ns: ns(kib) + 7.0 };
        footprints_kib(128).into_iter().map(rung).collect()
    }

    #[test]
    fn footprints_double_up_to_limit() {
        assert!(footprints_kib(0).is_empty());
        assert_eq!(footprints_kib(1), [16, 32, 64, 128, 256, 512, 1024]);
        assert_eq!(footprints_kib(1000).last(), Some(&(512 << 10)));
    }

    #[test]
    fn each_level_has_latency_of_its_own_plateau() {
        assert_eq!(cache_latencies_ns(&caches(&[32, 1024, 32768]), &sharp()), [2.0, 5.0, 20.0]);
        assert_eq!(memory_ns(&caches(&[32, 1024, 32768]), &sharp()), Some(100.0));
        assert_eq!(cold_walk_ns(&caches(&[32, 1024, 32768]), &sharp()), Some(7.0));
        // Levels without a footprint between them, and a ladder that does not leave the caches.
        assert_eq!(cache_latencies_ns(&caches(&[32, 40, 32768]), &sharp()), [2.0]);
        assert_eq!(memory_ns(&caches(&[32, 1024, 1 << 17]), &sharp()), None);
    }

    #[test]
    fn memory_latency_is_least_of_last_three_footprints() {
        let mut ladder = sharp();
        for (rung, ns) in ladder.iter_mut().rev().zip([300.0, 120.0, 150.0, 90.0]) {
            rung.huge_ns = Some(ns);
        }
        let caches = caches(&[32, 1024]);
        assert_eq!(memory_ns(&caches, &ladder), Some(120.0));
        ladder.last_mut().expect("rungs").base_ns = 190.0;
        assert_eq!(cold_walk_ns(&caches, &ladder), Some(70.0), "huge pages have walks, too");
        ladder.last_mut().expect("rungs").huge_ns = None;
        assert_eq!(
            cold_walk_ns(&caches, &ladder),
            None,
            "without huge pages nothing tells walks from memory"
        );
    }

    #[test]
    fn footprint_below_huge_page_is_measured() {
        let effort = Effort { loads: 20_000, ..SMALL };
        let rung = rung(CpuId(0), NodeId(0), LEAST_KIB, &effort).unwrap();
        assert!(rung.base_ns > 0.0 && rung.huge_ns.is_none_or(|ns| ns > 0.0), "{rung:?}");
    }
}

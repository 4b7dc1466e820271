//! Many loads at once: how many misses, and how many page walks, a core overlaps, and what a program has of
//! the last cache.

use std::hint::black_box;
use std::time::Instant;

use memtide_core::{CpuId, NodeId, PageSize};

use super::chase::{LINE_WORDS, link};
use super::{Effort, MeasureError, on};
use crate::sys::Chain;

/// Chases at once, on one core: more than it has miss registers.
const AT_ONCE: usize = 32;

/// Separately timed parts.
const PARTS: u64 = 5;

/// Time per load of many chases at once over one memory: minima over parts, in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Overlap {
    /// In huge pages, as far as the kernel has them.
    pub huge_ns: f64,
    /// In base pages.
    pub base_ns: f64,
}

/// Times per load of many chases at once over footprints of the last cache's order, in huge pages as far as
/// the kernel has them: minima over parts, in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LastCache {
    /// Capacity of the cache in KiB.
    pub kib: u64,
    /// Over a quarter of it.
    pub quarter_ns: f64,
    /// Over all of it.
    pub whole_ns: f64,
}

/// Measures loads that depend on the one before them only within each of many chases.
///
/// # Errors
/// If the CPU or the memory is not available.
pub fn overlap(cpu: CpuId, node: NodeId, effort: &Effort) -> Result<Overlap, MeasureError> {
    let ns = |pages| at_once(cpu, node, effort.bytes(), pages, effort);
    Ok(Overlap { huge_ns: ns(PageSize::Huge)?, base_ns: ns(PageSize::Base)? })
}

/// Measures the same over footprints of a cache's order.
///
/// # Errors
/// If the CPU or the memory is not available.
pub fn last_cache(cpu: CpuId, node: NodeId, kib: u64, effort: &Effort) -> Result<LastCache, MeasureError> {
    let ns = |kib: u64| at_once(cpu, node, (kib << 10) as usize, PageSize::Huge, effort);
    Ok(LastCache { kib, quarter_ns: ns(kib / 4)?, whole_ns: ns(kib)? })
}

/// Time per load of many chases at once, after each line was visited once.
fn at_once(
    cpu: CpuId,
    node: NodeId,
    bytes: usize,
    pages: PageSize,
    effort: &Effort,
) -> Result<f64, MeasureError> {
    let mut words = on(cpu, node, bytes.max(PageSize::Huge.bytes() as usize), pages)?;
    let lines = bytes / (8 * LINE_WORDS);
    link(&mut words, lines, effort.seed, |line| line);
    let chain = Chain::new(words);
    let mut at = std::array::from_fn(|chase| (lines / AT_ONCE * chase * LINE_WORDS) as u64);
    let steps = effort.loads.div_ceil(PARTS * AT_ONCE as u64);
    at = black_box(chain.follow_together::<AT_ONCE>(at, (lines / AT_ONCE) as u64));
    let begin = Instant::now();
    let mut least = f64::INFINITY;
    for _ in 0..PARTS {
        let start = Instant::now();
        at = black_box(chain.follow_together::<AT_ONCE>(at, steps));
        let loads = steps * AT_ONCE as u64;
        least = least.min(start.elapsed().as_nanos() as f64 / loads as f64);
        if begin.elapsed() > effort.limit {
            break;
        }
    }
    Ok(least)
}

impl LastCache {
    /// KiB that a program has of the cache: less than all of it where others use it, too, such as a host's
    /// other virtual machines. `far_ns` is the time per load over a footprint of `far_kib` KiB, larger than
    /// the cache.
    ///
    /// Chases at random places of a cycle find a line with the probability held / footprint, so that times
    /// rise by (1 - held / footprint) of what a miss adds: two footprints give both.
    pub fn held_kib(&self, far_kib: u64, far_ns: f64) -> u64 {
        let (rise_ns, far_rise_ns) = (self.whole_ns - self.quarter_ns, far_ns - self.quarter_ns);
        if rise_ns <= 0.0 || far_rise_ns <= rise_ns {
            return if rise_ns <= 0.0 { self.kib } else { self.kib / 4 };
        }
        let rise = rise_ns / far_rise_ns;
        let held_kib = (1.0 - rise) / (1.0 / self.kib as f64 - rise / far_kib as f64);
        (held_kib as u64).clamp(self.kib / 4, self.kib)
    }
}

impl Overlap {
    /// Misses in flight, by Little's law, at this latency.
    pub fn misses(&self, latency_ns: f64) -> u16 {
        (latency_ns / self.huge_ns).round().clamp(1.0, 64.0) as u16
    }

    /// Page walks in flight, by Little's law, at this cost of a walk; at most as many as misses, as a load
    /// waits for both. A lower bound where the misses are the limit.
    pub fn walks(&self, walk_ns: f64) -> u16 {
        (walk_ns / self.base_ns).round().clamp(1.0, 64.0) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::super::SMALL;
    use super::*;

    #[test]
    fn overlap_follows_littles_law() {
        let overlap = Overlap { huge_ns: 10.0, base_ns: 20.0 };
        assert_eq!((overlap.misses(118.0), overlap.walks(80.0)), (12, 4));
        assert_eq!((overlap.misses(1.0), overlap.walks(1e9)), (1, 64));
    }

    #[test]
    fn held_capacity_follows_from_miss_ratios() {
        // Hits take 1 ns, misses 11, in a cache of which 20 of 32 MiB are held.
        let ns = |mib: f64| 1.0 + 10.0 * (1.0 - 20.0 / mib).max(0.0);
        let cache = LastCache { kib: 32 << 10, quarter_ns: ns(8.0), whole_ns: ns(32.0) };
        for far_mib in [64, 128, 1024] {
            let held = cache.held_kib(far_mib << 10, ns(far_mib as f64));
            assert!(held.abs_diff(20 << 10) <= 1, "{held}");
        }
        let of = |whole_ns, far_ns| LastCache { whole_ns, ..cache }.held_kib(1 << 20, far_ns);
        assert_eq!((of(1.0, 11.0), of(0.9, 11.0)), (32 << 10, 32 << 10), "all of it");
        assert_eq!((of(10.9, 11.0), of(5.0, 4.0)), (8 << 10, 8 << 10), "a quarter at least");
    }

    #[test]
    fn chases_at_once_are_timed() {
        let cache = last_cache(CpuId(0), NodeId(0), 1024, &SMALL).unwrap();
        assert!(cache.kib == 1024 && cache.quarter_ns > 0.0 && cache.whole_ns > 0.0, "{cache:?}");
        let overlap = overlap(CpuId(0), NodeId(0), &SMALL).unwrap();
        assert!(overlap.huge_ns > 0.0 && overlap.base_ns > 0.0, "{overlap:?}");
    }
}

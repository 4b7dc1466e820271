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

/// Times per load of many chases at once over footprints of the last cache's order.
#[derive(Clone, Debug, PartialEq)]
pub struct LastCache {
    /// Capacity of the cache in KiB.
    pub kib: u64,
    /// Footprints in KiB, eighths of the capacity from two on, with their times in ns: minima over parts, in
    /// huge pages as far as the kernel has them.
    pub points: Vec<(u64, f64)>,
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
    let point = |eighths| -> Result<(u64, f64), MeasureError> {
        let footprint_kib = kib * eighths / 8;
        Ok((footprint_kib, at_once(cpu, node, (footprint_kib << 10) as usize, PageSize::Huge, effort)?))
    };
    Ok(LastCache { kib, points: (2..=8).map(point).collect::<Result<_, _>>()? })
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
    /// other virtual machines. `memory_ns` is the time per load over a footprint much larger than the cache.
    ///
    /// It is the footprint, between two measured ones, whose time is in the middle between the smallest
    /// footprint's and memory's. Once loads miss at all, the time rises steeply, as those behind them wait.
    pub fn held_kib(&self, memory_ns: f64) -> u64 {
        let least_ns = self.points.first().map_or(memory_ns, |&(_, ns)| ns);
        let middle_ns = f64::midpoint(least_ns, memory_ns);
        let step = self.points.windows(2).find(|pair| pair[1].1 > middle_ns);
        let Some(&[(below_kib, below_ns), (above_kib, above_ns)]) = step else { return self.kib };
        let share = ((middle_ns - below_ns) / (above_ns - below_ns)).clamp(0.0, 1.0);
        below_kib + (share * (above_kib - below_kib) as f64) as u64
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
    fn held_capacity_ends_between_footprints_around_the_middle_time() {
        let cache = |ns: [f64; 7]| LastCache {
            kib: 8000,
            points: (2..).map(|eighth| eighth * 1000).zip(ns).collect(),
        };
        let held = |ns| cache(ns).held_kib(11.0);
        assert_eq!(held([1.0, 1.0, 1.0, 5.0, 7.0, 9.0, 10.0]), 5500, "6 is in the middle of 5 and 7");
        assert_eq!(held([1.0, 1.0, 11.0, 11.0, 11.0, 11.0, 11.0]), 3500);
        assert_eq!(held([1.0; 7]), 8000, "all of it");
        assert_eq!(held([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 6.0]), 8000);
        assert_eq!(held([11.0; 7]), 8000, "no step: nothing tells");
    }

    #[test]
    fn chases_at_once_are_timed() {
        let cache = last_cache(CpuId(0), NodeId(0), 1024, &SMALL).unwrap();
        let footprints: Vec<u64> = cache.points.iter().map(|point| point.0).collect();
        assert_eq!((cache.kib, &footprints[..]), (1024, &[256, 384, 512, 640, 768, 896, 1024][..]));
        assert!(cache.points.iter().all(|point| point.1 > 0.0), "{cache:?}");
        let overlap = overlap(CpuId(0), NodeId(0), &SMALL).unwrap();
        assert!(overlap.huge_ns > 0.0 && overlap.base_ns > 0.0, "{overlap:?}");
    }
}

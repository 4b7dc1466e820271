//! Memory-level parallelism: how many misses, and how many page walks, a core overlaps.

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

/// Measures loads that depend on the one before them only within each of many chases.
///
/// # Errors
/// If the CPU or the memory is not available.
pub fn overlap(cpu: CpuId, node: NodeId, effort: &Effort) -> Result<Overlap, MeasureError> {
    let at_once = |pages| -> Result<f64, MeasureError> {
        let mut words = on(cpu, node, effort.bytes(), pages)?;
        let lines = words.len() / LINE_WORDS;
        link(&mut words, lines, effort.seed, |line| line);
        let chain = Chain::new(words);
        let mut at = std::array::from_fn(|chase| (lines / AT_ONCE * chase * LINE_WORDS) as u64);
        let steps = effort.loads.div_ceil(PARTS * AT_ONCE as u64);
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
    };
    Ok(Overlap { huge_ns: at_once(PageSize::Huge)?, base_ns: at_once(PageSize::Base)? })
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
    fn chases_at_once_are_timed() {
        let overlap = overlap(CpuId(0), NodeId(0), &SMALL).unwrap();
        assert!(overlap.huge_ns > 0.0 && overlap.base_ns > 0.0, "{overlap:?}");
    }
}

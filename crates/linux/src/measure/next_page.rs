//! Whether the prefetcher follows a stream into the next page: a chase through all lines in order, in base
//! pages.

use memtide_core::{CpuId, NodeId, PAGE_BYTES, PageSize};

use super::chase::{Chase, LINE_WORDS};
use super::{Effort, MeasureError, on};

const PAGE_LINES: u64 = PAGE_BYTES / (8 * LINE_WORDS as u64);

/// Time in ns that a chase takes for a page: minimum over its parts.
///
/// # Errors
/// If the CPU or the memory is not available.
pub fn page_ns(cpu: CpuId, node: NodeId, effort: &Effort) -> Result<f64, MeasureError> {
    let mut words = on(cpu, node, effort.bytes(), PageSize::Base)?;
    let lines = words.len() / LINE_WORDS;
    for line in 0..lines {
        words[line * LINE_WORDS] = ((line + 1) % lines * LINE_WORDS) as u64;
    }
    let ns = Chase::over(words, lines as u64, effort).run(effort).ns.least;
    Ok(ns * PAGE_LINES as f64)
}

/// Whether less than half of memory's latency is left of a page's time, beyond that of its lines in the
/// second cache: at the start of a page that was not prefetched, a chase waits for all of it.
pub fn follows_next_page(page_ns: f64, second_cache_ns: f64, memory_ns: f64) -> bool {
    page_ns - PAGE_LINES as f64 * second_cache_ns < memory_ns / 2.0
}

#[cfg(test)]
mod tests {
    use super::super::SMALL;
    use super::*;

    #[test]
    fn prefetcher_that_stops_at_pages_leaves_a_latency_per_page() {
        let lines_ns = 64.0 * 4.0;
        assert!(follows_next_page(lines_ns, 4.0, 100.0));
        assert!(follows_next_page(lines_ns + 30.0, 4.0, 100.0));
        assert!(!follows_next_page(lines_ns + 100.0, 4.0, 100.0));
        assert!(follows_next_page(100.0, 4.0, 100.0), "lines that are prefetched into the first cache");
    }

    #[test]
    fn page_is_measured() {
        assert!(page_ns(CpuId(0), NodeId(0), &SMALL).unwrap() > 0.0);
    }
}

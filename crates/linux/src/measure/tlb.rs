//! TLB reach and the cost of page walks: a chase over one line of each page, in base pages and, over the same
//! lines, in huge pages. What base pages add is the cost of their translations.

use memtide_core::{CpuId, NodeId, PAGE_BYTES, PageSize};

use super::chase::{Chase, LINE_WORDS, link};
use super::{Effort, MeasureError, on};

const PAGE_LINES: usize = PAGE_BYTES as usize / (8 * LINE_WORDS);

/// The smallest and the largest number of pages: beyond the largest TLBs, but their lines and page tables in
/// the private caches.
const PAGES: (u64, u64) = (16, 16384);

/// Pages of which no TLB holds half.
const ALL_MISS: u64 = 8192;

/// Loads of a chase: some visits of each page in every part.
const LOADS: u64 = 500_000;

/// Least cost in ns of a translation that counts as one: less is noise.
const LEAST_NS: f64 = 0.15;

/// Latencies of a load from one of so many pages: minima over a chase's parts, in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TlbPoint {
    /// Number of base pages, of each of which one line is read.
    pub pages: u64,
    /// In base pages.
    pub base_ns: f64,
    /// The same lines in huge pages.
    pub huge_ns: f64,
}

impl TlbPoint {
    /// Cost of a translation.
    fn adds_ns(&self) -> f64 {
        (self.base_ns - self.huge_ns).max(0.0)
    }
}

/// Reach and costs of two TLB levels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TlbReach {
    /// Pages that the first level holds; `None` if the second one adds no cost that can be measured.
    pub first_pages: Option<u64>,
    /// Cost of a hit in the second level beyond one in the first, in ns.
    pub second_ns: f64,
    /// Pages that both levels hold.
    pub pages: u64,
    /// Cost of a page walk whose table is in a private cache, in ns.
    pub walk_ns: f64,
}

/// Numbers of pages to measure: powers of two, and halfway between them, as TLBs have them.
pub fn page_counts() -> Vec<u64> {
    let mut counts = Vec::new();
    let mut pages = PAGES.0;
    while pages <= PAGES.1 {
        counts.extend([pages, pages * 3 / 2]);
        pages *= 2;
    }
    counts.retain(|&pages| pages <= PAGES.1);
    counts
}

/// Measures a number of pages.
///
/// # Errors
/// If the CPU or the memory is not available.
pub fn tlb_point(cpu: CpuId, node: NodeId, pages: u64, effort: &Effort) -> Result<TlbPoint, MeasureError> {
    let effort = Effort { loads: LOADS.min(effort.loads).max(10 * pages), ..*effort };
    let chase = |size| -> Result<f64, MeasureError> {
        let bytes = (pages * PAGE_BYTES).max(PageSize::Huge.bytes());
        let mut words = on(cpu, node, bytes as usize, size)?;
        // Another line of each page, so that they spread over all sets of the caches.
        link(&mut words, pages as usize, effort.seed, |page| page * PAGE_LINES + page % PAGE_LINES);
        Ok(Chase::over(words, pages, &effort).run(&effort).ns.least)
    };
    Ok(TlbPoint { pages, base_ns: chase(PageSize::Base)?, huge_ns: chase(PageSize::Huge)? })
}

/// Reads reach and costs from points of rising numbers of pages. A level ends where the cost passes half of
/// the next level's. `None` if base pages cost no more than huge ones.
pub fn tlb_reach(points: &[TlbPoint]) -> Option<TlbReach> {
    let at = |pages| {
        let point = points.iter().find(|point| point.pages >= pages).or(points.last());
        point.map_or(0.0, TlbPoint::adds_ns)
    };
    let within = |limit_ns: f64| {
        let end = points.iter().position(|point| point.adds_ns() > limit_ns)?;
        Some(points.get(end.checked_sub(1)?)?.pages)
    };
    let walks_ns = at(ALL_MISS);
    let pages = within(walks_ns / 2.0).filter(|_| walks_ns > LEAST_NS)?;
    // The cost goes on growing as page tables leave the first cache.
    let walk_ns = at(2 * pages);
    let second: Vec<f64> = points
        .iter()
        .filter(|point| (pages / 4..=pages * 3 / 4).contains(&point.pages))
        .map(TlbPoint::adds_ns)
        .collect();
    let second_ns = second.iter().copied().fold(f64::INFINITY, f64::min);
    let first_pages =
        (second_ns.is_finite() && second_ns > LEAST_NS).then(|| within(second_ns / 2.0)).flatten();
    let second_ns = first_pages.map_or(0.0, |_| second_ns);
    Some(TlbReach { first_pages, second_ns, pages, walk_ns })
}

#[cfg(test)]
mod tests {
    use super::super::SMALL;
    use super::*;

    /// Points of a TLB with exact replacement: free up to `first` pages, `second_ns` up to `both`, then
    /// `walk_ns`, and more where the table has left the first cache.
    fn points(first: u64, second_ns: f64, both: u64, walk_ns: f64) -> Vec<TlbPoint> {
        let adds = |pages| match pages {
            _ if pages <= first => 0.0,
            _ if pages <= both => second_ns,
            _ if pages <= 4 * both => walk_ns,
            _ => 1.5 * walk_ns,
        };
        let point = |pages| TlbPoint { pages, base_ns: 4.0 + adds(pages), huge_ns: 4.0 };
        page_counts().into_iter().map(point).collect()
    }

    #[test]
    fn reach_and_costs_are_read_from_steps() {
        for (first, both, walk_ns) in [(64, 1536, 12.0), (96, 2048, 30.0), (64, 3072, 9.0)] {
            let found = tlb_reach(&points(first, 2.5, both, walk_ns));
            let expected = TlbReach { first_pages: Some(first), second_ns: 2.5, pages: both, walk_ns };
            assert_eq!(found, Some(expected));
        }
    }

    #[test]
    fn free_second_level_leaves_first_unknown() {
        let found = tlb_reach(&points(64, 0.0, 1536, 12.0)).expect("a reach");
        assert_eq!((found.first_pages, found.second_ns, found.pages), (None, 0.0, 1536));
    }

    #[test]
    fn without_step_there_is_no_reach() {
        assert_eq!(tlb_reach(&points(64, 0.0, 1536, 0.0)), None);
        assert_eq!(tlb_reach(&[]), None);
    }

    #[test]
    fn page_counts_rise_and_include_sizes_of_real_tlbs() {
        let counts = page_counts();
        assert!(counts.is_sorted() && [64, 96, 1536, 2048, 3072].iter().all(|pages| counts.contains(pages)));
        assert_eq!((counts.first(), counts.last()), (Some(&16), Some(&16384)));
    }

    #[test]
    fn few_pages_are_measured() {
        let point = tlb_point(CpuId(0), NodeId(0), 16, &SMALL).unwrap();
        assert!(point.base_ns > 0.0 && point.huge_ns > 0.0, "{point:?}");
    }
}

//! The mappings that the scanner visits, as Linux's task_numa_work does: no read-only file mappings, which
//! are shared and stay in place, no inaccessible ones, and no vDSO.

use memtide_core::Vpn;
use memtide_core::policy::Region;
use rustix::process::Pid;

use crate::mappings::{self, Mapping};

/// Base pages from the first to one past the last.
type Pages = [u64; 2];

/// The mappings visited, by address; none if the process has exited or is not accessible.
pub fn mappings(pid: Pid) -> Vec<Pages> {
    let pages = |mapping: Mapping<'_>| {
        let pages = mapping.pages();
        is_visited(&mapping).then_some([pages.start, pages.end])
    };
    mappings::read(pid, pages).unwrap_or_default()
}

fn is_visited(mapping: &Mapping<'_>) -> bool {
    let is_its_own = !mapping.has_file() && !mapping.is_of_kernel() && mapping.is_accessible();
    is_its_own || mapping.is_writable()
}

/// The parts of a process's regions in these mappings. Both are in address order; huge pages stay whole.
pub fn visited(regions: &[Region], mappings: &[Pages]) -> Vec<Region> {
    let parts = |region: &Region| {
        let (each, start) = (region.size.base_pages(), region.start.0);
        let end = start + region.pages * each;
        let from = mappings.partition_point(|[_, mapped]| *mapped <= start);
        let overlapping = mappings[from..].iter().take_while(move |[first, _]| *first < end);
        let region = *region;
        overlapping.filter_map(move |&[first, last]| {
            let skipped = first.saturating_sub(start).div_ceil(each);
            let pages = (last.min(end) - start) / each;
            let pages = pages.checked_sub(skipped).filter(|pages| *pages > 0)?;
            Some(Region { start: Vpn(start + skipped * each), pages, ..region })
        })
    };
    regions.iter().flat_map(parts).collect()
}

#[cfg(test)]
mod tests {
    use memtide_core::{NodeId, PAGE_BYTES, PageSize, TaskId};

    use super::*;

    fn region(start: u64, pages: u64, size: PageSize) -> Region {
        Region {
            task: TaskId(5),
            start: Vpn(start),
            pages,
            size,
            node: NodeId(1),
            reads: 1,
            writes: 0,
            age: 0,
        }
    }

    #[test]
    fn regions_are_clipped_to_mappings() {
        let (base, huge) = (PageSize::Base, PageSize::Huge);
        let regions = [region(10, 20, base), region(40, 5, base), region(512, 3, huge)];
        let cut = visited(&regions, &[[0, 11], [13, 15], [28, 42], [600, 1536], [1600, 4096]]);
        let cut: Vec<_> = cut.iter().map(|region| (region.start.0, region.pages)).collect();
        assert_eq!(cut, [(10, 1), (13, 2), (28, 2), (40, 2), (1024, 1)]);
        assert!(visited(&regions, &[]).is_empty());
    }

    #[test]
    fn heap_is_visited_and_code_is_not() {
        let (memory, me) = (vec![1u8; 1 << 20], rustix::process::getpid());
        let mappings = mappings(me);
        let is_in = |address: u64| mappings.iter().any(|[a, b]| (*a..*b).contains(&(address / PAGE_BYTES)));
        assert!(is_in(memory.as_ptr() as u64), "{mappings:?}");
        assert!(!is_in(heap_is_visited_and_code_is_not as *const () as u64), "{mappings:?}");
    }
}

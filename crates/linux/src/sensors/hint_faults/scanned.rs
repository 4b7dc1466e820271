//! The mappings that the scanner visits, as Linux's task_numa_work does: no read-only file mappings, which
//! are shared and stay in place, no inaccessible ones, and no vDSO.

use memtide_core::policy::Region;
use memtide_core::{PAGE_BYTES, Vpn};
use procfs::process::{MMPermissions, MMapPath, MemoryMap, Process};
use rustix::process::Pid;

/// Base pages from the first to one past the last.
type Pages = [u64; 2];

/// The mappings visited, by address; `None` if the process has exited or is not accessible.
pub fn mappings(pid: Pid) -> Vec<Pages> {
    let maps = Process::new(pid.as_raw_nonzero().get()).and_then(|found| found.maps());
    let pages = |map: MemoryMap| [map.address.0, map.address.1].map(|address| address / PAGE_BYTES);
    maps.into_iter().flatten().filter(is_visited).map(pages).collect()
}

fn is_visited(map: &MemoryMap) -> bool {
    let access = MMPermissions::READ | MMPermissions::WRITE | MMPermissions::EXECUTE;
    let is_writable = map.perms.contains(MMPermissions::WRITE);
    match &map.pathname {
        MMapPath::Path(_) | MMapPath::Vsys(_) => is_writable,
        MMapPath::Vdso | MMapPath::Vvar | MMapPath::Vsyscall => false,
        _ => map.perms.intersects(access),
    }
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
    use memtide_core::{NodeId, PageSize, TaskId};

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

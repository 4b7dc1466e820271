//! The NUMA hint scanner: periodically unmaps some of a task's pages, so that the next access to each faults
//! and reveals its CPU (Linux's task_numa_work).

use memtide_core::{TaskId, Vpn};

use super::{Entry, Os, PAGES, Stale};

/// Base pages visited per step, in those to mark, if only some nodes' pages are marked (Linux's
/// `task_numa_work`: `virtpages = pages * 8`).
const VISITS: u64 = 8;

impl Os {
    /// Marks only pages of these nodes from now on.
    pub fn scan_only(&mut self, nodes: Vec<bool>) {
        self.scanned = Some(nodes);
    }

    /// Marks the task's next `pages` present base pages; wraps around at the end of its memory, which ends a
    /// pass. A huge page is marked whole; what that exceeds `pages` is taken from the next steps. Returns the
    /// number marked.
    pub fn scan(&mut self, task: TaskId, pages: u64) -> u64 {
        let space = &mut self.spaces[task.index()];
        let paid = space.scan_debt.min(pages);
        space.scan_debt -= paid;
        let pages = pages - paid;
        if pages == 0 {
            return 0;
        }
        let (mut marked, mut visited) = (0, 0);
        let from = space.scan_at;
        let (frames, scanned, step) = (&self.frames, &self.scanned, self.scan_step);
        let visits = if scanned.is_some() { VISITS * pages } else { u64::MAX };
        let on_scanned =
            |entry: &Entry| scanned.as_ref().is_none_or(|nodes| nodes[frames.node_of(entry.frame()).index()]);
        let mut mark = |_: Vpn, size: memtide_core::PageSize, entry: &mut Entry| {
            visited += size.base_pages();
            let can = entry.has(Entry::PRESENT) && !entry.any(Entry::MOVING | Entry::HINT);
            if can && on_scanned(entry) {
                entry.set_hint(step);
                marked += size.base_pages();
            }
            marked < pages && visited < visits
        };
        let stopped = space.table.walk(from, Vpn(PAGES), &mut mark);
        space.scan_at = stopped;
        space.scan_debt += marked.saturating_sub(pages);
        if stopped.0 >= PAGES {
            space.scan_pass += 1;
            space.scan_at = Vpn(0);
        }
        if marked > 0 {
            self.stale.push(Stale { task, page: None });
        }
        marked
    }
}

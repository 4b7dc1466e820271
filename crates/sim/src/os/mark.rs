//! Marks on page table entries that make the next page walk fault, to count TLB misses by page.

use memtide_core::policy::Page;
use memtide_core::{TaskId, Vpn};

use super::{Entry, Os, PAGES, Stale};

impl Os {
    /// Marks a task's present pages, all or the chosen ones, so that their next TLB misses are counted.
    pub fn mark(&mut self, task: TaskId) {
        let table = &mut self.spaces[task.index()].table;
        let mut marked = false;
        let mut mark = |entry: &mut Entry| {
            if entry.has(Entry::PRESENT) && !entry.any(Entry::MOVING) {
                entry.set(Entry::MARKED);
                marked = true;
            }
        };
        match &self.counted {
            None => {
                table.walk(Vpn(0), Vpn(PAGES), |_, _, entry| {
                    mark(entry);
                    true
                });
            }
            Some(pages) => {
                let pages = pages.iter().filter(|page| page.task == task && page.page.0 < PAGES);
                pages.for_each(|page| table.find(page.page).into_iter().for_each(|(entry, _)| mark(entry)));
            }
        }
        if marked {
            self.stale.push(Stale { task, page: None });
        }
    }

    /// Marks only these pages from now on; those of before lose their marks.
    pub fn mark_only(&mut self, pages: &[Page]) {
        for page in self.counted.replace(pages.to_vec()).into_iter().flatten() {
            let space = self.spaces.get_mut(page.task.index()).filter(|_| page.page.0 < PAGES);
            if let Some((entry, _)) = space.and_then(|space| space.table.find(page.page)) {
                entry.clear(Entry::MARKED);
            }
        }
    }
}

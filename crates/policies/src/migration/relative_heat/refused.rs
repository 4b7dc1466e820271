//! Pages whose moves were refused: they are left alone for a while. Huge pages that were not split: they are
//! moved whole for a while.

use std::collections::BTreeSet;

use memtide_core::policy::{Move, Page, Refusal};
use memtide_core::{TaskId, Vpn};
use serde::{Deserialize, Serialize};

use super::super::runs::Runs;
use super::pages::Pages;

/// Epochs for which a page that may not move is left alone, and one that was not split is moved whole.
const EPOCHS: u64 = 20;

/// Epochs for which a page that is not there or is in use is left alone.
const EPOCHS_BUSY: u64 = 2;

/// Pages whose moves were refused, each with the last epoch in which it is left alone.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Refused {
    epoch: u64,
    pages: Runs<u64>,
    /// First base pages of huge pages that were not split.
    unsplit: Runs<u64>,
    /// The host does not split huge pages.
    no_splits: bool,
    /// First base pages of those that were not collapsed into huge ones.
    collapses: Runs<u64>,
    /// First epoch in which some are collapsed again, after one that found no free huge page.
    no_room: u64,
    /// The host does not collapse base pages.
    no_collapses: bool,
}

impl Refused {
    /// Records the refusal of a move, if the page was the reason.
    pub fn record(&mut self, wanted: &Move, why: Refusal) {
        let Move { task, size, .. } = *wanted;
        self.record_page(Page { task, page: wanted.head(), size }, why);
    }

    /// Records the refusal of a split. The kernel does not split what several processes map or what is in
    /// use, but may move it.
    pub fn record_split(&mut self, page: Page, why: Refusal) {
        match why {
            Refusal::Unsupported => self.no_splits = true,
            Refusal::Busy | Refusal::NotAllowed => {
                self.unsplit.insert_all(page.task, page.page, 1, self.epoch + EPOCHS);
            }
            _ => self.record_page(page, why),
        }
    }

    /// Huge pages that move whole, by task and first base page.
    pub fn unsplit(&self) -> BTreeSet<(TaskId, u64)> {
        self.unsplit.iter().map(|(task, page, ..)| (task, page.0)).collect()
    }

    /// Whether the host splits huge pages, as far as is known.
    pub fn allows_splits(&self) -> bool {
        !self.no_splits
    }

    /// Records the refusal of a collapse.
    pub fn record_collapse(&mut self, page: Page, why: Refusal) {
        let last = self.epoch + EPOCHS;
        match why {
            Refusal::Unsupported => self.no_collapses = true,
            Refusal::NoRoom => self.no_room = self.epoch + EPOCHS_BUSY,
            _ => self.collapses.insert_all(page.task, page.page, 1, last),
        }
    }

    /// Whether the host collapses base pages now, as far as is known.
    pub fn allows_collapses(&self) -> bool {
        !self.no_collapses && self.epoch >= self.no_room
    }

    /// Whether the base pages from this one on may be collapsed.
    pub fn allows_collapse(&self, task: TaskId, page: u64) -> bool {
        self.collapses.within(task, Vpn(page), Vpn(page.saturating_add(1))).next().is_none()
    }

    fn record_page(&mut self, Page { task, page, size }: Page, why: Refusal) {
        let epochs = match why {
            Refusal::NotAllowed | Refusal::Cooling | Refusal::Pinned => EPOCHS,
            Refusal::Gone | Refusal::Busy => EPOCHS_BUSY,
            _ => return,
        };
        self.pages.insert_all(task, page, size.base_pages(), self.epoch + epochs);
    }

    pub fn end_epoch(&mut self) {
        self.epoch += 1;
        self.pages.retain(|_, _, _, last| last >= self.epoch);
        self.unsplit.retain(|_, _, _, last| last >= self.epoch);
        self.collapses.retain(|_, _, _, last| last >= self.epoch);
    }

    /// Those that were not refused, of all pages.
    pub fn others(&self) -> Others {
        let refused = self.pages.iter().map(|(task, start, pages, _)| (task, start.0, start.0 + pages));
        Others { refused: refused.collect(), next: 0 }
    }
}

/// Leaves refused pages out of pages in order of address.
#[derive(Debug, Default)]
pub(super) struct Others {
    /// Task, first page, and the one after the last.
    refused: Vec<(TaskId, u64, u64)>,
    /// The first run that may matter for the next pages.
    next: usize,
}

impl Others {
    /// Calls `push` with those of these adjacent pages that were not refused. A huge page is left out with
    /// all its parts.
    pub fn each(&mut self, pages: &Pages, mut push: impl FnMut(&Pages)) {
        let size = pages.size.base_pages();
        let (first, last) = (pages.start - pages.start % size, pages.end.next_multiple_of(size));
        let is_before = |&&(task, _, end): &&(TaskId, u64, u64)| (task, end) <= (pages.task, first);
        self.next += self.refused[self.next..].iter().take_while(is_before).count();
        let left = self.refused[self.next..].iter();
        let mut start = pages.start;
        for &(_, from, to) in left.take_while(|&&(task, from, _)| (task, from) < (pages.task, last)) {
            let end = (from - from % size).min(pages.end);
            if start < end {
                push(&Pages { start, end, ..*pages });
            }
            start = start.max(to.next_multiple_of(size));
        }
        if start < pages.end {
            push(&Pages { start, ..*pages });
        }
    }
}

#[cfg(test)]
mod tests {
    use memtide_core::policy::Frame;
    use memtide_core::{NodeId, PageSize, TaskId};

    use super::super::pages::Rate;
    use super::*;

    fn others(refused: &Refused, start: u64, end: u64, size: PageSize) -> Vec<(u64, u64)> {
        let rate = Rate { mean: 1.0, at_least: 1.0, at_most: 1.0 };
        let pages = Pages { task: TaskId(0), start, end, size, node: NodeId(0), rate };
        let mut others = Vec::new();
        refused.others().each(&pages, |part| others.push((part.start, part.end)));
        others
    }

    #[test]
    fn refused_pages_are_left_alone_for_some_epochs_and_huge_ones_whole() {
        let mut refused = Refused::default();
        let wanted = |page| {
            let (task, page, size, from, to) = (TaskId(0), Vpn(page), PageSize::Base, NodeId(0), NodeId(1));
            Move { task, page, size, from, to, wish: Frame::ANY }
        };
        refused.record(&wanted(5), Refusal::NotAllowed);
        refused.record(&wanted(7), Refusal::RateLimited);
        refused.end_epoch();
        refused.record(&wanted(8), Refusal::Busy);
        refused.record(&wanted(600), Refusal::Pinned);
        assert_eq!(others(&refused, 0, 10, PageSize::Base), [(0, 5), (6, 8), (9, 10)]);
        assert_eq!(others(&refused, 5, 6, PageSize::Base), []);
        assert_eq!(others(&refused, 0, 2048, PageSize::Huge), [(1024, 2048)]);
        (0..=EPOCHS_BUSY).for_each(|_| refused.end_epoch());
        assert_eq!(others(&refused, 6, 10, PageSize::Base), [(6, 10)]);
        (EPOCHS_BUSY + 2..EPOCHS).for_each(|_| refused.end_epoch());
        assert_eq!(others(&refused, 5, 9, PageSize::Base), [(6, 9)]);
        refused.end_epoch();
        assert_eq!(others(&refused, 0, 9, PageSize::Base), [(0, 9)]);
    }
}

//! What each page of memory was used for.

use memtide_core::InitiatorId;
use memtide_core::{LINE_BYTES, PAGE_BYTES};

const LINES: u64 = PAGE_BYTES / LINE_BYTES;

/// Reads of a page frame that the private caches missed, on ideal memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageUse {
    /// Lines that the last level fetches without prefetching.
    pub lines: u32,
    /// Demand reads that missed every cache: those not prefetched before.
    pub misses: u32,
    /// The initiator with most of the reads, if one has more than half of them.
    pub initiator: InitiatorId,
    /// Its lead in Boyer and Moore's majority vote.
    lead: u32,
}

impl PageUse {
    fn read(&mut self, by: InitiatorId) {
        self.lines = self.lines.saturating_add(1);
        match (self.initiator == by, self.lead) {
            (true, _) => self.lead += 1,
            (false, 0) => (self.initiator, self.lead) = (by, 1),
            (false, _) => self.lead -= 1,
        }
    }
}

/// Use of all frames, numbered through the nodes.
pub(super) struct PageUses(Vec<PageUse>);

impl PageUses {
    pub fn new(frames: u64) -> PageUses {
        PageUses(vec![PageUse::default(); frames as usize])
    }

    pub fn read(&mut self, line: u64, by: InitiatorId) {
        self.0[(line / LINES) as usize].read(by);
    }

    pub fn miss(&mut self, line: u64) {
        let page = &mut self.0[(line / LINES) as usize];
        page.misses = page.misses.saturating_add(1);
    }

    pub fn clear(&mut self) {
        self.0.fill(PageUse::default());
    }

    pub fn all(&self) -> &[PageUse] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initiator_with_most_reads_is_found() {
        let mut page = PageUse::default();
        for by in [1, 0, 1, 2, 1, 1, 0] {
            page.read(InitiatorId(by));
        }
        assert_eq!((page.lines, page.initiator), (7, InitiatorId(1)));
    }

    #[test]
    fn lines_of_a_frame_count_together() {
        let mut uses = PageUses::new(3);
        for line in [63, 64, 65, 127, 128] {
            uses.read(line, InitiatorId(0));
        }
        uses.miss(64);
        assert_eq!(uses.all().iter().map(|page| page.lines).collect::<Vec<_>>(), [1, 3, 1]);
        assert_eq!(uses.all()[1].misses, 1);
        uses.clear();
        assert_eq!(uses.all()[1], PageUse::default());
    }
}

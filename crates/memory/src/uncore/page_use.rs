//! What each page of memory was used for.

use memtide_core::InitiatorId;
use memtide_core::{LINE_BYTES, PAGE_BYTES};

const LINES: u64 = PAGE_BYTES / LINE_BYTES;

/// Frames that are allocated together.
const FRAMES: usize = 512;

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

/// Use of all frames, numbered through the nodes. Memory is proportional to the frames used.
pub(super) struct PageUses(Vec<Option<Box<[PageUse; FRAMES]>>>);

impl PageUses {
    pub fn new(frames: u64) -> PageUses {
        PageUses(vec![None; (frames as usize).div_ceil(FRAMES)])
    }

    pub fn read(&mut self, line: u64, by: InitiatorId) {
        self.of_line(line).read(by);
    }

    pub fn miss(&mut self, line: u64) {
        let page = self.of_line(line);
        page.misses = page.misses.saturating_add(1);
    }

    fn of_line(&mut self, line: u64) -> &mut PageUse {
        let frame = (line / LINES) as usize;
        let frames = &mut self.0[frame / FRAMES];
        &mut frames.get_or_insert_with(|| Box::new([PageUse::default(); FRAMES]))[frame % FRAMES]
    }

    /// The frames read since the last call, in order, with their use.
    pub fn take(&mut self) -> Vec<(u32, PageUse)> {
        let mut taken = Vec::new();
        for (number, frames) in self.0.iter_mut().enumerate() {
            let uses = frames.take().into_iter().flat_map(|frames| frames.into_iter().enumerate());
            let used = uses.filter(|(_, page)| page.lines > 0);
            taken.extend(used.map(|(at, page)| ((number * FRAMES + at) as u32, page)));
        }
        taken
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
    fn lines_of_a_frame_count_together_until_they_are_taken() {
        let mut uses = PageUses::new(1000);
        for line in [63, 64, 65, 127, 999 * 64] {
            uses.read(line, InitiatorId(0));
        }
        uses.miss(64);
        let taken: Vec<_> =
            uses.take().iter().map(|(frame, page)| (*frame, page.lines, page.misses)).collect();
        assert_eq!(taken, [(0, 1, 0), (1, 3, 1), (999, 1, 0)]);
        assert_eq!(uses.take(), []);
    }
}

//! Parts of a region on one node.

use memtide_core::{NodeId, PageSize};

use super::Found;

/// A sampled page: its node, its size, and whether it was written recently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located {
    pub node: NodeId,
    pub size: PageSize,
    pub written: bool,
}

/// Base pages of a region with the same node, size and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    start: u64,
    end: u64,
    pub located: Located,
}

impl Run {
    /// First base page and length of its pages: those whose middle is in it and that begin at `from` or
    /// later; `None` if there are none.
    pub fn whole(&self, from: u64) -> Option<(u64, u64)> {
        let size = self.located.size.base_pages();
        let bound = |page: u64| page.saturating_sub(size / 2).next_multiple_of(size);
        let start = bound(self.start).max(from.next_multiple_of(size));
        let pages = bound(self.end).checked_sub(start)? / size;
        (pages > 0).then_some((start, pages))
    }
}

/// Runs of equal node, size and writes in a region: each sampled page stands for its part of the region.
/// Parts that are not resident are left out.
pub fn runs(found: &Found, at: &[Option<Located>]) -> Vec<Run> {
    let parts = at.len() as u64;
    let mut runs: Vec<Run> = Vec::new();
    for (part, &located) in (0..parts).zip(at) {
        let bound = |part| found.start + found.pages * part / parts;
        let (start, end) = (bound(part), bound(part + 1));
        let Some(located) = located else { continue };
        match runs.last_mut() {
            Some(last) if last.located == located && last.end == start => last.end = end,
            _ => runs.push(Run { start, end, located }),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUND: Found = Found { start: 1000, pages: 10, accesses: 3, age: 7 };

    fn on(node: u8, written: bool) -> Option<Located> {
        Some(Located { node: NodeId(node), size: PageSize::Base, written })
    }

    #[test]
    fn region_is_split_by_node_and_nonresident_parts_are_left_out() {
        let (a, b) = (on(0, false), on(1, false));
        let runs = runs(&FOUND, &[a, a, b, None, b]);
        let bounds: Vec<(u64, u64, u8)> =
            runs.iter().map(|run| (run.start, run.end, run.located.node.0)).collect();
        assert_eq!(bounds, [(1000, 1004, 0), (1004, 1006, 1), (1008, 1010, 1)]);
        assert_eq!(super::runs(&FOUND, &[None; 5]), []);
        let written = super::runs(&FOUND, &[a, on(0, true), on(0, true), a, a]);
        assert_eq!(written.iter().map(|run| run.end).collect::<Vec<u64>>(), [1002, 1006, 1010]);
    }

    #[test]
    fn hugepages_are_whole_and_do_not_overlap_earlier_runs() {
        let run =
            |start, end, size| Run { start, end, located: Located { node: NodeId(0), size, written: false } };
        for (run, from, whole) in [
            (run(700, 900, PageSize::Huge), 0, Some((512, 1))),
            (run(700, 1300, PageSize::Huge), 600, Some((1024, 1))),
            (run(769, 900, PageSize::Huge), 0, None),
            (run(100, 1000, PageSize::Huge), 513, None),
            (run(700, 900, PageSize::Base), 800, Some((800, 100))),
            (run(700, 900, PageSize::Base), 1024, None),
        ] {
            assert_eq!(run.whole(from), whole, "{run:?}");
        }
    }
}

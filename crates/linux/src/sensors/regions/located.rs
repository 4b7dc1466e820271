//! Parts of a region on one node.

use std::collections::VecDeque;
use std::io;

use memtide_core::{NodeId, PageSize};

use super::Found;

/// A sampled page: its node, its size, and whether it was written recently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located {
    pub node: NodeId,
    pub size: PageSize,
    pub written: bool,
}

impl Located {
    fn place(self) -> (NodeId, PageSize) {
        (self.node, self.size)
    }
}

/// Base pages of a region with the same node, size and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub start: u64,
    pub end: u64,
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

/// Adds pages after all others, if there are any.
pub fn append(runs: &mut Vec<Run>, start: u64, end: u64, located: Located) {
    match runs.last_mut() {
        _ if start >= end => {}
        Some(last) if last.located == located && last.end == start => last.end = end,
        _ => runs.push(Run { start, end, located }),
    }
}

/// A page, and where it is; `None` if it is not resident.
pub type Sample = (u64, Option<Located>);

/// Runs of equal node, size and writes in a region: each of the sampled pages, in address order, stands for
/// those nearest to it. Parts that are not resident are left out.
pub fn runs(found: &Found, samples: &[Sample]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut start = found.start;
    for (at, &(page, located)) in samples.iter().enumerate() {
        let end =
            samples.get(at + 1).map_or(found.start + found.pages, |&(next, _)| (page + next).div_ceil(2));
        if let Some(located) = located {
            match runs.last_mut() {
                Some(last) if last.located == located && last.end == start => last.end = end,
                _ => runs.push(Run { start, end, located }),
            }
        }
        start = end;
    }
    runs
}

/// Finds the borders between samples of a region that are in different places: looks between two of them,
/// over and over, until they are neighbours or in one huge page, or `most` pages were looked at.
///
/// # Errors
/// Those of `look`, which says where pages are.
pub fn refine(
    regions: &mut [Vec<Sample>],
    most: usize,
    mut look: impl FnMut(&[u64]) -> io::Result<Vec<Option<Located>>>,
) -> io::Result<()> {
    let mut left = most;
    loop {
        let all = regions.iter().flat_map(|samples| samples.windows(2)).filter(|pair| is_unknown(pair));
        let pairs: Vec<[Sample; 2]> = all.take(left).map(|pair| [pair[0], pair[1]]).collect();
        if pairs.is_empty() {
            return Ok(());
        }
        left -= pairs.len();
        let pages: Vec<u64> = pairs.iter().map(|pair| middle(pair)).collect();
        let located = pairs.iter().zip(look(&pages)?).map(|(pair, located)| as_neighbour(pair, located?));
        let mut found: VecDeque<Sample> = pages.iter().copied().zip(located).collect();
        for samples in &mut *regions {
            let end = samples.last().map_or(0, |&(last, _)| last);
            let within = found.iter().take_while(|&&(page, _)| page < end).count();
            samples.extend(found.drain(..within));
            samples.sort_unstable_by_key(|&(page, _)| page);
        }
    }
}

/// Whether a border lies somewhere between two samples.
fn is_unknown(pair: &[Sample]) -> bool {
    let [(first, before), (second, after)] = [pair[0], pair[1]];
    let middle = middle(pair);
    let block = |page: u64| page / PageSize::Huge.base_pages();
    let covers_middle = |page: u64, located: Option<Located>| {
        block(page) == block(middle) && located.is_some_and(|located| located.size == PageSize::Huge)
    };
    let is_elsewhere = before.map(Located::place) != after.map(Located::place);
    is_elsewhere && middle > first && !covers_middle(first, before) && !covers_middle(second, after)
}

fn middle(pair: &[Sample]) -> u64 {
    pair[0].0.midpoint(pair[1].0)
}

/// A page with the writes of the neighbour in the same place: only the first samples tell them.
fn as_neighbour(pair: &[Sample], located: Located) -> Option<Located> {
    let neighbour = pair.iter().filter_map(|&(_, near)| near).find(|near| near.place() == located.place());
    Some(neighbour.unwrap_or(located))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUND: Found = Found { start: 1000, pages: 10, accesses: 3, age: 7 };

    fn on(node: u8, written: bool) -> Option<Located> {
        Some(Located { node: NodeId(node), size: PageSize::Base, written })
    }

    fn bounds(samples: &[Sample]) -> Vec<(u64, u64, u8)> {
        runs(&FOUND, samples).iter().map(|run| (run.start, run.end, run.located.node.0)).collect()
    }

    #[test]
    fn region_is_split_by_node_and_nonresident_parts_are_left_out() {
        let (a, b) = (on(0, false), on(1, false));
        let samples = [(1000, a), (1002, a), (1005, b), (1007, None), (1008, b)];
        assert_eq!(bounds(&samples), [(1000, 1004, 0), (1004, 1006, 1), (1008, 1010, 1)]);
        assert_eq!(bounds(&[(1003, None)]), []);
        let written = [(1001, a), (1004, on(0, true)), (1008, a)];
        assert_eq!(bounds(&written).iter().map(|run| run.1).collect::<Vec<u64>>(), [1003, 1006, 1010]);
    }

    #[test]
    fn borders_between_samples_are_found_in_few_looks() {
        // Pages from 300,123 on are on node 1; those from 500,224 on are huge.
        let place = |page: u64| Located {
            node: NodeId(u8::from(page >= 300_123)),
            size: if page >= 500_224 { PageSize::Huge } else { PageSize::Base },
            written: false,
        };
        let sampled = |pages: &[u64]| pages.iter().map(|&page| (page, Some(place(page)))).collect::<Vec<_>>();
        let mut regions = vec![sampled(&[7, 200_000]), sampled(&[290_000, 400_000, 700_000]), vec![]];
        let mut looked = 0;
        refine(&mut regions, 1000, |pages| {
            looked += pages.len();
            Ok(pages.iter().map(|&page| Some(place(page))).collect())
        })
        .unwrap();
        assert!(looked < 40, "{looked}");
        let found = Found { start: 290_000, pages: 410_000, ..FOUND };
        let ends: Vec<u64> = runs(&found, &regions[1]).iter().map(|run| run.end).collect();
        assert_eq!(ends[0], 300_123);
        assert!(ends[1].abs_diff(500_224) <= 512, "{ends:?}");
        assert_eq!((ends[2], ends.len()), (700_000, 3));

        let mut regions = vec![sampled(&[290_000, 400_000])];
        refine(&mut regions, 5, |pages| Ok(pages.iter().map(|&page| Some(place(page))).collect())).unwrap();
        assert_eq!(regions[0].len(), 7, "no more than five looks");
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

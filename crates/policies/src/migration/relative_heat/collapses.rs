//! Base pages to collapse into huge pages: accesses to them then miss the TLB less often.

use memtide_core::policy::{Action, Frame, Move, NodeView, Page, Plan, Reason};
use memtide_core::{NodeId, PageSize, TaskId, Vpn};

use super::super::room::Room;
use super::RelativeHeat;
use super::pages::{Pages, Rate};

/// How many times as long as a collapse takes its accesses must wait for page table entries before it.
const MARGIN: f64 = 2.0;

/// Base pages whose mean is compared with pages elsewhere: of a few, chance says too much.
const GRANULE: u64 = HUGE_PAGES / 8;

/// Most base pages of a block that are gathered from other nodes.
const STRAYS_MAX: u64 = HUGE_PAGES / 8;

/// Free base pages of a node from which on the kernel gathers those of a huge page, and some more:
/// `compaction_suitable` in mm/compaction.c wants two huge pages beyond its watermark.
const ROOM: u64 = 3 * HUGE_PAGES;

/// Part of a node that this is at most.
const ROOM_PART: u64 = 50;

const HUGE_PAGES: u64 = PageSize::Huge.base_pages();

/// 2 MiB of base pages.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Block {
    /// All of them, as if on their home node.
    pub pages: Pages,
    /// Accesses per epoch of a page of the coolest [`GRANULE`].
    pub coolest: f64,
    /// The few that are on other nodes.
    pub strays: Vec<Pages>,
}

/// Finds the blocks that are accessed enough, as pages come in order of address.
#[derive(Debug)]
pub(super) struct Blocks {
    /// Least accesses per epoch, by node.
    least: Vec<f64>,
    /// Blocks to keep: those accessed the most.
    most: usize,
    begun: Begun,
    found: Vec<Block>,
}

/// The first pages of the latest block.
#[derive(Clone, Debug, Default)]
struct Begun {
    task: TaskId,
    /// The base page after the last one; 0: none has begun.
    end: u64,
    accesses: f64,
    /// Those of the latest granule, and the least of all granules before it.
    latest: f64,
    least: f64,
    /// First base page of each part that is on one node.
    parts: Vec<(u64, NodeId)>,
}

impl Blocks {
    pub fn new(least: Vec<f64>, most: usize) -> Blocks {
        Blocks { least, most, begun: Begun::default(), found: Vec::new() }
    }

    /// Adds adjacent base pages.
    pub fn add(&mut self, pages: &Pages) {
        let Pages { task, node, rate: Rate { mean, .. }, .. } = *pages;
        let mut start = pages.start;
        while start < pages.end {
            if start.is_multiple_of(HUGE_PAGES) {
                let is_cool = mean * (HUGE_PAGES as f64) < self.least[node.index()];
                if is_cool || start - pages.start >= self.most as u64 * HUGE_PAGES + HUGE_PAGES {
                    // None of the whole blocks here, or enough that are alike.
                    start = start.max(pages.end - pages.end % HUGE_PAGES);
                }
                self.begun.begin(task, start);
            }
            let end = (start - start % GRANULE + GRANULE).min(pages.end);
            if (self.begun.task, self.begun.end) == (task, start) {
                self.begun.add(node, mean, end);
                if end.is_multiple_of(HUGE_PAGES) {
                    self.end_block();
                }
            }
            start = end;
        }
    }

    fn end_block(&mut self) {
        let Some(block) = self.begun.block() else { return };
        if block.pages.accesses() >= self.least[block.pages.node.index()] {
            self.found.push(block);
            if self.found.len() == self.most.saturating_mul(2) {
                self.shrink();
            }
        }
    }

    fn shrink(&mut self) {
        self.found.sort_by(|a, b| Pages::hottest_first(&a.pages, &b.pages));
        self.found.truncate(self.most);
    }

    /// By decreasing rate.
    pub fn sorted(mut self) -> Vec<Block> {
        self.shrink();
        self.found
    }
}

impl Begun {
    fn begin(&mut self, task: TaskId, start: u64) {
        (self.task, self.end) = (task, start);
        (self.accesses, self.latest, self.least) = (0.0, 0.0, f64::INFINITY);
        self.parts.clear();
    }

    fn add(&mut self, node: NodeId, mean: f64, end: u64) {
        if self.parts.last().is_none_or(|&(_, last)| last != node) {
            self.parts.push((self.end, node));
        }
        self.latest += mean * (end - self.end) as f64;
        self.end = end;
        if end.is_multiple_of(GRANULE) {
            self.accesses += self.latest;
            self.least = self.least.min(self.latest);
            self.latest = 0.0;
        }
    }

    /// All its pages; `None` if too many are on other nodes than most.
    fn block(&self) -> Option<Block> {
        let start = self.end - HUGE_PAGES;
        let ends = self.parts.iter().skip(1).map(|&(start, _)| start).chain([self.end]);
        let parts = || self.parts.iter().zip(ends.clone()).map(|(&(start, node), end)| (start, end, node));
        let on =
            |home| parts().filter(|&(.., node)| node == home).map(|(start, end, _)| end - start).sum::<u64>();
        let (.., home) = parts().find(|&(.., node)| on(node) >= HUGE_PAGES - STRAYS_MAX)?;
        let rate = Rate::by_samples(self.accesses / HUGE_PAGES as f64, true);
        let pages =
            |start, end, node| Pages { task: self.task, start, end, size: PageSize::Base, node, rate };
        let strays = parts().filter(|&(.., node)| node != home);
        Some(Block {
            pages: pages(start, self.end, home),
            coolest: self.least / GRANULE as f64,
            strays: strays.map(|(start, end, node)| pages(start, end, node)).collect(),
        })
    }
}

impl RelativeHeat {
    /// Accesses per epoch to 2 MiB of base pages on each node from which on a collapse pays.
    pub(super) fn least_to_collapse(&self) -> Vec<f64> {
        let of = |node| match self.sampled.epochs().is_some() && self.refused.allows_collapses() {
            true => MARGIN * self.collapse_ns(node) / (self.payback * self.walk_ns),
            false => f64::INFINITY,
        };
        (0..self.nodes.len()).map(of).collect()
    }

    /// Cost of the collapse of 2 MiB on a node, in ns.
    fn collapse_ns(&self, node: usize) -> f64 {
        let node = &self.nodes[node];
        HUGE_PAGES as f64 * 2.0 * node.copy.as_ns() + self.costs.move_ns(node.move_ns)
    }

    /// The most blocks that are collapsed in an epoch.
    pub(super) fn collapses_max(&self) -> usize {
        (self.pages / HUGE_PAGES).max(1) as usize
    }

    /// Those of these blocks that may be collapsed, as far as is known: on the fastest tier, the `hottest`
    /// pages elsewhere are not worth the place of their coolest granule's.
    pub(super) fn to_collapse(&self, mut blocks: Vec<Block>, hottest: Option<&Pages>) -> Vec<Block> {
        let yields = |pages: &Pages, coolest| {
            let rate = Rate::by_samples(coolest, true);
            hottest.is_some_and(|hottest| self.pays_instead(hottest, &Pages { rate, ..*pages }))
        };
        blocks.retain(|Block { pages, coolest, strays }| {
            self.refused.allows_collapse(pages.task, pages.start)
                && if self.tier(pages.node) == 0 { !yields(pages, *coolest) } else { strays.is_empty() }
        });
        blocks
    }

    /// Base pages to be demoted from a node for the collapse of blocks: the kernel makes a huge page of free
    /// memory that is not on per-CPU lists.
    pub(super) fn short_to_collapse(&self, blocks: &[Block], used: &NodeView) -> u64 {
        let is_wanted = self.tier(used.node) == 0 && blocks.iter().any(|block| block.pages.node == used.node);
        if is_wanted { ROOM.min(used.pages / ROOM_PART).saturating_sub(used.free_pages) } else { 0 }
    }

    /// Plans collapses of blocks, by decreasing rate, of which nothing moves; on slower tiers, once nothing
    /// moves at all. Strays move first, and their block is collapsed in a later epoch. Returns the waiting
    /// that all this saves in the payback time, in ns.
    pub(super) fn collapse(&self, blocks: &[Block], nodes: &[NodeView], plan: &mut Plan) -> f64 {
        if blocks.is_empty() {
            return 0.0;
        }
        let mut moved: Vec<(TaskId, u64)> =
            plan.moves().map(|wanted| (wanted.task, wanted.page.0 / HUGE_PAGES * HUGE_PAGES)).collect();
        moved.sort_unstable();
        let stays = |block: &&Block| match self.tier(block.pages.node) {
            0 => moved.binary_search(&(block.pages.task, block.pages.start)).is_err(),
            _ => moved.is_empty(),
        };
        let mut room = Room::new(self.nodes.len(), nodes, 0.0);
        let mut saved_ns = 0.0;
        for Block { pages, strays, .. } in blocks.iter().filter(stays).take(self.collapses_max()) {
            let Pages { task, node, .. } = *pages;
            if strays.is_empty() {
                let page = Page { task, page: Vpn(pages.start), size: PageSize::Huge };
                plan.push(Action::Collapse(page), Reason::TlbMisses);
                saved_ns += pages.accesses() * self.payback * self.walk_ns - self.collapse_ns(node.index());
                continue;
            }
            let all: u64 = strays.iter().map(Pages::base_pages).sum();
            if room.of(node) < all + HUGE_PAGES {
                continue;
            }
            for stray in strays {
                for page in stray.start..stray.end {
                    let (size, from) = (PageSize::Base, stray.node);
                    let wanted = Move { task, page: Vpn(page), size, from, to: node, wish: Frame::ANY };
                    plan.push_move(wanted, Reason::Hot);
                }
                room.shift(stray.node, node, stray.base_pages());
                saved_ns += stray.base_pages() as f64 * self.net_ns(stray, node);
            }
        }
        saved_ns
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LEAST: f64 = 600.0;

    /// The blocks of base pages, each with its node and rate, by a look at each of them.
    fn expected(pages: &[Option<(NodeId, f64)>]) -> Vec<Block> {
        let mut found = Vec::new();
        for (start, block) in (0..).step_by(HUGE_PAGES as usize).zip(pages.chunks_exact(HUGE_PAGES as usize))
        {
            let Some(block) = block.iter().copied().collect::<Option<Vec<_>>>() else { continue };
            let sum = |pages: &[(NodeId, f64)]| pages.iter().map(|(_, mean)| mean).sum::<f64>();
            let on = |home| block.iter().filter(|&&(node, _)| node == home).count() as u64;
            let Some(home) = [0, 1].map(NodeId).into_iter().find(|&home| on(home) >= HUGE_PAGES - STRAYS_MAX)
            else {
                continue;
            };
            if sum(&block) < LEAST {
                continue;
            }
            let rate = Rate::by_samples(sum(&block) / HUGE_PAGES as f64, true);
            let pages =
                |start, end, node| Pages { task: TaskId(3), start, end, size: PageSize::Base, node, rate };
            let strays = (start..).zip(&block).filter(|(_, (node, _))| *node != home);
            let mut joined: Vec<Pages> = Vec::new();
            for (page, &(node, _)) in strays {
                match joined.last_mut().filter(|last| last.end == page) {
                    Some(last) => last.end += 1,
                    None => joined.push(pages(page, page + 1, node)),
                }
            }
            let coolest = block.chunks(GRANULE as usize).map(sum).fold(f64::INFINITY, f64::min);
            found.push(Block {
                pages: pages(start, start + HUGE_PAGES, home),
                coolest: coolest / GRANULE as f64,
                strays: joined,
            });
        }
        found
    }

    #[test]
    fn long_run_gives_as_many_blocks_as_are_kept() {
        let mut blocks = Blocks::new(vec![LEAST], 3);
        let rate = Rate::by_samples(2.0, true);
        let (task, size, node) = (TaskId(3), PageSize::Base, NodeId(0));
        blocks.add(&Pages { task, start: 0, end: 1 << 51, size, node, rate });
        let starts: Vec<u64> = blocks.sorted().iter().map(|block| block.pages.start).collect();
        assert_eq!(starts, [0, 512, 1024]);
    }

    proptest! {
        /// Blocks are found however their pages come: one by one, or many at once.
        #[test]
        fn blocks_are_the_base_pages_of_2_mib(
            runs in prop::collection::vec((1..1500u64, 0..9u8, 0..4u32, any::<bool>()), 1..12),
        ) {
            let mut blocks = Blocks::new(vec![LEAST; 2], 100);
            let mut all = Vec::new();
            for (length, kind, rate, is_whole) in runs {
                // Most pages are on node 0; some runs are short and on node 1, and some are missing.
                let (length, node) = match kind {
                    0 => (length % 70 + 1, Some(NodeId(1))),
                    1 => (length % 70 + 1, None),
                    _ => (length, Some(NodeId(0))),
                };
                let start = all.len() as u64;
                all.extend((0..length).map(|_| node.map(|node| (node, f64::from(rate)))));
                let Some(node) = node else { continue };
                let step = if is_whole { length } else { 1 };
                for at in (0..length).step_by(step as usize) {
                    let rate = Rate::by_samples(f64::from(rate), true);
                    let (start, end) = (start + at, start + at + step);
                    blocks.add(&Pages { task: TaskId(3), start, end, size: PageSize::Base, node, rate });
                }
            }
            let mut expected = expected(&all);
            expected.sort_by(|a, b| Pages::hottest_first(&a.pages, &b.pages));
            prop_assert_eq!(blocks.sorted(), expected);
        }
    }
}

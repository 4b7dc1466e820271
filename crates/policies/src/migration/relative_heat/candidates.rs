//! The pages to choose an epoch's plan from: of all pages, only the coolest on the fastest tier and the
//! hottest elsewhere are kept.

use std::collections::BTreeSet;

use memtide_core::policy::Page;
use memtide_core::{PageSize, TaskId};

use super::collapses::{Block, Blocks};
use super::pages::{Pages, Rate};
use super::refused::{Others, Refused};
use super::splits::{Parts, is_part, whole};

/// Pages of which at most some are kept: the hottest, or the coolest.
#[derive(Debug)]
struct Top {
    most: usize,
    is_hottest: bool,
    pages: Vec<Pages>,
    /// Value of the last one of those that were kept when there were too many.
    least: f64,
}

impl Top {
    fn new(most: usize, is_hottest: bool) -> Top {
        Top { most, is_hottest, pages: Vec::new(), least: f64::NEG_INFINITY }
    }

    fn value(&self, pages: &Pages) -> f64 {
        if self.is_hottest { pages.rate.mean } else { -pages.rate.mean }
    }

    fn add(&mut self, pages: &Pages) {
        if self.value(pages) > self.least {
            self.pages.push(*pages);
            if self.pages.len() == self.most.saturating_mul(2) {
                self.shrink();
            }
        }
    }

    fn shrink(&mut self) {
        let (is_hottest, last) = (self.is_hottest, self.most - 1);
        let order = |a: &Pages, b: &Pages| match is_hottest {
            true => Pages::hottest_first(a, b),
            false => Pages::hottest_first(b, a),
        };
        let (_, &mut last, _) = self.pages.select_nth_unstable_by(last, order);
        self.least = self.value(&last);
        self.pages.truncate(self.most);
    }

    /// By decreasing rate.
    fn sorted(mut self) -> Vec<Pages> {
        if self.pages.len() > self.most {
            self.shrink();
        }
        self.pages.sort_unstable_by(Pages::hottest_first);
        self.pages
    }
}

/// Number of base pages, and accesses per epoch, of the pages on a node.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Total {
    pub base_pages: u64,
    pub accesses: f64,
}

/// All pages as they come, in order of address.
#[derive(Debug)]
pub(super) struct Collector {
    others: Others,
    /// Huge pages that move whole.
    unsplit: BTreeSet<(TaskId, u64)>,
    /// Whether a node is on the fastest tier.
    is_fast: Vec<bool>,
    accesses: f64,
    totals: Vec<Total>,
    victims: Top,
    hot: Top,
    cool_parts: Top,
    hot_parts: Top,
    wholes: Vec<Parts>,
    /// The huge page of the latest part.
    joined: Option<Pages>,
    blocks: Blocks,
}

/// Pages and parts of huge pages, each by decreasing rate.
#[derive(Debug)]
pub(super) struct Candidates {
    /// Accesses per epoch of all pages.
    pub accesses: f64,
    /// Of the pages that may move, by node.
    pub totals: Vec<Total>,
    /// The coolest pages on the fastest tier, and the hottest elsewhere.
    pub victims: Vec<Pages>,
    pub hot: Vec<Pages>,
    /// The same of parts of huge pages.
    pub cool_parts: Vec<Pages>,
    pub hot_parts: Vec<Pages>,
    /// The huge pages that have parts and may be split, in order.
    pub wholes: Vec<Parts>,
    /// Blocks of base pages that are accessed enough to be collapsed, by decreasing rate.
    pub blocks: Vec<Block>,
}

impl Collector {
    /// Of the pages that were not refused, keeps at most `most` for each purpose, and this many victims.
    pub fn new(
        refused: &Refused,
        is_fast: Vec<bool>,
        most: usize,
        victims: usize,
        blocks: Blocks,
    ) -> Collector {
        Collector {
            others: refused.others(),
            unsplit: refused.unsplit(),
            accesses: 0.0,
            totals: vec![Total::default(); is_fast.len()],
            is_fast,
            victims: Top::new(victims, false),
            hot: Top::new(most, true),
            cool_parts: Top::new(most, false),
            hot_parts: Top::new(most, true),
            wholes: Vec::new(),
            joined: None,
            blocks,
        }
    }

    /// Adds adjacent pages, or a part of a huge page; its other parts follow.
    pub fn add(&mut self, pages: &Pages) {
        self.accesses += pages.accesses();
        let mut others = std::mem::take(&mut self.others);
        others.each(pages, |pages| self.add_movable(pages));
        self.others = others;
    }

    fn add_movable(&mut self, pages: &Pages) {
        let node = pages.node.index();
        self.totals[node].base_pages += pages.base_pages();
        self.totals[node].accesses += pages.accesses();
        if self.joined.is_some_and(|joined| !is_part(pages) || whole(&joined) != whole(pages)) {
            self.end_whole();
        }
        if pages.size == PageSize::Base {
            self.blocks.add(pages);
        }
        if !is_part(pages) {
            return self.add_whole(pages);
        }
        if !self.unsplit.contains(&whole(pages)) {
            let parts = if self.is_fast[node] { &mut self.cool_parts } else { &mut self.hot_parts };
            parts.add(pages);
        }
        self.joined = Some(match self.joined {
            None => *pages,
            Some(first) => {
                let base_pages = (first.base_pages() + pages.base_pages()) as f64;
                let mean = (first.accesses() + pages.accesses()) / base_pages;
                let is_seen = first.rate.at_least > 0.0 || pages.rate.at_least > 0.0;
                Pages { end: pages.end, rate: Rate::by_samples(mean, is_seen), ..first }
            }
        });
    }

    fn add_whole(&mut self, pages: &Pages) {
        if self.is_fast[pages.node.index()] { self.victims.add(pages) } else { self.hot.add(pages) }
    }

    fn end_whole(&mut self) {
        // A view may be wrong about where huge pages begin.
        let is_all = |pages: &Pages| pages.base_pages() == PageSize::Huge.base_pages();
        if let Some(whole) = self.joined.take().filter(is_all) {
            if !self.unsplit.contains(&(whole.task, whole.start)) {
                self.wholes.push(Parts::of(&whole));
            }
            self.add_whole(&whole);
        }
    }

    pub fn end(mut self) -> Candidates {
        self.end_whole();
        Candidates {
            accesses: self.accesses,
            totals: self.totals,
            victims: self.victims.sorted(),
            hot: self.hot.sorted(),
            cool_parts: self.cool_parts.sorted(),
            hot_parts: self.hot_parts.sorted(),
            wholes: self.wholes,
            blocks: self.blocks.sorted(),
        }
    }
}

impl Candidates {
    /// Removes huge pages that are to be split.
    pub fn leave_out(&mut self, splits: &[(Page, f64)]) {
        let splits: BTreeSet<(TaskId, u64)> =
            splits.iter().map(|(split, _)| (split.task, split.page.0)).collect();
        let is_left =
            |pages: &Pages| pages.size == PageSize::Base || !splits.contains(&(pages.task, pages.start));
        self.victims.retain(is_left);
        self.hot.retain(is_left);
    }
}

#[cfg(test)]
mod tests {
    use memtide_core::NodeId;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The pages that are kept are the first ones of all, sorted.
        #[test]
        fn hottest_and_coolest_pages_are_kept(
            rates in prop::collection::vec((0..50u32, any::<bool>()), 0..200),
            most in 1..40usize,
        ) {
            let blocks = Blocks::new(vec![f64::INFINITY; 2], 1);
            let mut collector = Collector::new(&Refused::default(), vec![true, false], most, most, blocks);
            let pages = |(at, &(rate, is_slow)): (u64, &(u32, bool))| Pages {
                task: TaskId(0),
                start: at,
                end: at + 1,
                size: PageSize::Base,
                node: NodeId(u8::from(is_slow)),
                rate: Rate::by_samples(rate.into(), true),
            };
            let all: Vec<Pages> = (0..).zip(&rates).map(pages).collect();
            all.iter().for_each(|pages| collector.add(pages));
            let found = collector.end();
            let rates = |pages: &[Pages]| pages.iter().map(|pages| pages.rate.mean).collect::<Vec<_>>();
            let on = |node| {
                let of_node = all.iter().filter(|pages| pages.node == NodeId(node));
                let mut own: Vec<Pages> = of_node.copied().collect();
                own.sort_by(Pages::hottest_first);
                rates(&own)
            };
            let (fast, slow) = (on(0), on(1));
            prop_assert_eq!(rates(&found.victims), &fast[fast.len().saturating_sub(most)..]);
            prop_assert_eq!(rates(&found.hot), &slow[..slow.len().min(most)]);
            let sum: f64 = fast.iter().chain(&slow).sum();
            let on_nodes: f64 = found.totals.iter().map(|total| total.accesses).sum();
            prop_assert_eq!((found.accesses, on_nodes), (sum, sum));
        }
    }
}

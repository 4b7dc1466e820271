//! 2 MiB of pages with many samples: all its blocks in one array, which is faster than to search for each.
//!
//! Functions are not inlined: they take much stack, and their callers are recursive.

use std::ops::Range;

use memtide_core::PageSize;

use super::super::weight::Weight;
use super::shares::{Shares, Spreads, Variances, is_few};

const PAGES: usize = PageSize::Huge.base_pages() as usize;

/// Samples of 2 MiB of pages. Block 1 is all of it, and the halves of block `n` are `2 n` and `2 n + 1`: pages
/// are the blocks from 512 on.
#[derive(Clone, Debug)]
pub(super) struct Block([Weight; 2 * PAGES]);

impl Block {
    pub const PAGES: usize = PAGES;

    /// By pages, counted from 0 on.
    #[inline(never)]
    pub fn of(samples: impl Iterator<Item = (usize, Weight)>) -> Block {
        let mut all = [Weight::default(); 2 * PAGES];
        samples.for_each(|(page, weight)| all[PAGES + page] = weight);
        (1..PAGES).rev().for_each(|block| all[block] = all[2 * block] + all[2 * block + 1]);
        Block(all)
    }

    fn shares(&self, block: usize) -> Shares {
        Shares::of(0.5, [self.0[2 * block], self.0[2 * block + 1]], self.0[block])
    }

    /// Adds the halves of all blocks.
    #[inline(never)]
    pub fn spread(&self, spreads: &mut Spreads) {
        for block in (1..PAGES).filter(|&block| !is_few(self.0[block])) {
            spreads.add(level(block), &self.shares(block));
        }
    }

    /// Calls `push` with the parts of all pages, in order, whose mean rate this is: pages, rate, and whether
    /// they were sampled.
    #[inline(never)]
    pub fn divide(&self, rate: f64, known: &Variances, push: &mut dyn FnMut(Range<usize>, f64, bool)) {
        let mut rates = [(rate, false); 2 * PAGES];
        for block in 1..PAGES {
            let (rate, is_whole) = rates[block];
            let halves = if is_whole || is_few(self.0[block]) || level(block) < known.lowest {
                [(rate, true); 2]
            } else {
                let first = 2.0 * self.shares(block).believed(known.at(level(block)));
                [(rate * first, false), (rate * (2.0 - first), false)]
            };
            rates[2 * block..2 * block + 2].copy_from_slice(&halves);
        }
        let mut start = 0;
        for alike in rates[PAGES..].chunk_by(|a, b| a.0 == b.0) {
            let end = start + alike.len();
            let is_seen = self.0[PAGES + start..PAGES + end].iter().any(|weight| weight.accesses > 0.0);
            push(start..end, alike[0].0, is_seen);
            start = end;
        }
    }
}

/// Binary logarithm of a block's pages.
fn level(block: usize) -> u32 {
    PAGES.ilog2() - block.ilog2()
}

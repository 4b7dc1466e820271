//! 2 MiB of pages with many samples: all its blocks in one array, which is faster than to search for each.

use std::ops::Range;

use memtide_core::PageSize;

use super::super::weight::Weight;
use super::shares::{Shares, Spreads, Variances, is_few};

const PAGES: usize = PageSize::Huge.base_pages() as usize;

/// Samples of 2 MiB of pages. Block 1 is all of it, and the halves of block `n` are `2 n` and `2 n + 1`:
/// pages are the blocks from 512 on.
#[derive(Clone, Debug)]
pub(super) struct Block(Box<[Weight; 2 * PAGES]>);

impl Block {
    pub const PAGES: usize = PAGES;

    /// Without samples.
    pub fn new() -> Block {
        Block(Box::new([Weight::default(); 2 * PAGES]))
    }

    /// Replaces the samples, by pages counted from 0 on.
    pub fn set(&mut self, samples: impl Iterator<Item = (usize, Weight)>) {
        let all = &mut *self.0;
        all[PAGES..].fill(Weight::default());
        samples.for_each(|(page, weight)| all[PAGES + page] = weight);
        (1..PAGES).rev().for_each(|block| all[block] = all[2 * block] + all[2 * block + 1]);
    }

    #[inline]
    fn shares(&self, block: usize) -> Shares {
        Shares::of(self.0[block], self.0[2 * block], 0.5)
    }

    /// Adds the halves of all blocks.
    pub fn spread(&self, spreads: &mut Spreads) {
        for level in 1..=PAGES.ilog2() {
            let (first, pages) = (PAGES >> level, f64::from(1u32 << level));
            for block in (first..2 * first).filter(|&block| !is_few(self.0[block])) {
                spreads.add(level, pages, &self.shares(block));
            }
        }
    }

    /// Calls `push` with the parts of all pages, in order, whose mean rate this is: pages, rate, and whether
    /// they were sampled. Not inlined: it takes much stack, and its callers are recursive.
    #[inline(never)]
    pub fn divide(&self, rate: f64, known: &Variances, push: &mut dyn FnMut(Range<usize>, f64, bool)) {
        let mut rates = [rate; 2 * PAGES];
        let mut is_whole = [false; 2 * PAGES];
        for level in (1..=PAGES.ilog2()).rev() {
            let (first, pages) = (PAGES >> level, f64::from(1u32 << level));
            for block in first..2 * first {
                let rate = rates[block];
                let whole = is_whole[block] || level < known.lowest || is_few(self.0[block]);
                let believed = || self.shares(block).believed(known.of(level, pages, self.0[block]));
                let of_first = if whole { 1.0 } else { 2.0 * believed() };
                (rates[2 * block], rates[2 * block + 1]) = (rate * of_first, rate * (2.0 - of_first));
                (is_whole[2 * block], is_whole[2 * block + 1]) = (whole, whole);
            }
        }
        let mut start = 0;
        for alike in rates[PAGES..].chunk_by(|a, b| a == b) {
            let end = start + alike.len();
            let is_seen = self.0[PAGES + start..PAGES + end].iter().any(|weight| weight.accesses > 0.0);
            push(start..end, alike[0], is_seen);
            start = end;
        }
    }
}

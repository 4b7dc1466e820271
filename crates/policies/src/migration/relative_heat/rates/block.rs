//! 2 MiB of pages with many samples: all its blocks in one array, which is faster than to search for each.

use std::ops::Range;

use memtide_core::PageSize;

use super::super::weight::Weight;
use super::shares::{Shares, Spreads, Variances, is_few};

const PAGES: usize = PageSize::Huge.base_pages() as usize;

/// Samples of 2 MiB of pages. Block 1 is all of it, and the halves of block `n` are `2 n` and `2 n + 1`:
/// pages are the blocks from 512 on.
#[derive(Clone, Debug)]
pub(super) struct Block {
    weights: Box<[Weight; 2 * PAGES]>,
    /// Accesses of a page per epoch, and whether the block is not divided.
    rates: Box<[(f64, bool); 2 * PAGES]>,
}

impl Block {
    pub const PAGES: usize = PAGES;

    /// Without samples.
    pub fn new() -> Block {
        let weights = Box::new([Weight::default(); 2 * PAGES]);
        Block { weights, rates: Box::new([(0.0, false); 2 * PAGES]) }
    }

    /// Replaces the samples, by pages counted from 0 on.
    pub fn set(&mut self, samples: impl Iterator<Item = (usize, Weight)>) {
        let all = &mut *self.weights;
        all[PAGES..].fill(Weight::default());
        samples.for_each(|(page, weight)| all[PAGES + page] = weight);
        (1..PAGES).rev().for_each(|block| all[block] = all[2 * block] + all[2 * block + 1]);
    }

    #[inline]
    fn shares(&self, block: usize) -> Shares {
        Shares::of(self.weights[block], self.weights[2 * block], 0.5)
    }

    /// Adds the halves of all blocks.
    pub fn spread(&self, spreads: &mut Spreads) {
        for level in 1..=PAGES.ilog2() {
            let (first, pages) = (PAGES >> level, f64::from(1u32 << level));
            for block in (first..2 * first).filter(|&block| !is_few(self.weights[block])) {
                spreads.add(level, pages, &self.shares(block));
            }
        }
    }

    /// Calls `push` with the parts of all pages, in order, whose mean rate this is: pages, rate, and whether
    /// they were sampled.
    pub fn divide(&mut self, rate: f64, known: &Variances, push: &mut dyn FnMut(Range<usize>, f64, bool)) {
        self.rates[1] = (rate, false);
        let lowest = known.lowest.max(1);
        for level in (lowest..=PAGES.ilog2()).rev() {
            let (first, pages) = (PAGES >> level, f64::from(1u32 << level));
            for block in first..2 * first {
                let (rate, is_whole) = self.rates[block];
                let weight = self.weights[block];
                let halves = if is_whole || is_few(weight) {
                    [(rate, true); 2]
                } else {
                    let of_first = 2.0 * self.shares(block).believed(known.of(level, pages, weight));
                    [(rate * of_first, false), (rate * (2.0 - of_first), false)]
                };
                self.rates[2 * block..2 * block + 2].copy_from_slice(&halves);
            }
        }
        let (first, pages) = (PAGES >> (lowest - 1), 1 << (lowest - 1));
        let mut start = 0;
        for alike in self.rates[first..2 * first].chunk_by(|(a, _), (b, _)| a == b) {
            let end = start + alike.len();
            let is_seen = self.weights[first + start..first + end].iter().any(|weight| weight.accesses > 0.0);
            push(start * pages..end * pages, alike[0].0, is_seen);
            start = end;
        }
    }
}

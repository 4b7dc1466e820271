//! How long accesses to slow memory wait, relative to each other, by 2 MiB of pages.
//!
//! Pages that a program accesses many at a time wait for each other on a node whose other pages do not. On
//! fast memory that cannot be seen: pages that moved there keep what is known of them.

use memtide_core::{PageSize, TaskId};
use serde::{Deserialize, Serialize};

use super::sampled::Fresh;

/// Samples with the mean wait that a block is taken to have had before.
const PRIOR: f32 = 20.0;

/// Maximum samples of a block that count.
const SAMPLES_MAX: f32 = 200.0;

/// Minimum samples of an epoch, to tell the mean wait by.
const SAMPLES_MIN: usize = 30;

/// 2 MiB of pages, and how long their samples waited.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Block {
    task: TaskId,
    samples: f32,
    /// Relative to all samples of the same epochs, in the mean.
    wait: f32,
    number: u64,
}

/// Of all blocks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Waits {
    /// By task and number.
    blocks: Vec<Block>,
}

type Key = (TaskId, u64);

/// The block of a page.
fn block_of((task, page): (TaskId, u64)) -> Key {
    (task, page / PageSize::Huge.base_pages())
}

impl Block {
    fn key(&self) -> Key {
        (self.task, self.number)
    }

    fn add(&mut self, wait: f32) {
        self.samples = (self.samples + 1.0).min(SAMPLES_MAX);
        self.wait += (wait - self.wait) / self.samples;
    }

    fn factor(&self) -> f32 {
        (self.samples * self.wait + PRIOR) / (self.samples + PRIOR)
    }
}

impl Waits {
    /// Learns from an epoch's samples, which are sorted by page, and multiplies the accesses that each counts
    /// as by how long those of its block wait on slow memory, relative to others.
    pub fn correct(&mut self, samples: &mut [Fresh]) {
        let waits = samples.iter().filter_map(Fresh::wait_ns);
        let (number, sum_ns) = waits.fold((0, 0.0), |(number, sum), ns| (number + 1, sum + f64::from(ns)));
        if number >= SAMPLES_MIN && sum_ns > 0.0 {
            self.learn(samples, (sum_ns / number as f64) as f32);
        }
        for own in samples.chunk_by_mut(|a, b| block_of(a.page()) == block_of(b.page())) {
            if let Ok(at) = self.find(block_of(own[0].page())) {
                let factor = self.blocks[at].factor();
                own.iter_mut().for_each(|sample| sample.accesses *= factor);
            }
        }
    }

    fn find(&self, key: Key) -> Result<usize, usize> {
        self.blocks.binary_search_by_key(&key, Block::key)
    }

    fn learn(&mut self, samples: &[Fresh], mean_ns: f32) {
        let mut found = Vec::new();
        for own in samples.chunk_by(|a, b| block_of(a.page()) == block_of(b.page())) {
            let mut waits = own.iter().filter_map(Fresh::wait_ns).map(|ns| ns / mean_ns).peekable();
            if waits.peek().is_none() {
                continue;
            }
            let (task, number) = block_of(own[0].page());
            match self.find((task, number)) {
                Ok(at) => waits.for_each(|wait| self.blocks[at].add(wait)),
                Err(_) => {
                    let mut block = Block { task, samples: 0.0, wait: 0.0, number };
                    waits.for_each(|wait| block.add(wait));
                    found.push(block);
                }
            }
        }
        self.blocks.extend(found);
        self.blocks.sort_by_key(Block::key);
    }

    /// Forgets blocks without one of these pages, which are sorted.
    pub fn keep(&mut self, pages: impl Iterator<Item = (TaskId, u64)>) {
        let mut of_pages = pages.map(block_of).peekable();
        self.blocks.retain(|block| {
            while of_pages.next_if(|key| *key < block.key()).is_some() {}
            of_pages.peek() == Some(&block.key())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: TaskId = TaskId(0);

    fn fresh(page: u64, wait_ns: Option<f32>) -> Fresh {
        Fresh::new(TASK, page, 1.0, wait_ns)
    }

    /// What each of these samples counts as once they are corrected.
    fn corrected(waits: &mut Waits, mut samples: Vec<Fresh>) -> Vec<f32> {
        waits.correct(&mut samples);
        samples.iter().map(|sample| sample.accesses).collect()
    }

    #[test]
    fn pages_that_wait_longer_count_more_also_once_they_are_on_fast_memory() {
        let mut waits = Waits::default();
        for _ in 0..10 {
            let short = (0..90).map(|page| fresh(page, Some(100.0)));
            let long = (512..522).map(|page| fresh(page, Some(1100.0)));
            corrected(&mut waits, short.chain(long).collect());
        }
        // The mean is 200 ns. Samples of a block that is not known count as they did.
        let after = corrected(&mut waits, [5, 600, 1500].map(|page| fresh(page, None)).to_vec());
        let expected = |wait: f32, samples: f32| (wait * samples + PRIOR) / (samples + PRIOR);
        for (after, expected) in after.iter().zip([expected(0.5, 200.0), expected(5.5, 100.0), 1.0]) {
            assert!((after / expected - 1.0).abs() < 0.01, "{after}, {expected}");
        }
        waits.keep([(TASK, 700)].into_iter());
        assert_eq!(corrected(&mut waits, vec![fresh(5, None), fresh(513, None)]), [1.0, after[1]]);
    }

    #[test]
    fn few_samples_say_nothing() {
        let mut waits = Waits::default();
        let few = (0..SAMPLES_MIN as u64 - 1).map(|at| fresh(at * 512, Some(at as f32)));
        assert!(corrected(&mut waits, few.collect()).iter().all(|&accesses| accesses == 1.0));
        let none = (0..100).map(|at| fresh(at * 512, Some(0.0)));
        assert!(corrected(&mut waits, none.collect()).iter().all(|&accesses| accesses == 1.0));
    }

    /// What is known of blocks is learned in any order of epochs.
    #[test]
    fn blocks_are_found_again() {
        let mut waits = Waits::default();
        for first in [5000, 0, 2600] {
            corrected(&mut waits, (0..60).map(|at| fresh(first + at * 30, Some(at as f32))).collect());
        }
        assert!(waits.blocks.is_sorted_by(|a, b| a.key() < b.key()), "{waits:?}");
    }
}

//! How long accesses to slow memory wait, relative to each other, by 2 MiB of pages.
//!
//! Pages that a program accesses many at a time wait for each other on a node whose other pages do not. On
//! fast memory that cannot be seen: pages that moved there keep what is known of them.

use std::collections::BTreeMap;
use std::ops::Range;

use memtide_core::{NodeId, PageSize, TaskId};
use serde::{Deserialize, Serialize};

use super::rates::PAGES_MAX;
use super::sampled::Fresh;

/// Samples with the mean wait that a block is taken to have had before.
const PRIOR: f32 = 20.0;

/// Maximum samples of a block that count.
const SAMPLES_MAX: f32 = 200.0;

/// Minimum samples of a node in an epoch, and their mean wait in ns, to compare waits by.
const SAMPLES_MIN: u32 = 30;
const MEAN_MIN_NS: f32 = 20.0;

/// A sample that waited longer counts as one with this many times the mean wait.
const WAIT_MAX: f32 = 8.0;

/// Weight of earlier samples, by decision: after 100 a third of it is left.
const KEPT: f32 = 0.99;

/// 2 MiB of pages, and how long their samples waited.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Block {
    task: TaskId,
    number: u64,
    /// Number of samples. They count less with each decision.
    samples: f32,
    /// Relative to all samples of the same epochs on the same nodes, in the mean.
    wait: f32,
}

/// By block.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<Block>", into = "Vec<Block>")]
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
        self.wait += (wait - self.wait) / self.samples.max(1.0);
    }

    fn factor(&self) -> f32 {
        (self.samples * self.wait + PRIOR) / (self.samples + PRIOR)
    }
}

impl From<Waits> for Vec<Block> {
    fn from(waits: Waits) -> Vec<Block> {
        waits.blocks
    }
}

impl TryFrom<Vec<Block>> for Waits {
    type Error = String;

    fn try_from(blocks: Vec<Block>) -> Result<Waits, String> {
        let is_right = |block: &Block| {
            block.number < PAGES_MAX / PageSize::Huge.base_pages()
                && (0.0..=SAMPLES_MAX).contains(&block.samples)
                && (0.0..=WAIT_MAX).contains(&block.wait)
        };
        match blocks.iter().find(|block| !is_right(block)) {
            Some(block) => Err(format!("{block:?} are no waits")),
            None if !blocks.is_sorted_by(|a, b| a.key() < b.key()) => {
                Err("blocks are out of order".to_owned())
            }
            None => Ok(Waits { blocks }),
        }
    }
}

impl Waits {
    /// Learns from an epoch's samples, which are sorted by page, and multiplies the accesses that each counts
    /// as by how long those of its block wait on slow memory, relative to others.
    pub fn correct(&mut self, samples: &mut [Fresh]) {
        let means_ns = means_of(samples);
        let relative = |sample: &Fresh| {
            let wait = sample.wait_ns()? / means_ns.get(&sample.node)?;
            Some(wait.min(WAIT_MAX))
        };
        let mut found = Vec::new();
        for own in samples.chunk_by_mut(|a, b| block_of(a.page()) == block_of(b.page())) {
            let (task, number) = block_of(own[0].page());
            let at = self.blocks.binary_search_by_key(&(task, number), Block::key);
            let mut new = Block { task, number, samples: 0.0, wait: 0.0 };
            let block = at.map_or(&mut new, |at| &mut self.blocks[at]);
            own.iter().filter_map(relative).for_each(|wait| block.add(wait));
            let factor = block.factor();
            own.iter_mut().for_each(|sample| sample.accesses *= factor);
            if new.samples > 0.0 {
                found.push(new);
            }
        }
        if !found.is_empty() {
            self.blocks.extend(found);
            self.blocks.sort_by_key(Block::key);
        }
    }

    /// Ends an epoch. Forgets blocks of which no page is remembered.
    pub fn end_epoch(&mut self, is_remembered: impl Fn(TaskId, Range<u64>) -> bool) {
        let pages = PageSize::Huge.base_pages();
        self.blocks.retain_mut(|block| {
            block.samples *= KEPT;
            let start = block.number * pages;
            is_remembered(block.task, start..start + pages)
        });
    }
}

/// Mean wait of the samples of each node that has enough of them, and waits to speak of.
fn means_of(samples: &[Fresh]) -> BTreeMap<NodeId, f32> {
    let mut sums: BTreeMap<NodeId, (u32, f64)> = BTreeMap::new();
    for sample in samples {
        if let Some(ns) = sample.wait_ns() {
            let (number, sum_ns) = sums.entry(sample.node).or_default();
            (*number, *sum_ns) = (*number + 1, *sum_ns + f64::from(ns));
        }
    }
    let means = sums.into_iter().filter(|(_, (number, _))| *number >= SAMPLES_MIN);
    let means = means.map(|(node, (number, sum_ns))| (node, (sum_ns / f64::from(number)) as f32));
    means.filter(|(_, mean_ns)| *mean_ns >= MEAN_MIN_NS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: TaskId = TaskId(0);
    const SLOW: NodeId = NodeId(1);

    fn fresh(page: u64, wait_ns: Option<f32>) -> Fresh {
        Fresh::new(TASK, page, SLOW, wait_ns)
    }

    /// What each of these samples counts as once they are corrected.
    fn corrected(waits: &mut Waits, mut samples: Vec<Fresh>) -> Vec<f32> {
        waits.correct(&mut samples);
        samples.iter().map(|sample| sample.accesses).collect()
    }

    /// Of a block, by its samples.
    fn expected(wait: f32, samples: f32) -> f32 {
        (wait * samples + PRIOR) / (samples + PRIOR)
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
        for (after, expected) in after.iter().zip([expected(0.5, 200.0), expected(5.5, 100.0), 1.0]) {
            assert!((after / expected - 1.0).abs() < 0.01, "{after}, {expected}");
        }
        let is_remembered = |task, pages: Range<u64>| task == TASK && pages.contains(&700);
        waits.end_epoch(is_remembered);
        let [of_forgotten, of_kept] = corrected(&mut waits, vec![fresh(5, None), fresh(513, None)])[..]
        else {
            panic!("two samples")
        };
        assert_eq!((of_forgotten, of_kept), (1.0, waits.blocks[0].factor()));
        (0..1000).for_each(|_| waits.end_epoch(is_remembered));
        assert!((waits.blocks[0].factor() - 1.0).abs() < 0.01, "what is not seen again fades");
    }

    #[test]
    fn samples_are_compared_with_those_of_their_node() {
        let mut waits = Waits::default();
        let near = (0..50).map(|at| Fresh::new(TASK, at, SLOW, Some(160.0)));
        let far = (512..562).map(|at| Fresh::new(TASK, at, NodeId(2), Some(800.0)));
        let after = corrected(&mut waits, near.chain(far).collect());
        assert!(after.iter().all(|accesses| (accesses - 1.0).abs() < 1e-6), "{after:?}");
    }

    #[test]
    fn few_or_short_waits_say_nothing_and_long_ones_are_limited() {
        let all_count_as_before = |samples: Vec<Fresh>| {
            corrected(&mut Waits::default(), samples).iter().all(|&accesses| accesses == 1.0)
        };
        let few = (0..u64::from(SAMPLES_MIN) - 1).map(|at| fresh(at * 512, Some(at as f32 * 50.0)));
        assert!(all_count_as_before(few.collect()));
        let short = (0..100).map(|at| fresh(at * 512, Some(if at == 7 { 1900.0 } else { 0.0 })));
        assert!(all_count_as_before(short.collect()));
        let one = (0..100).map(|at| fresh(at * 512, Some(if at == 7 { 4000.0 } else { 0.0 })));
        let after = corrected(&mut Waits::default(), one.collect());
        assert_eq!(after[7], expected(WAIT_MAX, 1.0));
    }

    #[test]
    fn blocks_are_found_again_in_any_order_of_epochs() {
        let mut waits = Waits::default();
        for first in [5120, 0, 2560, 5120] {
            corrected(&mut waits, (0..60).map(|at| fresh(first + at, Some(100.0))).collect());
        }
        let blocks: Vec<(u64, f32)> =
            waits.blocks.iter().map(|block| (block.number, block.samples)).collect();
        assert_eq!(blocks, [(0, 60.0), (5, 60.0), (10, 120.0)]);
    }

    #[test]
    fn saved_blocks_are_checked() {
        let block = |number: u64, samples: f64, wait: f64| {
            format!(r#"{{"task":0,"number":{number},"samples":{samples:?},"wait":{wait:?}}}"#)
        };
        let read = |blocks: &[String]| serde_json::from_str::<Waits>(&format!("[{}]", blocks.join(",")));
        assert!(read(&[block(1, 200.0, 0.0), block(2, 0.5, 8.0)]).is_ok());
        for wrong in [
            [block(2, 1.0, 1.0), block(1, 1.0, 1.0)],
            [block(1, 1.0, 1.0), block(1, 1.0, 1.0)],
            [block(1, 1.0, 1.0), block(u64::MAX, 1.0, 1.0)],
            [block(1, -20.0, 1.0), block(2, 1.0, 1.0)],
            [block(1, 1.0, 1e300), block(2, 1.0, 1.0)],
        ] {
            assert!(read(&wrong).is_err(), "{wrong:?}");
        }
    }
}

//! Integer sort by buckets and counting.

use memtide_core::Stage;

use crate::array::{Array, Space};
use crate::error::WorkloadError;
use crate::info::Info;
use crate::memory::{Loaded, Memory};
use crate::params::{self, Settings};
use crate::random::Random;
use crate::workload::{Algorithm, Phase, Workload, block};

/// Keys per item.
const BLOCK: usize = 512;
const LANES: usize = 8;
/// Mean number of keys per bucket.
const BUCKET_KEYS: usize = 1024;
/// Per key: a loop's add, compare, branch, and the shift to its bucket.
const KEY_INSTRUCTIONS: u64 = 4;
/// Per key drawn: four random numbers, each scaled, and their mean (counted by callgrind in the native
/// program).
const DRAW_INSTRUCTIONS: u64 = 85;

/// The keys, and the buffers for sorting.
pub struct Is {
    threads: usize,
    iterations: usize,
    seed: u64,
    /// Right shift from a key to its bucket.
    shift: u32,
    buckets: usize,
    keys: Array<u32>,
    /// The keys by bucket.
    bucketed: Array<u32>,
    /// Each thread's number of keys in each bucket, later the position of its next one.
    places: Array<u32>,
    /// Keys in each bucket.
    sizes: Array<u32>,
    /// Number of occurrences of each key.
    counts: Array<u32>,
}

#[derive(Clone, Copy)]
pub enum Step {
    Init,
    /// Counts each thread's keys by bucket.
    Count,
    /// Converts the counts to positions in the bucket.
    Scan,
    /// Moves keys to their buckets.
    Scatter,
    /// Sorts the buckets.
    Sort,
}

/// Thread-local state.
pub struct Local {
    /// Its first entry of `places`.
    places: usize,
    /// Start of the current bucket.
    start: usize,
    /// Its number.
    thread: usize,
}

impl Algorithm for Is {
    const INFO: Info = Info {
        name: "is",
        summary: "integer sort: keys are counted, scattered to buckets and sorted there by counting",
        stresses: "random writes; counters whose address depends on a key",
        source: "after the NAS Parallel Benchmarks' IS",
        parameters: &[params::footprint_mib(24), params::iterations(1), params::threads(16), params::PAGE],
    };

    fn new(settings: &Settings, seed: u64, space: &mut Space) -> Result<Is, WorkloadError> {
        let threads = settings.threads();
        // Two arrays of keys, and a count per key value, of which there are at most a quarter as many.
        let keys = settings.footprint_bytes() * 4 / 9 / 4 / BLOCK * BLOCK;
        let values = keys.next_power_of_two() / 8;
        let buckets = (keys / BUCKET_KEYS).next_power_of_two();
        Ok(Is {
            threads,
            iterations: settings.size("iterations"),
            seed,
            shift: (values / buckets).trailing_zeros(),
            buckets,
            keys: space.array("keys", keys)?,
            bucketed: space.array("bucketed keys", keys)?,
            places: space.array("places", threads * buckets)?,
            sizes: space.array("bucket sizes", buckets)?,
            counts: space.array("counts", values)?,
        })
    }
}

impl Is {
    /// Keys distributed as in NPB: the mean of four uniform ones.
    fn init<M: Memory>(&self, m: &mut M, item: usize) {
        let mut random = Random::new(self.seed, item as u64);
        let values = self.counts.len() as u64;
        for at in (item * BLOCK..(item + 1) * BLOCK).step_by(LANES) {
            m.work(DRAW_INSTRUCTIONS * LANES as u64);
            let key = |_| ((0..4).map(|_| random.below(values)).sum::<u64>() / 4) as u32;
            m.store_lanes::<_, LANES>(&self.keys, at, std::array::from_fn(key));
        }
    }

    fn count<M: Memory>(&self, m: &mut M, item: usize, places: usize) {
        for at in item * BLOCK..(item + 1) * BLOCK {
            let place = m.load(&self.keys, at).map(|key| places + (key >> self.shift) as usize);
            increment(m, &self.places, place);
        }
    }

    /// Converts the threads' counts of a bucket to the position of each thread's first key in it.
    fn scan<M: Memory>(&self, m: &mut M, bucket: usize) {
        let mut sum = 0;
        for thread in 0..self.threads {
            let place = thread * self.buckets + bucket;
            let count = *m.load(&self.places, place);
            m.work(3);
            m.store(&self.places, place, sum);
            sum += count;
        }
        m.store(&self.sizes, bucket, sum);
    }

    /// Converts positions in buckets to positions in the array.
    fn settle<M: Memory>(&self, m: &mut M, places: usize) {
        let mut start = 0;
        for bucket in 0..self.buckets {
            let size = *m.load(&self.sizes, bucket);
            let position = *m.load(&self.places, places + bucket);
            m.work(KEY_INSTRUCTIONS);
            m.store(&self.places, places + bucket, start + position);
            start += size;
        }
    }

    fn scatter<M: Memory>(&self, m: &mut M, item: usize, places: usize) {
        for at in item * BLOCK..(item + 1) * BLOCK {
            let key = m.load(&self.keys, at);
            let place = increment(m, &self.places, key.map(|key| places + (key >> self.shift) as usize));
            m.store(&self.bucketed, place, *key);
        }
    }

    /// Sorts a bucket whose keys start at `start`; returns their end.
    fn sort<M: Memory>(&self, m: &mut M, bucket: usize, start: usize) -> usize {
        let values = bucket << self.shift..(bucket + 1) << self.shift;
        for value in values.clone() {
            m.work(3);
            m.store(&self.counts, value, 0);
        }
        let end = start + *m.load(&self.sizes, bucket) as usize;
        for at in start..end {
            let key = m.load(&self.bucketed, at).map(|key| key as usize);
            increment(m, &self.counts, key);
        }
        let mut at = start;
        for value in values {
            for _ in 0..*m.load(&self.counts, value) {
                m.work(3);
                m.store(&self.keys, at, value as u32);
                at += 1;
            }
            m.work(4);
        }
        end
    }
}

/// Increments a counter; returns its previous value.
fn increment<M: Memory>(m: &mut M, counters: &Array<u32>, at: Loaded<usize>) -> Loaded<usize> {
    let count = m.load(counters, at);
    m.work(KEY_INSTRUCTIONS);
    m.store(counters, at, *count + 1);
    count.map(|count| count as usize)
}

impl Workload for Is {
    type Step = Step;
    type Local = Local;

    fn threads(&self) -> usize {
        self.threads
    }

    fn phases(&self) -> Vec<Phase<Step>> {
        let blocks = self.keys.len() / BLOCK;
        let rounds = [
            Phase::new(Step::Init, blocks),
            Phase::new(Step::Count, blocks),
            Phase::new(Step::Scan, self.buckets),
            Phase::new(Step::Scatter, blocks),
            Phase::new(Step::Sort, self.buckets),
        ];
        rounds.repeat(self.iterations)
    }

    fn stage(&self, _: usize, step: Step) -> Stage {
        if matches!(step, Step::Init) { Stage::Initialisation } else { Stage::Region }
    }

    fn local(&self, thread: usize) -> Local {
        Local { places: thread * self.buckets, start: 0, thread }
    }

    fn begin<M: Memory>(&self, m: &mut M, step: Step, local: &mut Local) {
        match step {
            Step::Init | Step::Scan => {}
            Step::Count => {
                for bucket in 0..self.buckets {
                    m.work(1);
                    m.store(&self.places, local.places + bucket, 0);
                }
            }
            Step::Scatter => self.settle(m, local.places),
            Step::Sort => {
                let before = block(self.buckets, local.thread, self.threads).start;
                local.start = (0..before).map(|bucket| *m.load(&self.sizes, bucket) as usize).sum();
            }
        }
    }

    fn run<M: Memory>(&self, m: &mut M, step: Step, item: usize, local: &mut Local) {
        match step {
            Step::Init => self.init(m, item),
            Step::Count => self.count(m, item, local.places),
            Step::Scan => self.scan(m, item),
            Step::Scatter => self.scatter(m, item, local.places),
            Step::Sort => local.start = self.sort(m, item, local.start),
        }
    }

    /// Number of keys whose successor is at least as large, plus 1 for the last.
    fn result(&self) -> f64 {
        let pairs = self.keys.values().zip(self.keys.values().skip(1));
        1.0 + pairs.filter(|(a, b)| a > b).count() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Native;
    use crate::testing::check;

    #[test]
    fn keys_end_up_sorted_and_none_is_lost() {
        let (program, _) = check::<Is>("footprint_mib=1,threads=3,iterations=1");
        let is = program.workload();
        let sorted: Vec<_> = is.keys.values().collect();
        for item in 0..is.keys.len() / BLOCK {
            is.init(&mut Native, item);
        }
        let mut expected: Vec<_> = is.keys.values().collect();
        assert_ne!(sorted, expected);
        expected.sort();
        assert_eq!(sorted, expected);
    }
}

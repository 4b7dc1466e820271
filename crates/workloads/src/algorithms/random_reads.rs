//! Random reads, uniform over all lines (`uniform`) or by popularity (`zipf`), without computation.

use memtide_core::params::Parameter;
use memtide_core::{LINE_BYTES, Stage};

use crate::array::{Array, Space};
use crate::error::WorkloadError;
use crate::info::Info;
use crate::memory::Memory;
use crate::params::{self, Settings};
use crate::random::Random;
use crate::workload::{Algorithm, Phase, Workload};
use crate::zipf::Zipf;

/// Reads per item.
const BLOCK: usize = 512;
/// Words per page; each page is touched once at the start.
const PAGE_WORDS: usize = 512;
const LINE_WORDS: u64 = LINE_BYTES / 8;
/// Per read beside its access: the random number, its range or its rank, and the loop. Counted on the native
/// build (x86-64, release): 23 a read if uniform, 78 if zipfian, see docs/workloads.md.
const UNIFORM_INSTRUCTIONS: u64 = 22;
const ZIPF_INSTRUCTIONS: u64 = 77;

const UNIFORM: Info = Info {
    name: "uniform",
    summary: "reads uniformly random lines; the addresses depend on no load",
    stresses: "random reads that miss every cache and the TLB, many at a time",
    source: "memtide",
    parameters: &[
        params::nominal_footprint_mib(1024),
        params::operations(8_000_000),
        params::threads(16),
        params::PAGE,
    ],
};

const ZIPF: Info = Info {
    name: "zipf",
    summary: "reads zipfian random lines, scattered over the footprint",
    stresses: "caches with a skewed load; finding hot pages",
    source: "J. Gray et al., Quickly generating billion-record synthetic databases, SIGMOD 1994",
    parameters: &[
        params::nominal_footprint_mib(256),
        Parameter::number("theta", "", "skew: a line's weight is 1 / rank^theta", [0.0, 0.99, 0.999]),
        params::operations(8_000_000),
        params::threads(16),
        params::PAGE,
    ],
};

/// The data, and the lines' popularity.
pub struct RandomReads<const ZIPFIAN: bool> {
    threads: usize,
    blocks: usize,
    seed: u64,
    popularity: Option<Zipf>,
    data: Array<u64>,
}

#[derive(Clone, Copy)]
pub enum Step {
    Touch,
    Read,
}

impl<const ZIPFIAN: bool> Algorithm for RandomReads<ZIPFIAN> {
    const INFO: Info = if ZIPFIAN { ZIPF } else { UNIFORM };

    fn new(settings: &Settings, seed: u64, space: &mut Space) -> Result<Self, WorkloadError> {
        let words = settings.footprint_bytes() / 8;
        let popularity = ZIPFIAN.then(|| Zipf::new(words as u64 / LINE_WORDS, settings.number("theta")));
        Ok(RandomReads {
            threads: settings.threads(),
            blocks: settings.size("operations").div_ceil(BLOCK),
            seed,
            popularity,
            data: space.array("data", words)?,
        })
    }
}

impl<const ZIPFIAN: bool> Workload for RandomReads<ZIPFIAN> {
    type Step = Step;
    type Local = Random;

    fn threads(&self) -> usize {
        self.threads
    }

    fn phases(&self) -> Vec<Phase<Step>> {
        vec![Phase::new(Step::Touch, self.data.len() / PAGE_WORDS), Phase::new(Step::Read, self.blocks)]
    }

    fn stage(&self, _: usize, step: Step) -> Stage {
        if matches!(step, Step::Touch) { Stage::Initialisation } else { Stage::Region }
    }

    fn local(&self, thread: usize) -> Random {
        Random::new(self.seed, thread as u64)
    }

    fn run<M: Memory>(&self, m: &mut M, step: Step, item: usize, random: &mut Random) {
        match step {
            Step::Touch => m.clear(&self.data, item * PAGE_WORDS),
            Step::Read => {
                for _ in 0..BLOCK {
                    let line = match &self.popularity {
                        Some(zipf) => zipf.scrambled(random),
                        None => random.below(self.data.len() as u64 / LINE_WORDS),
                    };
                    m.work(if ZIPFIAN { ZIPF_INSTRUCTIONS } else { UNIFORM_INSTRUCTIONS });
                    m.probe(&self.data, (line * LINE_WORDS) as usize);
                }
            }
        }
    }

    fn result(&self) -> f64 {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Recorded, check};

    /// Reads of each line, by decreasing frequency, and the number of lines.
    fn popularity(recorded: &Recorded) -> Vec<usize> {
        let reads = recorded.streams.iter().flatten().filter(|access| !access.write);
        let mut lines: Vec<_> = reads.map(|access| access.address.0 / LINE_BYTES).collect();
        lines.sort();
        let mut counts: Vec<_> = lines.chunk_by(|a, b| a == b).map(<[_]>::len).collect();
        counts.sort_by(|a, b| b.cmp(a));
        counts
    }

    #[test]
    fn uniform_reads_lines_equally_often() {
        let (_, recorded) = check::<RandomReads<false>>("footprint_mib=1,operations=327680,threads=4");
        let counts = popularity(&recorded);
        assert_eq!(counts.len(), 16384);
        assert!(counts[0] < 50, "20 reads a line, but one has {}", counts[0]);
    }

    #[test]
    fn zipf_reads_match_the_law() {
        let (_, recorded) = check::<RandomReads<true>>("footprint_mib=1,operations=327680,threads=4");
        let counts = popularity(&recorded);
        let zeta: f64 = (1..=16384).map(|rank| libm::pow(f64::from(rank), -0.99)).sum();
        let share = counts[0] as f64 / 327_680.0;
        assert!((share * zeta - 1.0).abs() < 0.05, "{share} of {}", 1.0 / zeta);
    }
}

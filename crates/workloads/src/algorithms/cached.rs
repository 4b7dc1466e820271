//! A loop within the caches.

use memtide_core::Stage;
use memtide_core::params::Parameter;

use crate::array::{Array, Space};
use crate::error::WorkloadError;
use crate::info::Info;
use crate::memory::Memory;
use crate::params::{self, Settings};
use crate::workload::{Algorithm, Phase, Workload};

/// Words per line.
const LINE_WORDS: usize = 8;
/// The loop's add, compare, branch, and an add to the sum.
const READ_INSTRUCTIONS: u64 = 4;

/// A small array for each thread.
pub struct Cached {
    threads: usize,
    rounds: usize,
    lines_each: usize,
    data: Array<u64>,
}

#[derive(Clone, Copy)]
pub enum Step {
    Touch,
    Read,
}

impl Algorithm for Cached {
    const INFO: Info = Info {
        name: "cached",
        summary: "each thread reads a small array of its own repeatedly",
        stresses: "the caches only: no policy can gain",
        source: "memtide",
        parameters: &[
            Parameter::integer("footprint_kib", "KiB", "size of each thread's array", [4, 16, 1 << 20]),
            params::operations(8_000_000),
            params::threads(16),
            params::PAGE,
        ],
    };

    fn new(settings: &Settings, _seed: u64, space: &mut Space) -> Result<Cached, WorkloadError> {
        let threads = settings.threads();
        let words = settings.size("footprint_kib") * 1024 / 8;
        Ok(Cached {
            threads,
            rounds: settings.size("operations").div_ceil(words / LINE_WORDS * threads),
            lines_each: words / LINE_WORDS,
            data: space.array("data", words * threads)?,
        })
    }
}

impl Workload for Cached {
    type Step = Step;
    /// Number of the thread's array, and the next line to read.
    type Local = (usize, usize);

    fn threads(&self) -> usize {
        self.threads
    }

    fn phases(&self) -> Vec<Phase<Step>> {
        vec![
            Phase::grouped(Step::Touch, self.threads, self.lines_each),
            Phase::grouped(Step::Read, self.threads, self.lines_each * self.rounds),
        ]
    }

    fn stage(&self, _: usize, step: Step) -> Stage {
        if matches!(step, Step::Touch) { Stage::Initialisation } else { Stage::Region }
    }

    fn local(&self, thread: usize) -> (usize, usize) {
        (thread, 0)
    }

    fn run<M: Memory>(&self, m: &mut M, step: Step, item: usize, local: &mut (usize, usize)) {
        match step {
            Step::Touch => m.clear(&self.data, item * LINE_WORDS),
            Step::Read => {
                let (array, line) = *local;
                m.work(READ_INSTRUCTIONS);
                m.probe(&self.data, (array * self.lines_each + line) * LINE_WORDS);
                local.1 = if line + 1 == self.lines_each { 0 } else { line + 1 };
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
    use crate::testing::{record, traced};

    #[test]
    fn each_thread_stays_in_its_own_array() {
        let recorded = record(&mut traced::<Cached>("footprint_kib=8,operations=10000,threads=3"), true);
        for stream in &recorded.streams {
            let addresses = stream.iter().map(|access| access.address.0);
            let (first, last) = (addresses.clone().min().unwrap(), addresses.max().unwrap());
            assert_eq!(last - first, 8192 - 64);
            assert!(stream.iter().filter(|access| !access.write).count() >= 10_000 / 3);
        }
    }
}

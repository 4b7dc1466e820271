//! Random updates of a table (HPC Challenge RandomAccess).

use memtide_core::Stage;

use crate::array::{Array, Space};
use crate::error::WorkloadError;
use crate::info::Info;
use crate::memory::Memory;
use crate::params::{self, Settings};
use crate::random::{Random, hash};
use crate::workload::{Algorithm, Phase, Workload};

/// Updates per item.
const BLOCK: usize = 512;
/// Elements of a vector register (AVX2), for filling the table.
const LANES: usize = 4;
/// Per update beside its two accesses: the next random number, its range, the word's hash, and the loop.
/// Counted on the native build (x86-64, release): 35 an update, see docs/workloads.md.
const UPDATE_INSTRUCTIONS: u64 = 33;

/// The table.
pub struct Gups {
    threads: usize,
    blocks: usize,
    seed: u64,
    table: Array<u64>,
}

#[derive(Clone, Copy)]
pub enum Step {
    Init,
    Update,
}

impl Algorithm for Gups {
    const INFO: Info = Info {
        name: "gups",
        summary: "GUPS: reads, xors and writes back random words of a table; the addresses depend on no load",
        stresses: "random reads and writes, many at a time; TLB",
        source: "HPC Challenge, RandomAccess",
        parameters: &[
            params::footprint_mib(64),
            params::operations(4_000_000),
            params::threads(16),
            params::PAGE,
        ],
    };

    fn new(settings: &Settings, seed: u64, space: &mut Space) -> Result<Gups, WorkloadError> {
        let words = settings.footprint_bytes() / 8;
        Ok(Gups {
            threads: settings.threads(),
            blocks: settings.size("operations").div_ceil(BLOCK),
            seed,
            table: space.array("table", words)?,
        })
    }
}

impl Workload for Gups {
    type Step = Step;
    type Local = Random;

    fn threads(&self) -> usize {
        self.threads
    }

    fn phases(&self) -> Vec<Phase<Step>> {
        vec![Phase::new(Step::Init, self.table.len() / BLOCK), Phase::new(Step::Update, self.blocks)]
    }

    fn stage(&self, _: usize, step: Step) -> Stage {
        if matches!(step, Step::Init) { Stage::Initialisation } else { Stage::Region }
    }

    fn local(&self, thread: usize) -> Random {
        Random::new(self.seed, thread as u64)
    }

    fn run<M: Memory>(&self, m: &mut M, step: Step, item: usize, random: &mut Random) {
        match step {
            Step::Init => {
                for i in (item * BLOCK..(item + 1) * BLOCK).step_by(LANES) {
                    m.store_lanes::<_, LANES>(&self.table, i, std::array::from_fn(|lane| (i + lane) as u64));
                    m.work(4);
                }
            }
            Step::Update => {
                for _ in 0..BLOCK {
                    let i = random.below(self.table.len() as u64) as usize;
                    m.work(UPDATE_INSTRUCTIONS);
                    let old = *m.load(&self.table, i);
                    m.store(&self.table, i, old ^ hash(i as u64));
                }
            }
        }
    }

    /// The table's xor. With several threads some updates may be lost, as in the original.
    fn result(&self) -> f64 {
        self.table.values().fold(0, |sum, word| sum ^ word) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check, record, traced};

    #[test]
    fn even_number_of_updates_restores_table() {
        let (program, recorded) = check::<Gups>("footprint_mib=1,operations=100000,threads=1");
        let table = &program.workload().table;
        let mut parity = vec![false; table.len()];
        for update in recorded.streams[0].iter().skip(table.len() / LANES).filter(|access| access.write) {
            parity[((update.address.0 - table.address(0).0) / 8) as usize] ^= true;
        }
        for (i, odd) in parity.into_iter().enumerate() {
            let expected = if odd { i as u64 ^ hash(i as u64) } else { i as u64 };
            assert_eq!(table.get(i), expected);
        }
    }

    #[test]
    fn no_update_waits_for_a_load() {
        let recorded = record(&mut traced::<Gups>("footprint_mib=1,operations=10000,threads=4"), true);
        assert!(recorded.streams.iter().flatten().all(|access| access.producer == 0));
        let updates = recorded.streams.iter().flatten().filter(|access| access.size == 8);
        assert_eq!(updates.clone().count(), 2 * 10_000_usize.next_multiple_of(BLOCK));
        let instructions: u64 = updates.clone().map(|access| u64::from(access.instructions)).sum();
        assert_eq!(instructions, 35 * updates.count() as u64 / 2, "35 an update, as measured");
    }
}

//! A chain of pointers.

use memtide_core::Stage;
use memtide_core::params::Parameter;

use crate::array::{Array, Space};
use crate::error::WorkloadError;
use crate::info::Info;
use crate::memory::{Loaded, Memory};
use crate::params::{self, Settings};
use crate::random::Permutation;
use crate::workload::{Algorithm, Phase, Workload};

/// Steps per item.
const BLOCK: usize = 512;
/// Per two steps beside their accesses: the address, its check, and the loop. Counted on the native build
/// (x86-64, release), see docs/workloads.md: 3.5 a step.
const PAIR_INSTRUCTIONS: u64 = 5;

/// A ring of pointers for each thread.
pub struct Chase {
    threads: usize,
    blocks_each: usize,
    /// Distance of two slots in words.
    stride: usize,
    /// Slots per ring.
    slots: usize,
    /// Order of traversal of a ring; `None`: sequential.
    order: Option<Permutation>,
    ring: Array<u64>,
}

#[derive(Clone, Copy)]
pub enum Step {
    Link,
    Chase,
}

impl Algorithm for Chase {
    const INFO: Info = Info {
        name: "chase",
        summary: "pointer chase: every load's address is the value of the load before; a ring for each \
            thread",
        stresses: "latency of a single load",
        source: "lmbench lat_mem_rd (in sequence), Intel MLC idle latency (random)",
        parameters: &[
            params::footprint_mib(64),
            Parameter::integer(
                "stride_bytes",
                "B",
                "distance of a ring's slots, a multiple of 8",
                [8, 64, 1 << 20],
            ),
            Parameter::word("order", "order in which a ring's slots are visited", &["random", "sequential"]),
            params::operations(2_000_000),
            params::threads(1),
            params::PAGE,
        ],
    };

    fn new(settings: &Settings, seed: u64, space: &mut Space) -> Result<Chase, WorkloadError> {
        let threads = settings.threads();
        let stride = settings.size("stride_bytes");
        if !stride.is_multiple_of(8) {
            return Err(settings.unfit(format!("stride_bytes={stride} is not a multiple of 8")));
        }
        let slots = settings.footprint_bytes() / stride / threads;
        if slots == 0 {
            return Err(
                settings.unfit("no slot for each thread: increase footprint_mib or reduce stride_bytes")
            );
        }
        Ok(Chase {
            threads,
            blocks_each: settings.size("operations").div_ceil(threads * BLOCK),
            stride: stride / 8,
            slots,
            order: (settings.word("order") == "random").then(|| Permutation::new(slots as u64, seed)),
            ring: space.array("ring", slots * threads * stride / 8)?,
        })
    }
}

impl Chase {
    /// The successor of a slot in a ring.
    fn successor(&self, slot: usize) -> usize {
        let after = |position| (position + 1) % self.slots as u64;
        match &self.order {
            Some(order) => order.forward(after(order.inverse(slot as u64))) as usize,
            None => after(slot as u64) as usize,
        }
    }
}

impl Workload for Chase {
    type Step = Step;
    /// The thread's current word.
    type Local = Loaded<usize>;

    fn threads(&self) -> usize {
        self.threads
    }

    fn phases(&self) -> Vec<Phase<Step>> {
        vec![
            Phase::grouped(Step::Link, self.threads, self.slots),
            Phase::grouped(Step::Chase, self.threads, self.blocks_each),
        ]
    }

    fn stage(&self, _: usize, step: Step) -> Stage {
        if matches!(step, Step::Link) { Stage::Initialisation } else { Stage::Region }
    }

    fn local(&self, thread: usize) -> Loaded<usize> {
        (thread * self.slots * self.stride).into()
    }

    fn run<M: Memory>(&self, m: &mut M, step: Step, item: usize, at: &mut Loaded<usize>) {
        match step {
            Step::Link => {
                let (ring, slot) = (item / self.slots, item % self.slots);
                let next = (ring * self.slots + self.successor(slot)) * self.stride;
                m.work(4);
                m.store(&self.ring, item * self.stride, next as u64);
            }
            Step::Chase => {
                for step in 0..BLOCK as u64 {
                    m.work(PAIR_INSTRUCTIONS / 2 + step % 2 * (PAIR_INSTRUCTIONS % 2));
                    *at = m.load(&self.ring, *at).map(|next| next as usize);
                }
            }
        }
    }

    /// Number of slots reachable from the first: all of its ring's.
    fn result(&self) -> f64 {
        let next = |at: &usize| Some(self.ring.get(*at) as usize).filter(|next| *next != 0);
        std::iter::successors(Some(0), next).take(self.slots + 1).count() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check;

    #[test]
    fn ring_visits_every_slot_with_dependent_loads() {
        for params in ["", "order=sequential", "stride_bytes=256"] {
            let (program, recorded) =
                check::<Chase>(&format!("footprint_mib=1,threads=2,operations=40000,{params}"));
            let chase = program.workload();
            assert_eq!(chase.result(), chase.slots as f64);
            for stream in &recorded.streams {
                let loads: Vec<_> = stream.iter().filter(|access| !access.write).collect();
                assert_eq!(loads.len(), 20_000_usize.next_multiple_of(BLOCK));
                assert_eq!(loads[0].producer, 0);
                assert!(loads[1..].iter().all(|load| load.producer == 1));
                let instructions: u64 = loads.iter().map(|load| u64::from(load.instructions)).sum();
                assert_eq!(2 * instructions, 7 * loads.len() as u64, "3.5 a step, as measured");
                let mut slots: Vec<_> = loads[..chase.slots].iter().map(|load| load.address).collect();
                slots.sort();
                slots.dedup();
                assert_eq!(slots.len(), chase.slots);
            }
        }
    }

    #[test]
    fn settings_that_leave_no_ring_are_refused() {
        let make = |params: &str| {
            let settings = Settings::new(&Chase::INFO, &params.parse().unwrap()).unwrap();
            Chase::new(&settings, 1, &mut Space::new(settings.page())).err().unwrap().to_string()
        };
        assert!(make("stride_bytes=12").contains("multiple of 8"));
        assert!(make("footprint_mib=1,stride_bytes=1048576,threads=2").contains("footprint_mib"));
    }
}

//! Simulated annealing of a netlist's placement.

use memtide_core::Stage;
use memtide_core::params::Parameter;

use crate::array::{Array, Space};
use crate::error::WorkloadError;
use crate::info::Info;
use crate::memory::{Index, Loaded, Memory};
use crate::params::{self, Settings};
use crate::random::{Permutation, Random};
use crate::workload::{Algorithm, Phase, Workload, block};

/// Words of an element's record, which is a line: its slot, and the elements that it is wired to.
const RECORD_WORDS: usize = 16;
/// Wires per element.
const WIRES: usize = 5;
/// Maximum distance of some wires in the netlist's initial order.
const FAR: usize = 100;
/// Swaps per item.
const BLOCK: usize = 64;
/// Elements per item without swaps.
const ELEMENTS: usize = 512;
/// Per wire: its length before and after a swap, and the loop's add, compare, branch.
const WIRE_INSTRUCTIONS: u64 = 14;
/// Per swap: two random elements and the decision.
const SWAP_INSTRUCTIONS: u64 = 60;
/// A swap that lengthens the wires by this much is accepted with probability e^-1.
const TEMPERATURE: f64 = 5.0;

/// Elements, each in a slot, and the positions of the slots.
///
/// In a round a thread swaps only elements that it owns in that round, and all threads see the slots as they
/// were at its beginning: no thread depends on the speed of others. Ownership alternates between blocks and
/// strides.
pub struct Canneal {
    threads: usize,
    iterations: usize,
    seed: u64,
    blocks: usize,
    elements: usize,
    /// Side lengths of the grid of slots.
    width: usize,
    records: Array<u32>,
    /// Each element's slot at the start of the round.
    slots: Array<u32>,
    /// Each slot's column and row, 16 bits each.
    places: Array<u32>,
    order: Permutation,
}

#[derive(Clone, Copy)]
pub enum Step {
    Init,
    Swap {
        round: usize,
    },
    /// Publishes the slots to all threads.
    Publish,
}

/// Thread-local state.
pub struct Local {
    thread: usize,
    random: Random,
}

impl Algorithm for Canneal {
    const INFO: Info = Info {
        name: "canneal",
        summary: "simulated annealing: swaps random elements of a netlist if that shortens their wires",
        stresses: "latency of random reads in chains of two or three; TLB",
        source: "after PARSEC's canneal",
        parameters: &[
            params::footprint_mib(64),
            params::operations(250_000),
            Parameter::integer(
                "iterations",
                "",
                "rounds after which threads see each other's swaps",
                [1, 4, 1000],
            ),
            params::threads(16),
            params::PAGE,
        ],
    };

    fn new(settings: &Settings, seed: u64, space: &mut Space) -> Result<Canneal, WorkloadError> {
        let (threads, iterations) = (settings.threads(), settings.size("iterations"));
        let elements = settings.footprint_bytes() / (4 * RECORD_WORDS + 8) / ELEMENTS * ELEMENTS;
        Ok(Canneal {
            threads,
            iterations,
            seed,
            blocks: settings.size("operations").div_ceil(iterations * BLOCK),
            elements,
            width: elements.isqrt().max(1),
            records: space.array("elements", elements * RECORD_WORDS)?,
            slots: space.array("slots", elements)?,
            places: space.array("places", elements)?,
            order: Permutation::new(elements as u64, seed),
        })
    }
}

impl Canneal {
    /// Wires of an element: its neighbours in the netlist's initial order, two elements farther away, and a
    /// random one. Each wire is in both directions.
    fn wires(&self, element: usize) -> [usize; WIRES] {
        let n = self.elements;
        let anywhere = self.order.inverse(self.order.forward(element as u64) ^ 1) as usize;
        [(element + 1) % n, (element + n - 1) % n, (element + FAR) % n, (element + n - FAR) % n, anywhere]
    }

    /// Wires an element and puts it into a random slot.
    fn init<M: Memory>(&self, m: &mut M, element: usize) {
        m.work(60);
        let slot = self.order.forward(element as u64) as u32;
        m.store(&self.records, element * RECORD_WORDS, slot);
        for (wire, other) in self.wires(element).into_iter().enumerate() {
            m.store(&self.records, element * RECORD_WORDS + 1 + wire, other as u32);
        }
        m.store(&self.slots, element, slot);
        let (column, row) = (element % self.width, element / self.width);
        m.store(&self.places, element, (column as u32) << 16 | row as u32);
    }

    /// The `number`th element that a thread owns in a round, and how many it owns.
    fn owned(&self, thread: usize, round: usize) -> (usize, impl Fn(usize) -> usize) {
        let (blocks, strides) = (round.is_multiple_of(2), self.threads);
        let block = block(self.elements, thread, self.threads);
        let count = if blocks { block.len() } else { (self.elements - thread).div_ceil(strides) };
        (count, move |number| if blocks { block.start + number } else { thread + number * strides })
    }

    fn place<M: Memory>(&self, m: &mut M, slot: impl Index) -> Loaded<u32> {
        m.load(&self.places, slot)
    }

    /// Change of an element's wire length for a move from one place to another.
    fn growth<M: Memory>(&self, m: &mut M, element: usize, from: u32, to: u32) -> i64 {
        let mut growth = 0;
        for wire in 1..=WIRES {
            let other = m.load(&self.records, element * RECORD_WORDS + wire).map(|other| other as usize);
            let slot = m.load(&self.slots, other).map(|slot| slot as usize);
            let place = *self.place(m, slot);
            m.work(WIRE_INSTRUCTIONS);
            growth += wire_length(to, place) - wire_length(from, place);
        }
        growth
    }

    fn swap<M: Memory>(&self, m: &mut M, round: usize, local: &mut Local) {
        let (count, owned) = self.owned(local.thread, round);
        let [a, b] = [(); 2].map(|()| owned(local.random.below(count as u64) as usize));
        m.work(SWAP_INSTRUCTIONS);
        let slots = [a, b].map(|element| m.load(&self.records, element * RECORD_WORDS));
        let places = slots.map(|slot| *self.place(m, slot.map(|slot| slot as usize)));
        let growth = self.growth(m, a, places[0], places[1]) + self.growth(m, b, places[1], places[0]);
        let chance = libm::exp(-(growth as f64) / TEMPERATURE);
        if growth < 0 || local.random.unit() < chance {
            m.store(&self.records, a * RECORD_WORDS, *slots[1]);
            m.store(&self.records, b * RECORD_WORDS, *slots[0]);
        }
    }
}

/// Manhattan distance of two places.
fn wire_length(a: u32, b: u32) -> i64 {
    i64::from((a >> 16).abs_diff(b >> 16)) + i64::from((a & 0xffff).abs_diff(b & 0xffff))
}

impl Workload for Canneal {
    type Step = Step;
    type Local = Local;

    fn threads(&self) -> usize {
        self.threads
    }

    fn phases(&self) -> Vec<Phase<Step>> {
        let rounds = (0..self.iterations).flat_map(|round| {
            [
                Phase::new(Step::Swap { round }, self.blocks),
                Phase::new(Step::Publish, self.elements / ELEMENTS),
            ]
        });
        std::iter::once(Phase::new(Step::Init, self.elements / ELEMENTS)).chain(rounds).collect()
    }

    fn stage(&self, _: usize, step: Step) -> Stage {
        if matches!(step, Step::Init) { Stage::Initialisation } else { Stage::Region }
    }

    fn local(&self, thread: usize) -> Local {
        Local { thread, random: Random::new(!self.seed, thread as u64) }
    }

    fn run<M: Memory>(&self, m: &mut M, step: Step, item: usize, local: &mut Local) {
        let elements = item * ELEMENTS..(item + 1) * ELEMENTS;
        match step {
            Step::Init => elements.for_each(|element| self.init(m, element)),
            Step::Swap { round } => (0..BLOCK).for_each(|_| self.swap(m, round, local)),
            Step::Publish => elements.for_each(|element| {
                let slot = *m.load(&self.records, element * RECORD_WORDS);
                m.work(3);
                m.store(&self.slots, element, slot);
            }),
        }
    }

    /// The length of all wires.
    fn result(&self) -> f64 {
        let place = |element: usize| self.places.get(self.slots.get(element) as usize);
        let wires = |element: usize| {
            (1..=WIRES).map(move |wire| {
                let other = self.records.get(element * RECORD_WORDS + wire) as usize;
                wire_length(place(element), place(other)) as f64
            })
        };
        (0..self.elements).flat_map(wires).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check, native};

    #[test]
    fn wires_shorten_and_every_slot_keeps_one_element() {
        let anneal = |operations: usize| {
            native::<Canneal>(&format!("footprint_mib=1,operations={operations},iterations=50,threads=3"))
        };
        let (little, much) = (anneal(1), anneal(300_000));
        assert!(much.result() < 0.75 * little.result(), "{} -> {}", little.result(), much.result());
        let mut slots: Vec<_> = much.slots.values().collect();
        slots.sort();
        assert!(slots.into_iter().eq(0..much.elements as u32));
    }

    #[test]
    fn places_are_reached_through_chains_of_loads() {
        let (program, recorded) = check::<Canneal>("footprint_mib=1,operations=1000,iterations=2,threads=2");
        let places = program.workload().places.address(0).0..u64::MAX;
        let reads: Vec<_> = (recorded.streams.iter().flatten())
            .filter(|access| places.contains(&access.address.0) && !access.write)
            .collect();
        assert!(reads.len() > 10_000 && reads.iter().all(|access| (1..=2).contains(&access.producer)));
    }
}

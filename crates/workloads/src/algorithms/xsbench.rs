//! Lookups of neutron cross sections in a unionized energy grid.

use memtide_core::Stage;
use memtide_core::params::Parameter;

use crate::array::{Array, Space};
use crate::error::WorkloadError;
use crate::info::Info;
use crate::memory::{Loaded, Memory};
use crate::params::{self, Settings};
use crate::random::Random;
use crate::reduction::Reduction;
use crate::workload::{Algorithm, Phase, Workload};

/// Energies of the unionized grid per item.
const ROWS: usize = 16;
/// Elements of a vector register (AVX2), for filling the rows of indices.
const LANES: usize = 8;
/// Cross sections of a grid point: total, elastic, absorption, fission, and neutrons by fission.
const SECTIONS: usize = 5;
/// Words of a grid point: its energy and its cross sections.
const POINT_WORDS: usize = 1 + SECTIONS;
/// Bytes of the unionized grid and of the nuclides' own grids, per point and without the indices.
const POINT_BYTES: usize = 8 + 8 * POINT_WORDS;
/// Nuclides of the Hoogenboom-Martin model. It is the small one; the large one has more in the fuel alone.
const SMALL: usize = 68;
/// Nuclides of the fuel in the small model.
const SMALL_FUEL: usize = 34;
/// Each material's nuclides, without the fuel's, and how often it is drawn, in thousandths (XSBench): fuel,
/// cladding, cold and hot water, pressure vessel, reflectors, plates and nozzles, fuel assemblies' ends.
const MATERIALS: [(usize, u64); 12] = [
    (0, 140),
    (5, 52),
    (4, 275),
    (4, 134),
    (27, 154),
    (21, 64),
    (21, 66),
    (21, 55),
    (21, 8),
    (21, 15),
    (9, 25),
    (9, 13),
];
/// Instructions beside accesses: per lookup, per step of the search, and per nuclide. Counted on the native
/// build (x86-64, release), over two sizes and two numbers of nuclides, see docs/workloads.md.
const LOOKUP_INSTRUCTIONS: u64 = 146;
const SEARCH_INSTRUCTIONS: u64 = 10;
const NUCLIDE_INSTRUCTIONS: u64 = 84;
/// Per random number stored by the initialisation, and per vector of indices.
const DRAW_INSTRUCTIONS: u64 = 15;
const FILL_INSTRUCTIONS: u64 = 5;

/// The grids and the materials.
///
/// The energies of the unionized grid are drawn in order, one in each of as many equal intervals, and belong
/// to the nuclides by turns, in another random order each turn: nothing has to be sorted or merged.
pub struct Xsbench {
    threads: usize,
    lookups: usize,
    seed: u64,
    nuclides: usize,
    /// Points of each nuclide's own grid.
    points: usize,
    /// The nuclides of each material.
    compositions: Vec<Vec<u32>>,
    /// The unionized grid: energies, and for each the index into each nuclide's grid.
    energies: Array<f64>,
    indices: Array<u32>,
    /// The nuclides' grids, one after the other.
    grids: Array<f64>,
    /// Nuclides of each material, and their densities.
    materials: Array<u32>,
    densities: Array<f64>,
    sums: Reduction,
}

#[derive(Clone, Copy)]
pub enum Step {
    Grids,
    Materials,
    Lookup,
}

/// Thread-local state.
pub struct Local {
    thread: usize,
    random: Random,
    /// A turn of the initialisation, its nuclides in order, and each nuclide's place in it.
    turn: Option<usize>,
    order: Vec<u32>,
    places: Vec<u32>,
    /// Sum of the cross sections looked up.
    sum: f64,
}

impl Algorithm for Xsbench {
    const INFO: Info = Info {
        name: "xsbench",
        summary: "cross sections: finds an energy by binary search, reads the grids of a material's nuclides",
        stresses: "random reads, a chain and then many at a time; TLB",
        source: "J. Tramm et al., XSBench, PHYSOR 2014",
        parameters: &[
            params::footprint_mib(64),
            Parameter::integer(
                "nuclides",
                "",
                "nuclides, each with a grid of its own",
                [2, SMALL as u64, 1000],
            ),
            params::operations(100_000),
            params::threads(16),
            params::PAGE,
        ],
    };

    fn new(settings: &Settings, seed: u64, space: &mut Space) -> Result<Xsbench, WorkloadError> {
        let (threads, nuclides) = (settings.threads(), settings.size("nuclides"));
        let points = settings.footprint_bytes() / (nuclides * (POINT_BYTES + 4 * nuclides));
        if points < 2 {
            return Err(settings.unfit(
                "a grid of less than two points per nuclide: increase footprint_mib or reduce nuclides",
            ));
        }
        let compositions: Vec<_> =
            (0..MATERIALS.len()).map(|material| composition(material, nuclides, seed)).collect();
        let most = compositions.iter().map(Vec::len).max().unwrap_or(0);
        Ok(Xsbench {
            threads,
            lookups: settings.size("operations"),
            seed,
            nuclides,
            points,
            energies: space.array("energies", points * nuclides)?,
            indices: space.array("indices", points * nuclides * nuclides)?,
            grids: space.array("nuclide_grids", points * nuclides * POINT_WORDS)?,
            materials: space.array("materials", MATERIALS.len() * most)?,
            densities: space.array("densities", MATERIALS.len() * most)?,
            sums: Reduction::new("sums", threads, space)?,
            compositions,
        })
    }
}

/// The nuclides of a material, drawn among the small model's, and for the fuel all others.
fn composition(material: usize, nuclides: usize, seed: u64) -> Vec<u32> {
    let small = nuclides.min(SMALL);
    let mut random = Random::new(seed, material as u64);
    let count = match material {
        0 => (small * SMALL_FUEL / SMALL).max(1),
        _ => MATERIALS[material].0.min(small),
    };
    let mut drawn: Vec<u32> = (0..small as u32).collect();
    for at in 0..count {
        drawn.swap(at, at + random.below((small - at) as u64) as usize);
    }
    drawn.truncate(count);
    if material == 0 {
        drawn.extend(small as u32..nuclides as u32);
    }
    drawn
}

impl Xsbench {
    /// Items of a turn of the initialisation.
    fn chunks(&self) -> usize {
        self.nuclides.div_ceil(ROWS)
    }

    /// First entry of a material in `materials` and `densities`.
    fn material(&self, material: usize) -> usize {
        material * (self.materials.len() / MATERIALS.len())
    }

    /// Draws the order of the nuclides in a turn.
    fn take_turn(&self, turn: usize, local: &mut Local) {
        let mut random = Random::new(!self.seed, turn as u64);
        local.turn = Some(turn);
        local.order.clear();
        local.order.extend(0..self.nuclides as u32);
        for at in (1..self.nuclides).rev() {
            local.order.swap(at, random.below(at as u64 + 1) as usize);
        }
        for (place, nuclide) in local.order.iter().enumerate() {
            local.places[*nuclide as usize] = place as u32;
        }
    }

    /// Stores some of a turn's energies, and the grid point of each.
    fn init<M: Memory>(&self, m: &mut M, item: usize, local: &mut Local) {
        let (turn, chunk) = (item / self.chunks(), item % self.chunks());
        if local.turn != Some(turn) {
            self.take_turn(turn, local);
        }
        let mut random = Random::new(self.seed, (MATERIALS.len() + item) as u64);
        for place in chunk * ROWS..((chunk + 1) * ROWS).min(self.nuclides) {
            let row = turn * self.nuclides + place;
            let energy = (row as f64 + random.unit()) / self.energies.len() as f64;
            m.work(DRAW_INSTRUCTIONS);
            m.store(&self.energies, row, energy);
            let point = self.point(local.order[place] as usize, turn);
            m.store(&self.grids, point, energy);
            for word in 1..POINT_WORDS {
                m.work(DRAW_INSTRUCTIONS);
                m.store(&self.grids, point + word, random.unit());
            }
            self.init_row(m, row, turn, place as u32, &local.places);
        }
    }

    /// Stores the indices of an energy: of each nuclide the last point that is not above it, if there is one
    /// and another follows.
    fn init_row<M: Memory>(&self, m: &mut M, row: usize, turn: usize, place: u32, places: &[u32]) {
        let last = self.points as u32 - 2;
        let [before, now] = [turn.saturating_sub(1), turn].map(|point| (point as u32).min(last));
        let index = |at: &u32| if *at > place { before } else { now };
        let (lanes, rest) = places.as_chunks::<LANES>();
        let mut at = row * self.nuclides;
        for places in lanes {
            m.work(FILL_INSTRUCTIONS);
            m.store_lanes(&self.indices, at, places.each_ref().map(index));
            at += LANES;
        }
        for (nuclide, place) in rest.iter().enumerate() {
            m.work(FILL_INSTRUCTIONS);
            m.store(&self.indices, at + nuclide, index(place));
        }
    }

    fn init_material<M: Memory>(&self, m: &mut M, material: usize) {
        let mut random = Random::new(!self.seed, (self.points + material) as u64);
        for (at, nuclide) in self.compositions[material].iter().enumerate() {
            m.work(DRAW_INSTRUCTIONS);
            m.store(&self.materials, self.material(material) + at, *nuclide);
            m.store(&self.densities, self.material(material) + at, random.unit());
        }
    }

    /// First word of a point of a nuclide's grid.
    fn point(&self, nuclide: usize, point: usize) -> usize {
        (nuclide * self.points + point) * POINT_WORDS
    }

    /// The last energy of the unionized grid that is not above this one, or the first.
    fn find<M: Memory>(&self, m: &mut M, energy: f64) -> Loaded<usize> {
        let mut low = Loaded::from(0);
        let mut length = self.energies.len() - 1;
        while length > 1 {
            let middle = low.map(|low| low + length / 2);
            let found = m.load(&self.energies, middle);
            m.work(SEARCH_INSTRUCTIONS);
            // Where it goes on depends on this load, whichever half it is.
            let from = if *found > energy { *low } else { *middle };
            length = if *found > energy { length / 2 } else { length - length / 2 };
            low = found.map(|_| from);
        }
        low
    }

    /// A material's cross sections at an energy: sums over its nuclides, by density.
    fn lookup<M: Memory>(&self, m: &mut M, energy: f64, material: usize) -> [f64; SECTIONS] {
        let row = self.find(m, energy).map(|row| row * self.nuclides);
        let first = self.material(material);
        let mut sums = [0.0; SECTIONS];
        for at in first..first + self.compositions[material].len() {
            let nuclide = *m.load(&self.materials, at) as usize;
            let density = *m.load(&self.densities, at);
            let index = m.load(&self.indices, row.map(|row| row + nuclide));
            let low = index.map(|index| self.point(nuclide, index as usize));
            let high = low.map(|low| low + POINT_WORDS);
            let (above, below) = (*m.load(&self.grids, high), *m.load(&self.grids, low));
            let part = (above - energy) / (above - below);
            for (section, sum) in sums.iter_mut().enumerate() {
                let [above, below] = [high, low].map(|point| self.section(m, point, section));
                *sum += density * (above - part * (above - below));
            }
            m.work(NUCLIDE_INSTRUCTIONS);
        }
        sums
    }

    /// One of the cross sections of a point.
    fn section<M: Memory>(&self, m: &mut M, point: Loaded<usize>, section: usize) -> f64 {
        *m.load(&self.grids, point.map(|point| point + 1 + section))
    }
}

/// Draws a material.
fn draw(random: &mut Random) -> usize {
    let mut left = random.below(MATERIALS.iter().map(|material| material.1).sum());
    let mut found = 0;
    while left >= MATERIALS[found].1 {
        left -= MATERIALS[found].1;
        found += 1;
    }
    found
}

impl Workload for Xsbench {
    type Step = Step;
    type Local = Local;

    fn threads(&self) -> usize {
        self.threads
    }

    fn phases(&self) -> Vec<Phase<Step>> {
        vec![
            Phase::new(Step::Grids, self.points * self.chunks()),
            Phase::new(Step::Materials, MATERIALS.len()),
            Phase::new(Step::Lookup, self.lookups),
        ]
    }

    fn stage(&self, _: usize, step: Step) -> Stage {
        if matches!(step, Step::Lookup) { Stage::Region } else { Stage::Initialisation }
    }

    fn local(&self, thread: usize) -> Local {
        Local {
            thread,
            random: Random::new(self.seed, !(thread as u64)),
            turn: None,
            order: vec![],
            places: vec![0; self.nuclides],
            sum: 0.0,
        }
    }

    fn begin<M: Memory>(&self, _: &mut M, _: Step, local: &mut Local) {
        local.sum = 0.0;
    }

    fn run<M: Memory>(&self, m: &mut M, step: Step, item: usize, local: &mut Local) {
        match step {
            Step::Grids => self.init(m, item, local),
            Step::Materials => self.init_material(m, item),
            Step::Lookup => {
                m.work(LOOKUP_INSTRUCTIONS);
                let energy = local.random.unit();
                let material = draw(&mut local.random);
                local.sum += self.lookup(m, energy, material).iter().sum::<f64>();
            }
        }
    }

    fn finish<M: Memory>(&self, m: &mut M, step: Step, local: &mut Local) {
        if let Step::Lookup = step {
            self.sums.put(m, local.thread, local.sum);
        }
    }

    /// The sum of all cross sections looked up.
    fn result(&self) -> f64 {
        self.sums.total()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Native;
    use crate::testing::check;

    /// A material's cross sections by linear search of each nuclide's own grid.
    fn plain(xs: &Xsbench, energy: f64, material: usize) -> [f64; SECTIONS] {
        let first = xs.material(material);
        let mut sums = [0.0; SECTIONS];
        for at in first..first + xs.compositions[material].len() {
            let nuclide = xs.materials.get(at) as usize;
            let word = |point: usize, word: usize| xs.grids.get(xs.point(nuclide, point) + word);
            let above = (1..xs.points - 1).find(|point| word(*point, 0) > energy).unwrap_or(xs.points - 1);
            let [x0, x1] = [above - 1, above].map(|point| word(point, 0));
            for (section, sum) in sums.iter_mut().enumerate() {
                let [y0, y1] = [above - 1, above].map(|point| word(point, 1 + section));
                *sum += xs.densities.get(at) * (y0 + (energy - x0) / (x1 - x0) * (y1 - y0));
            }
        }
        sums
    }

    #[test]
    fn lookups_are_those_of_linear_search_and_interpolation() {
        for settings in ["nuclides=68,threads=3", "nuclides=90,threads=2", "nuclides=5,threads=1"] {
            let (program, _) = check::<Xsbench>(&format!("footprint_mib=1,operations=1000,{settings}"));
            let xs = program.workload();
            let mut random = Random::new(5, 0);
            let edges = [0.0, xs.energies.get(0), xs.energies.get(xs.energies.len() - 1), 1.0];
            let energies = edges.into_iter().chain((0..1000).map(|_| random.unit()));
            for (number, energy) in energies.enumerate() {
                let material = number % MATERIALS.len();
                let [found, expected] =
                    [xs.lookup(&mut Native, energy, material), plain(xs, energy, material)];
                let near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-9 * (1.0 + b.abs());
                assert!(found.iter().zip(&expected).all(near), "{energy}: {found:?}, not {expected:?}");
            }
        }
    }

    #[test]
    fn unionized_grid_has_all_energies_of_all_nuclides_in_order() {
        let (program, _) = check::<Xsbench>("footprint_mib=1,operations=100,threads=3");
        let xs = program.workload();
        let mut energies: Vec<_> = xs.grids.values().step_by(POINT_WORDS).collect();
        for grid in energies.chunks(xs.points) {
            assert!(grid.is_sorted_by(|a, b| a < b));
        }
        energies.sort_by(f64::total_cmp);
        assert!(xs.energies.values().eq(energies));
    }

    #[test]
    fn materials_have_the_nuclides_of_both_models() {
        for (nuclides, fuel) in [(68, 34), (355, 321)] {
            for (material, (others, _)) in MATERIALS.into_iter().enumerate() {
                let mut composition = composition(material, nuclides, 1);
                assert_eq!(composition.len(), if material == 0 { fuel } else { others });
                composition.sort();
                assert!(composition.is_sorted_by(|a, b| a < b), "a nuclide is drawn twice");
            }
        }
    }

    #[test]
    fn search_is_a_chain_and_points_wait_for_their_index() {
        let (program, recorded) = check::<Xsbench>("footprint_mib=1,operations=200,threads=1");
        let xs = program.workload();
        let within =
            |address: u64, first: u64, words: usize| (first..first + 8 * words as u64).contains(&address);
        let (energies, grids) = (xs.energies.address(0).0, xs.grids.address(0).0);
        let reads: Vec<_> = recorded.streams[0].iter().filter(|access| !access.write).collect();
        let steps = reads.iter().filter(|access| within(access.address.0, energies, xs.energies.len()));
        let chained = steps.clone().filter(|access| access.producer == 1).count();
        assert_eq!(chained, steps.count() - 200, "all but the first of each lookup");
        let points = reads.iter().filter(|access| within(access.address.0, grids, xs.grids.len()));
        assert!(points.clone().count() > 12 * 200);
        assert!(points.clone().all(|access| (1..=12).contains(&access.producer)));
    }
}

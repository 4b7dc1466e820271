//! k-means clustering by Lloyd's method.

use memtide_core::Stage;
use memtide_core::params::Parameter;

use crate::array::{Array, Space};
use crate::error::WorkloadError;
use crate::info::Info;
use crate::memory::Memory;
use crate::params::{self, Settings};
use crate::points::{LANES, distance, generate};
use crate::reduction::Reduction;
use crate::workload::{Algorithm, Phase, Workload};

/// Coordinates per point.
const DIMS: usize = 32;
/// Points per item.
const BLOCK: usize = 32;

/// Points and the centres of their clusters.
pub struct Kmeans {
    threads: usize,
    iterations: usize,
    seed: u64,
    clusters: usize,
    points: Array<f32>,
    /// Each point's cluster.
    nearest: Array<u32>,
    centres: Array<f32>,
    /// Sum and number of points, per thread and cluster.
    sums: Array<f32>,
    sizes: Array<u32>,
    objective: Reduction,
}

#[derive(Clone, Copy)]
pub enum Step {
    Init,
    /// Uses the first points as centres.
    Seed,
    Assign,
    Update,
}

/// Thread-local state.
pub struct Local {
    thread: usize,
    objective: f64,
}

impl Algorithm for Kmeans {
    const INFO: Info = Info {
        name: "kmeans",
        summary: "k-means: assigns points to the nearest of a few centres, then moves the centres to their \
            means",
        stresses: "one stream of reads; sums in the caches",
        source: "S. Lloyd, Least squares quantization in PCM, 1982; in BigDataBench",
        parameters: &[
            params::footprint_mib(48),
            Parameter::integer("clusters", "", "clusters", [1, 8, 256]),
            params::iterations(1),
            params::threads(16),
            params::PAGE,
        ],
    };

    fn new(settings: &Settings, seed: u64, space: &mut Space) -> Result<Kmeans, WorkloadError> {
        let (threads, clusters) = (settings.threads(), settings.size("clusters"));
        let points = settings.footprint_bytes() / (4 * DIMS + 4) / BLOCK * BLOCK;
        Ok(Kmeans {
            threads,
            iterations: settings.size("iterations"),
            seed,
            clusters,
            points: space.array("points", points * DIMS)?,
            nearest: space.array("nearest", points)?,
            centres: space.array("centres", clusters * DIMS)?,
            sums: space.array("sums", threads * clusters * DIMS)?,
            sizes: space.array("sizes", threads * clusters)?,
            objective: Reduction::new("objective", threads, space)?,
        })
    }
}

impl Kmeans {
    fn assign<M: Memory>(&self, m: &mut M, point: usize, local: &mut Local) {
        let (mut best, mut nearest) = (f32::INFINITY, 0);
        for cluster in 0..self.clusters {
            let distance = distance(m, &self.points, point * DIMS, &self.centres, cluster * DIMS, DIMS);
            m.work(3);
            if distance < best {
                (best, nearest) = (distance, cluster);
            }
        }
        m.store(&self.nearest, point, nearest as u32);
        local.objective += f64::from(best);
        let sum = local.thread * self.clusters + nearest;
        for first in (0..DIMS).step_by(LANES) {
            let old: [f32; LANES] = *m.load_lanes(&self.sums, sum * DIMS + first);
            let point: [f32; LANES] = *m.load_lanes(&self.points, point * DIMS + first);
            m.work(3);
            m.store_lanes::<_, LANES>(
                &self.sums,
                sum * DIMS + first,
                std::array::from_fn(|l| old[l] + point[l]),
            );
        }
        let size = *m.load(&self.sizes, sum);
        m.store(&self.sizes, sum, size + 1);
    }

    /// Moves a centre to the mean of its points, and clears the threads' sums.
    fn update<M: Memory>(&self, m: &mut M, cluster: usize) {
        let sum_of = |thread: usize| thread * self.clusters + cluster;
        let mut size = 0;
        for thread in 0..self.threads {
            size += *m.load(&self.sizes, sum_of(thread));
            m.store(&self.sizes, sum_of(thread), 0);
        }
        for first in (0..DIMS).step_by(LANES) {
            let mut total = [0.0; LANES];
            for thread in 0..self.threads {
                let sum: [f32; LANES] = *m.load_lanes(&self.sums, sum_of(thread) * DIMS + first);
                m.store_lanes(&self.sums, sum_of(thread) * DIMS + first, [0.0; LANES]);
                m.work(4);
                total = std::array::from_fn(|lane| total[lane] + sum[lane]);
            }
            if size > 0 {
                m.store_lanes(&self.centres, cluster * DIMS + first, total.map(|sum| sum / size as f32));
            }
        }
    }
}

impl Workload for Kmeans {
    type Step = Step;
    type Local = Local;

    fn threads(&self) -> usize {
        self.threads
    }

    fn phases(&self) -> Vec<Phase<Step>> {
        let blocks = self.nearest.len() / BLOCK;
        let rounds = [Phase::new(Step::Assign, blocks), Phase::new(Step::Update, self.clusters)];
        let first = [Phase::new(Step::Init, blocks), Phase::new(Step::Seed, self.clusters)];
        first.into_iter().chain(rounds.repeat(self.iterations)).collect()
    }

    fn stage(&self, _: usize, step: Step) -> Stage {
        if matches!(step, Step::Init | Step::Seed) { Stage::Initialisation } else { Stage::Region }
    }

    fn local(&self, thread: usize) -> Local {
        Local { thread, objective: 0.0 }
    }

    fn run<M: Memory>(&self, m: &mut M, step: Step, item: usize, local: &mut Local) {
        let points = item * BLOCK..(item + 1) * BLOCK;
        match step {
            Step::Init => points
                .for_each(|point| generate(m, &self.points, point, DIMS, self.clusters as u64, self.seed)),
            Step::Seed => {
                for first in (0..DIMS).step_by(LANES) {
                    let point: [f32; LANES] = *m.load_lanes(&self.points, item * DIMS + first);
                    m.store_lanes(&self.centres, item * DIMS + first, point);
                }
            }
            Step::Assign => points.for_each(|point| self.assign(m, point, local)),
            Step::Update => self.update(m, item),
        }
    }

    fn finish<M: Memory>(&self, m: &mut M, step: Step, local: &mut Local) {
        if let Step::Assign = step {
            self.objective.put(m, local.thread, std::mem::take(&mut local.objective));
        }
    }

    /// Sum of squared distances to the nearest centre, at the last assignment.
    fn result(&self) -> f64 {
        self.objective.total()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check, native};

    #[test]
    fn objective_never_rises() {
        let objective = |iterations: usize| {
            native::<Kmeans>(&format!("footprint_mib=1,iterations={iterations},threads=3")).result()
        };
        let objectives: Vec<_> = (1..7).map(objective).collect();
        assert!(objectives.windows(2).all(|pair| pair[1] <= pair[0] * (1.0 + 1e-6)), "{objectives:?}");
        assert!(objectives[5] < objectives[0] * 0.9, "{objectives:?}");
    }

    #[test]
    fn every_point_is_with_the_centre_that_was_nearest_and_centres_are_means() {
        let (program, _) = check::<Kmeans>("footprint_mib=1,iterations=1,threads=2,clusters=5");
        let kmeans = program.workload();
        let point =
            |of: &Array<f32>, at: usize| -> Vec<f32> { (0..DIMS).map(|d| of.get(at * DIMS + d)).collect() };
        let square = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(x, y)| (x - y) * (x - y)).sum::<f32>();
        let centres: Vec<_> = (0..5).map(|at| point(&kmeans.points, at)).collect();
        let mut sums = vec![(0.0, vec![0.0; DIMS]); 5];
        for at in 0..kmeans.nearest.len() {
            let x = point(&kmeans.points, at);
            let cluster = kmeans.nearest.get(at) as usize;
            let chosen = square(&x, &centres[cluster]);
            assert!(centres.iter().all(|centre| square(&x, centre) >= chosen * 0.9999));
            sums[cluster].0 += 1.0;
            sums[cluster].1.iter_mut().zip(&x).for_each(|(sum, x)| *sum += f64::from(*x));
        }
        for (cluster, (size, sum)) in sums.iter().enumerate() {
            for (mean, sum) in point(&kmeans.centres, cluster).iter().zip(sum) {
                assert!((f64::from(*mean) - sum / size).abs() < 0.01, "{mean} for {}", sum / size);
            }
        }
    }
}

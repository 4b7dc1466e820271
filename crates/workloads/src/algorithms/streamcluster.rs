//! Inner loop of online clustering: is a new centre worth its cost?

use memtide_core::Stage;

use crate::array::{Array, Space};
use crate::error::WorkloadError;
use crate::info::Info;
use crate::memory::Memory;
use crate::params::{self, Settings};
use crate::points::{distance, generate};
use crate::random::{hash, scale};
use crate::reduction::Reduction;
use crate::workload::{Algorithm, Phase, Workload};

/// Coordinates per point.
const DIMS: usize = 64;
/// Points per item.
const BLOCK: usize = 64;
/// Number of clusters that the points are drawn from.
const CLUSTERS: u64 = 20;

/// Points, and the open centres that serve them.
pub struct Streamcluster {
    threads: usize,
    iterations: usize,
    seed: u64,
    points: Array<f32>,
    /// Each point's centre, and the cost of serving it from there.
    centre: Array<u32>,
    cost: Array<f32>,
    /// Savings by serving points from the candidate, and the total cost of opened centres.
    saved: Reduction,
    spent: Reduction,
}

#[derive(Clone, Copy)]
pub enum Step {
    /// Serves all points from the first.
    Init,
    Open,
    /// Computes the savings of opening this point as a centre.
    Gain {
        candidate: usize,
    },
    /// Opens it if it saves more than it costs.
    Switch {
        candidate: usize,
    },
}

/// Thread-local state.
pub struct Local {
    thread: usize,
    sum: f64,
    opens: bool,
}

impl Algorithm for Streamcluster {
    const INFO: Info = Info {
        name: "streamcluster",
        summary: "streamcluster: measures every point's distance to one candidate centre after another",
        stresses: "one stream of reads at full speed",
        source: "after PARSEC's streamcluster (its pgain)",
        parameters: &[params::footprint_mib(64), params::iterations(2), params::threads(16), params::PAGE],
    };

    fn new(settings: &Settings, seed: u64, space: &mut Space) -> Result<Streamcluster, WorkloadError> {
        let points = settings.footprint_bytes() / (4 * DIMS + 8) / BLOCK * BLOCK;
        let threads = settings.threads();
        Ok(Streamcluster {
            threads,
            iterations: settings.size("iterations"),
            seed,
            points: space.array("points", points * DIMS)?,
            centre: space.array("centre", points)?,
            cost: space.array("cost", points)?,
            saved: Reduction::new("saved", threads, space)?,
            spent: Reduction::new("spent", threads, space)?,
        })
    }
}

impl Streamcluster {
    /// A point's saving if served from the candidate.
    fn saving<M: Memory>(&self, m: &mut M, point: usize, candidate: usize) -> (f32, f32) {
        let distance = distance(m, &self.points, point * DIMS, &self.points, candidate * DIMS, DIMS);
        let cost = *m.load(&self.cost, point);
        m.work(4);
        ((cost - distance).max(0.0), distance)
    }

    /// Cost of opening a centre: that of serving a five-hundredth of the points at the candidates' typical
    /// distance.
    fn opening_cost(&self) -> f64 {
        self.centre.len() as f64 / 500.0 * 1e4
    }
}

impl Workload for Streamcluster {
    type Step = Step;
    type Local = Local;

    fn threads(&self) -> usize {
        self.threads
    }

    fn phases(&self) -> Vec<Phase<Step>> {
        let points = self.centre.len();
        let candidate = |round: usize| scale(hash(self.seed ^ round as u64), points as u64) as usize;
        let rounds = (0..self.iterations).map(candidate);
        let rounds = rounds.flat_map(|candidate| [Step::Gain { candidate }, Step::Switch { candidate }]);
        let steps = [Step::Init, Step::Open].into_iter().chain(rounds);
        steps.map(|step| Phase::new(step, points / BLOCK)).collect()
    }

    fn stage(&self, _: usize, step: Step) -> Stage {
        if matches!(step, Step::Init | Step::Open) { Stage::Initialisation } else { Stage::Region }
    }

    fn local(&self, thread: usize) -> Local {
        Local { thread, sum: 0.0, opens: false }
    }

    fn begin<M: Memory>(&self, m: &mut M, step: Step, local: &mut Local) {
        local.sum = 0.0;
        if let Step::Switch { .. } = step {
            local.opens = self.saved.sum(m) > self.opening_cost();
        }
    }

    fn run<M: Memory>(&self, m: &mut M, step: Step, item: usize, local: &mut Local) {
        for point in item * BLOCK..(item + 1) * BLOCK {
            match step {
                Step::Init => generate(m, &self.points, point, DIMS, CLUSTERS, self.seed),
                Step::Open => {
                    let cost = distance(m, &self.points, point * DIMS, &self.points, 0, DIMS);
                    m.store(&self.centre, point, 0);
                    m.store(&self.cost, point, cost);
                    local.sum += f64::from(cost);
                }
                Step::Gain { candidate } => local.sum += f64::from(self.saving(m, point, candidate).0),
                Step::Switch { .. } if !local.opens => {}
                Step::Switch { candidate } => {
                    let (saving, distance) = self.saving(m, point, candidate);
                    if saving > 0.0 {
                        m.store(&self.centre, point, candidate as u32);
                        m.store(&self.cost, point, distance);
                        local.sum += f64::from(saving);
                    }
                }
            }
        }
    }

    fn finish<M: Memory>(&self, m: &mut M, step: Step, local: &mut Local) {
        match step {
            Step::Init => {}
            Step::Open => self.spent.put(m, local.thread, local.sum),
            Step::Gain { .. } => self.saved.put(m, local.thread, local.sum),
            Step::Switch { .. } => {
                let part = self.spent.part(m, local.thread) - local.sum;
                self.spent.put(m, local.thread, part);
            }
        }
    }

    /// Cost of serving all points.
    fn result(&self) -> f64 {
        self.spent.total()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check, native};

    #[test]
    fn costs_are_the_distances_to_the_centres_and_fall_as_centres_open() {
        let mut last = f64::INFINITY;
        let mut centres = 0;
        for iterations in [1, 5, 20] {
            let found =
                native::<Streamcluster>(&format!("footprint_mib=1,iterations={iterations},threads=3"));
            let coordinate = |point: usize, d: usize| found.points.get(point * DIMS + d);
            let mut sum = 0.0;
            let mut open: Vec<_> = found.centre.values().collect();
            for (point, centre) in open.iter().enumerate() {
                let square: f32 =
                    (0..DIMS).map(|d| (coordinate(point, d) - coordinate(*centre as usize, d)).powi(2)).sum();
                assert!((square - found.cost.get(point)).abs() <= square * 1e-4);
                sum += f64::from(square);
            }
            assert!((sum / found.result() - 1.0).abs() < 1e-4);
            assert!(sum <= last);
            last = sum;
            open.sort();
            open.dedup();
            centres = open.len();
        }
        assert!((3..=20).contains(&centres), "{centres} centres open");
    }

    #[test]
    fn gain_reads_all_points_and_hardly_writes() {
        let (_, one) = check::<Streamcluster>("footprint_mib=1,iterations=1,threads=2");
        let (_, three) = check::<Streamcluster>("footprint_mib=1,iterations=3,threads=2");
        let count = |write: bool, of: &crate::testing::Recorded| {
            of.streams.iter().flatten().filter(|access| access.write == write).count()
        };
        let reads = count(false, &three) - count(false, &one);
        let writes = count(true, &three) - count(true, &one);
        assert!(reads > 2 * (1 << 20) / 32 && writes < reads / 10, "{reads} reads, {writes} writes");
    }
}

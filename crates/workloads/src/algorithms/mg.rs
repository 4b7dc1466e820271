//! Multigrid: V-cycles for Poisson's equation in a box.

use std::array::from_fn;

use memtide_core::Stage;

use crate::array::{Array, Space};
use crate::error::WorkloadError;
use crate::info::Info;
use crate::memory::Memory;
use crate::params::{self, Settings};
use crate::random::hash;
use crate::workload::{Algorithm, Phase, Workload};

const LANES: usize = 4;
/// A vector register (AVX2).
type Vector = [f64; LANES];
/// Per four points of a residual: six additions, a fused multiply-add, and the loop's add, compare, branch.
const RESIDUAL_INSTRUCTIONS: u64 = 10;
/// Per restricted point: 26 additions, three multiplications, and the loop's add, compare, branch.
const RESTRICT_INSTRUCTIONS: u64 = 32;
/// Per two interpolated points: the means, and the loop's add, compare, branch.
const PROLONG_INSTRUCTIONS: u64 = 9;
/// Optimal damping of Jacobi smoothing for a 7-point Laplacian, divided by the diagonal.
const DAMPING: f64 = 6.0 / 7.0 / 6.0;
/// Smoothing steps after each correction; the coarsest grid has more.
const SMOOTHINGS: usize = 1;
const COARSEST_SMOOTHINGS: usize = 8;

/// A grid with `points` inner points per side, 2^k - 1 each, surrounded by zeros; rows are padded to whole
/// vectors.
struct Level {
    points: [usize; 3],
    /// The solution, or the correction of the next finer level's; the right side; the residual.
    u: Array<f64>,
    f: Array<f64>,
    r: Array<f64>,
}

impl Level {
    fn new(points: [usize; 3], number: usize, space: &mut Space) -> Result<Level, WorkloadError> {
        let len = (points[0] + 2) * (points[1] + 2) * Level::row_words(points[2]);
        let mut array = |name: &str| space.array(&format!("{name}{number}"), len);
        Ok(Level { points, u: array("u")?, f: array("f")?, r: array("r")? })
    }

    fn row_words(points: usize) -> usize {
        (points + 1) + 4
    }

    /// Distances of two rows and of two planes.
    fn strides(&self) -> [usize; 2] {
        let row = Level::row_words(self.points[2]);
        [(self.points[1] + 2) * row, row]
    }

    /// Index of a row's first element, its border.
    fn row(&self, i: usize, j: usize) -> usize {
        let [plane, row] = self.strides();
        i * plane + j * row
    }

    /// The `item`th inner row.
    fn inner_row(&self, item: usize) -> usize {
        self.row(1 + item / self.points[1], 1 + item % self.points[1])
    }

    fn inner_rows(&self) -> usize {
        self.points[0] * self.points[1]
    }
}

/// The levels, the finest first.
pub struct Mg {
    threads: usize,
    iterations: usize,
    seed: u64,
    levels: Vec<Level>,
}

#[derive(Clone, Copy)]
pub enum Step {
    Init {
        level: usize,
    },
    /// r = f - A u
    Residual {
        level: usize,
    },
    /// u += damping x r
    Smooth {
        level: usize,
    },
    /// Restricts r to the next coarser level's right side.
    Restrict {
        level: usize,
    },
    /// Adds the interpolated u of the next coarser level to u.
    Prolong {
        level: usize,
    },
}

impl Algorithm for Mg {
    const INFO: Info = Info {
        name: "mg",
        summary: "multigrid V-cycles for Poisson's equation in three dimensions",
        stresses: "bandwidth of streams, on grids from larger than the caches to very small",
        source: "after the NAS Parallel Benchmarks' MG",
        parameters: &[params::footprint_mib(64), params::iterations(1), params::threads(16), params::PAGE],
    };

    fn new(settings: &Settings, seed: u64, space: &mut Space) -> Result<Mg, WorkloadError> {
        // The finest level has 7/8 of all points; its sides are powers of two (minus one), the last the
        // longest.
        let points = settings.footprint_bytes() / (3 * 8) * 7 / 8;
        let bits = (points + 1).next_power_of_two().trailing_zeros() as usize - 1;
        let sides = from_fn(|axis| (1 << ((bits + axis) / 3)) - 1);
        let coarsenings = bits / 3 - 1;
        let levels =
            (0..coarsenings).map(|level| Level::new(sides.map(|side: usize| side >> level), level, space));
        Ok(Mg {
            threads: settings.threads(),
            iterations: settings.size("iterations"),
            seed,
            levels: levels.collect::<Result<_, _>>()?,
        })
    }
}

impl Mg {
    /// Zeros, except for the finest level's right side: points of +1 and -1, as in NPB.
    fn init<M: Memory>(&self, m: &mut M, level: usize, row: usize) {
        let Level { u, f, r, points, .. } = &self.levels[level];
        let words = Level::row_words(points[2]);
        for k in row * words..(row + 1) * words {
            let inner = (1..=points[2]).contains(&(k % words));
            let charge = match hash(self.seed ^ k as u64) % 64 {
                0 if level == 0 && inner => 1.0,
                1 if level == 0 && inner => -1.0,
                _ => 0.0,
            };
            m.work(6);
            m.store(u, k, 0.0);
            m.store(r, k, 0.0);
            m.store(f, k, charge);
        }
    }

    fn residual<M: Memory>(&self, m: &mut M, level: &Level, row: usize) {
        let Level { u, f, r, points, .. } = level;
        let [plane, line] = level.strides();
        for k in (1..=points[2]).step_by(LANES) {
            let at = row + k;
            let near: [Vector; 6] =
                [at - 1, at + 1, at - line, at + line, at - plane, at + plane].map(|at| *m.load_lanes(u, at));
            let centre: Vector = *m.load_lanes(u, at);
            let source: Vector = *m.load_lanes(f, at);
            m.work(RESIDUAL_INSTRUCTIONS);
            let lanes: Vector = from_fn(|l| {
                let sum: f64 = near.iter().map(|vector| vector[l]).sum();
                if k + l <= points[2] { source[l] - (6.0 * centre[l] - sum) } else { 0.0 }
            });
            m.store_lanes(r, at, lanes);
        }
    }

    fn smooth<M: Memory>(&self, m: &mut M, level: &Level, row: usize) {
        for at in (row + 1..=row + level.points[2]).step_by(LANES) {
            let (u, r): (Vector, Vector) = (*m.load_lanes(&level.u, at), *m.load_lanes(&level.r, at));
            m.work(3);
            m.store_lanes::<_, LANES>(&level.u, at, from_fn(|l| u[l] + DAMPING * r[l]));
        }
    }

    /// Full weighting, times 4 for the coarse grid's spacing; the correction starts from zero.
    fn restrict<M: Memory>(&self, m: &mut M, fine: &Level, coarse: &Level, item: usize) {
        let (i, j) = (1 + item / coarse.points[1], 1 + item % coarse.points[1]);
        let to = coarse.row(i, j);
        let rows: [usize; 9] = from_fn(|n| fine.row(2 * i + n / 3 - 1, 2 * j + n % 3 - 1));
        for k in 1..=coarse.points[2] {
            let mut sum = 0.0;
            for (n, row) in rows.iter().enumerate() {
                let weight = [1.0, 2.0, 1.0][n / 3] * [1.0, 2.0, 1.0][n % 3];
                let [a, b, c]: [f64; 3] = from_fn(|step| *m.load(&fine.r, row + 2 * k + step - 1));
                sum += weight * (a + 2.0 * b + c);
            }
            m.work(RESTRICT_INSTRUCTIONS);
            m.store(&coarse.f, to + k, sum / 16.0);
            m.store(&coarse.u, to + k, 0.0);
        }
    }

    /// Trilinear interpolation of a fine row from the one, two or four coarse rows next to it.
    fn prolong<M: Memory>(&self, m: &mut M, fine: &Level, coarse: &Level, item: usize) {
        let (i, j) = (1 + item / fine.points[1], 1 + item % fine.points[1]);
        let to = fine.row(i, j);
        let rows: [usize; 4] = [(0, 0), (0, 1), (1, 0), (1, 1)]
            .map(|(di, dj)| coarse.row((i + di * (i % 2)) / 2, (j + dj * (j % 2)) / 2));
        let distinct: &[usize] = match (i % 2, j % 2) {
            (0, 0) => &rows[..1],
            (0, 1) => &rows[..2],
            (1, 0) => &[rows[0], rows[2]],
            _ => &rows,
        };
        let mut before = 0.0;
        for k in 0..=coarse.points[2] {
            let sum: f64 = distinct.iter().map(|row| *m.load(&coarse.u, row + k + 1)).sum();
            let after = sum / distinct.len() as f64;
            let old: [f64; 2] = *m.load_lanes(&fine.u, to + 2 * k + 1);
            m.work(PROLONG_INSTRUCTIONS);
            let inner = if k < coarse.points[2] { after } else { 0.0 };
            m.store_lanes(&fine.u, to + 2 * k + 1, [old[0] + (before + after) / 2.0, old[1] + inner]);
            before = after;
        }
    }
}

impl Workload for Mg {
    type Step = Step;
    type Local = ();

    fn threads(&self) -> usize {
        self.threads
    }

    fn phases(&self) -> Vec<Phase<Step>> {
        let rows = |level: usize| self.levels[level].inner_rows();
        let residual = |level| Phase::new(Step::Residual { level }, rows(level));
        let smooth = |level| Phase::new(Step::Smooth { level }, rows(level));
        let coarsest = self.levels.len() - 1;
        let mut phases: Vec<_> = (0..=coarsest)
            .map(|level| {
                let [i, j, _] = self.levels[level].points;
                Phase::new(Step::Init { level }, (i + 2) * (j + 2))
            })
            .collect();
        phases.push(residual(0));
        for _ in 0..self.iterations {
            for level in 0..coarsest {
                phases.push(Phase::new(Step::Restrict { level }, rows(level + 1)));
                // The coarser level's correction is still zero: its residual is its right side.
                phases.push(residual(level + 1));
            }
            phases.extend([smooth(coarsest), residual(coarsest)].repeat(COARSEST_SMOOTHINGS));
            for level in (0..coarsest).rev() {
                phases.push(Phase::new(Step::Prolong { level }, rows(level)));
                phases.push(residual(level));
                phases.extend([smooth(level), residual(level)].repeat(SMOOTHINGS));
            }
        }
        phases
    }

    fn stage(&self, _: usize, step: Step) -> Stage {
        if matches!(step, Step::Init { .. }) { Stage::Initialisation } else { Stage::Region }
    }

    fn local(&self, _thread: usize) {}

    fn run<M: Memory>(&self, m: &mut M, step: Step, item: usize, _local: &mut ()) {
        match step {
            Step::Init { level } => self.init(m, level, item),
            Step::Residual { level } => {
                let level = &self.levels[level];
                self.residual(m, level, level.inner_row(item));
            }
            Step::Smooth { level } => {
                let level = &self.levels[level];
                self.smooth(m, level, level.inner_row(item));
            }
            Step::Restrict { level } => self.restrict(m, &self.levels[level], &self.levels[level + 1], item),
            Step::Prolong { level } => self.prolong(m, &self.levels[level], &self.levels[level + 1], item),
        }
    }

    /// The norm of the residual.
    fn result(&self) -> f64 {
        self.levels[0].r.values().map(|r| r * r).sum::<f64>().sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check, native};

    #[test]
    fn each_cycle_takes_most_of_the_residual_away() {
        let residual = |iterations: usize| {
            native::<Mg>(&format!("footprint_mib=1,iterations={iterations},threads=2")).result()
        };
        let residuals: Vec<_> = (1..8).map(residual).collect();
        for pair in residuals.windows(2) {
            assert!(pair[1] < 0.7 * pair[0], "{residuals:?}");
        }
    }

    #[test]
    fn residual_matches_solution_and_borders_stay_zero() {
        let (program, _) = check::<Mg>("footprint_mib=1,iterations=1,threads=3");
        let level = &program.workload().levels[0];
        let [plane, line] = level.strides();
        for i in 0..level.points[0] + 2 {
            for j in 0..level.points[1] + 2 {
                for k in 0..line {
                    let at = i * plane + j * line + k;
                    let inside = [(i, 0), (j, 1), (k, 2)]
                        .iter()
                        .all(|(x, axis)| (1..=level.points[*axis]).contains(x));
                    let expected = if inside {
                        let near = [at - 1, at + 1, at - line, at + line, at - plane, at + plane];
                        let sum: f64 = near.iter().map(|at| level.u.get(*at)).sum();
                        level.f.get(at) - (6.0 * level.u.get(at) - sum)
                    } else {
                        assert_eq!(level.u.get(at), 0.0);
                        0.0
                    };
                    assert!((level.r.get(at) - expected).abs() < 1e-12);
                }
            }
        }
    }
}

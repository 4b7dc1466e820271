//! The Himeno benchmark: a 19-point Jacobi solver of Poisson's equation in general coordinates.

use std::array::from_fn;

use memtide_core::Stage;

use crate::array::{Array, Space};
use crate::error::WorkloadError;
use crate::info::Info;
use crate::memory::Memory;
use crate::params::{self, Settings};
use crate::reduction::Reduction;
use crate::workload::{Algorithm, Phase, Workload};

const LANES: usize = 8;
/// A vector register (AVX2).
type Vector = [f32; LANES];
/// Per eight points: 34 floating-point operations each, a dozen of them fused, and the loop's add, compare,
/// branch.
const POINT_INSTRUCTIONS: u64 = 25;
const OMEGA: f32 = 0.8;

/// Fourteen arrays over a box; its outermost points are constant.
pub struct Himeno {
    threads: usize,
    iterations: usize,
    /// Points along i, j and k; along k 2 more than a multiple of 8.
    shape: [usize; 3],
    p: Array<f32>,
    a: [Array<f32>; 4],
    b: [Array<f32>; 3],
    c: [Array<f32>; 3],
    bnd: Array<f32>,
    wrk1: Array<f32>,
    wrk2: Array<f32>,
    gosa: Reduction,
}

#[derive(Clone, Copy)]
pub enum Step {
    Init,
    Jacobi,
    Copy,
}

impl Algorithm for Himeno {
    const INFO: Info = Info {
        name: "himeno",
        summary: "Himeno: 19-point Jacobi iterations of Poisson's equation over fourteen arrays",
        stresses: "bandwidth of many streams at once, mostly reads",
        source: "R. Himeno, RIKEN; pms section 5.4",
        parameters: &[params::footprint_mib(64), params::iterations(3), params::threads(16), params::PAGE],
    };

    fn new(settings: &Settings, _seed: u64, space: &mut Space) -> Result<Himeno, WorkloadError> {
        let points = settings.footprint_bytes() / (14 * 4);
        let side = libm::cbrt(points as f64 / 2.0) as usize;
        let shape = [side, side, (points / (side * side) - 2) / LANES * LANES + 2];
        let threads = settings.threads();
        let mut array = |name: &str| space.array(name, shape.iter().product());
        Ok(Himeno {
            threads,
            iterations: settings.size("iterations"),
            shape,
            p: array("p")?,
            a: [array("a0")?, array("a1")?, array("a2")?, array("a3")?],
            b: [array("b0")?, array("b1")?, array("b2")?],
            c: [array("c0")?, array("c1")?, array("c2")?],
            bnd: array("bnd")?,
            wrk1: array("wrk1")?,
            wrk2: array("wrk2")?,
            gosa: Reduction::new("gosa", threads, space)?,
        })
    }
}

impl Himeno {
    fn index(&self, i: usize, j: usize, k: usize) -> usize {
        (i * self.shape[1] + j) * self.shape[2] + k
    }

    /// Initialises a line along k of all arrays, as Himeno's initmt does.
    fn init<M: Memory>(&self, m: &mut M, line: usize) {
        let i = (line / self.shape[1]) as f32 / (self.shape[0] - 1) as f32;
        let values = [
            (&self.p, i * i),
            (&self.a[0], 1.0),
            (&self.a[1], 1.0),
            (&self.a[2], 1.0),
            (&self.a[3], 1.0 / 6.0),
            (&self.b[0], 0.0),
            (&self.b[1], 0.0),
            (&self.b[2], 0.0),
            (&self.c[0], 1.0),
            (&self.c[1], 1.0),
            (&self.c[2], 1.0),
            (&self.bnd, 1.0),
            (&self.wrk1, 0.0),
            (&self.wrk2, i * i),
        ];
        for (array, value) in values {
            let (first, end) = (line * self.shape[2], (line + 1) * self.shape[2] - 2);
            for at in (first..end).step_by(LANES) {
                m.work(3);
                m.store_lanes(array, at, [value; LANES]);
            }
            m.store_lanes(array, end, [value; 2]);
        }
    }

    /// A Jacobi step of eight points from `at` on: their new values in wrk2, and the squares of the changes.
    #[inline(always)]
    fn points<M: Memory>(&self, m: &mut M, at: usize) -> (Vector, f32) {
        let (di, dj) = (self.shape[1] * self.shape[2], self.shape[2]);
        let Himeno { p, a, b, c, .. } = self;
        let mut near = |up: usize, down: usize| -> Vector { *m.load_lanes(p, at + up - down) };
        let centre = near(0, 0);
        let ahead = [near(di, 0), near(dj, 0), near(1, 0)];
        let behind = [near(0, di), near(0, dj), near(0, 1)];
        let cross = [(di, dj), (dj, 1), (di, 1)]
            .map(|(x, y)| [near(x + y, 0), near(y, x), near(x, y), near(0, x + y)]);
        let a: [Vector; 4] = from_fn(|n| *m.load_lanes(&a[n], at));
        let b: [Vector; 3] = from_fn(|n| *m.load_lanes(&b[n], at));
        let c: [Vector; 3] = from_fn(|n| *m.load_lanes(&c[n], at));
        let work: Vector = *m.load_lanes(&self.wrk1, at);
        let bound: Vector = *m.load_lanes(&self.bnd, at);
        m.work(POINT_INSTRUCTIONS);
        let mut gosa = 0.0;
        let next = from_fn(|l| {
            let mut s0 = work[l];
            for n in 0..3 {
                let [pp, mp, pm, mm] = cross[n].map(|v| v[l]);
                s0 += a[n][l] * ahead[n][l] + b[n][l] * (pp - mp - pm + mm) + c[n][l] * behind[n][l];
            }
            let change = (s0 * a[3][l] - centre[l]) * bound[l];
            gosa += change * change;
            centre[l] + OMEGA * change
        });
        (next, gosa)
    }
}

impl Workload for Himeno {
    type Step = Step;
    /// The thread's number, and the squares of its changes.
    type Local = (usize, f64);

    fn threads(&self) -> usize {
        self.threads
    }

    fn phases(&self) -> Vec<Phase<Step>> {
        let [i, j, _] = self.shape;
        let inner = (i - 2) * (j - 2);
        let rounds = [Phase::new(Step::Jacobi, inner), Phase::new(Step::Copy, inner)].repeat(self.iterations);
        std::iter::once(Phase::new(Step::Init, i * j)).chain(rounds).collect()
    }

    fn stage(&self, _: usize, step: Step) -> Stage {
        if matches!(step, Step::Init) { Stage::Initialisation } else { Stage::Region }
    }

    fn local(&self, thread: usize) -> (usize, f64) {
        (thread, 0.0)
    }

    fn begin<M: Memory>(&self, _m: &mut M, _step: Step, local: &mut (usize, f64)) {
        local.1 = 0.0;
    }

    fn run<M: Memory>(&self, m: &mut M, step: Step, item: usize, local: &mut (usize, f64)) {
        let inner = self.shape[1] - 2;
        let first = self.index(1 + item / inner, 1 + item % inner, 1);
        let line = (first..first + self.shape[2] - 2).step_by(LANES);
        match step {
            Step::Init => self.init(m, item),
            Step::Jacobi => {
                for at in line {
                    let (next, gosa) = self.points(m, at);
                    local.1 += f64::from(gosa);
                    m.store_lanes(&self.wrk2, at, next);
                }
            }
            Step::Copy => {
                for at in line {
                    let next: Vector = *m.load_lanes(&self.wrk2, at);
                    m.work(3);
                    m.store_lanes(&self.p, at, next);
                }
            }
        }
    }

    fn finish<M: Memory>(&self, m: &mut M, step: Step, local: &mut (usize, f64)) {
        if let Step::Jacobi = step {
            self.gosa.put(m, local.0, local.1);
        }
    }

    /// Gosa: the sum of squares of the last iteration's changes.
    fn result(&self) -> f64 {
        self.gosa.total()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check;

    /// The pressure after some iterations, by plain loops with Himeno's coefficients.
    fn reference(himeno: &Himeno) -> Vec<f32> {
        let [ni, nj, nk] = himeno.shape;
        let start = |at: usize| {
            ((at / (nj * nk)) as f32 / (ni - 1) as f32) * ((at / (nj * nk)) as f32 / (ni - 1) as f32)
        };
        let mut p: Vec<f32> = (0..ni * nj * nk).map(start).collect();
        for _ in 0..himeno.iterations {
            let old = p.clone();
            for i in 1..ni - 1 {
                for j in 1..nj - 1 {
                    for k in 1..nk - 1 {
                        let at = himeno.index(i, j, k);
                        let sum = old[at + nj * nk]
                            + old[at - nj * nk]
                            + old[at + nk]
                            + old[at - nk]
                            + old[at + 1]
                            + old[at - 1];
                        p[at] = old[at] + OMEGA * (sum / 6.0 - old[at]);
                    }
                }
            }
        }
        p
    }

    #[test]
    fn pressures_are_those_of_plain_loops_and_gosa_falls() {
        let mut last = f64::INFINITY;
        for iterations in [1, 3, 6] {
            let (program, _) = check::<Himeno>(&format!("footprint_mib=1,iterations={iterations},threads=3"));
            let himeno = program.workload();
            for (computed, expected) in himeno.p.values().zip(reference(himeno)) {
                assert!((computed - expected).abs() < 1e-5, "{computed} for {expected}");
            }
            assert!(himeno.result() < last && himeno.result() > 0.0);
            last = himeno.result();
        }
    }
}

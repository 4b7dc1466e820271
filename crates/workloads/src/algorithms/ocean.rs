//! Ocean currents: the barotropic vorticity equation on a square, with red-black Gauss-Seidel for the stream
//! function.

use std::array::from_fn;

use memtide_core::Stage;
use memtide_core::params::Parameter;

use crate::array::{Array, Space};
use crate::error::WorkloadError;
use crate::info::Info;
use crate::memory::Memory;
use crate::params::{self, Settings};
use crate::workload::{Algorithm, Phase, Workload};

/// A vector register (AVX2).
type Vector = [f64; 4];
/// Per relaxed point: three additions, a fused multiply-add, and the loop's add, compare, branch.
const RELAX_INSTRUCTIONS: u64 = 7;
/// Per four points of the time step: 14 operations and the loop's add, compare, branch.
const ADVECT_INSTRUCTIONS: u64 = 17;
const VISCOSITY: f64 = 0.1;
const TIME_STEP: f64 = 0.05;

/// Square grids whose outermost points are 0; the spacing is 1.
pub struct Ocean {
    threads: usize,
    iterations: usize,
    sweeps: usize,
    /// Points per side; 2 more than a multiple of 4.
    side: usize,
    /// The stream function.
    psi: Array<f64>,
    /// Its Laplacian, at the current and the next time step.
    vorticity: [Array<f64>; 2],
}

#[derive(Clone, Copy)]
pub enum Step {
    Init,
    /// Relaxes the points of one colour.
    Relax {
        colour: usize,
        from: usize,
    },
    /// Computes the vorticity of the next time step.
    Advect {
        from: usize,
    },
}

impl Algorithm for Ocean {
    const INFO: Info = Info {
        name: "ocean",
        summary: "stencils over several grids: red-black Gauss-Seidel relaxation and a time step of ocean \
            currents",
        stresses: "bandwidth of several streams at once, mostly reads",
        source: "after SPLASH-2's Ocean",
        parameters: &[
            params::footprint_mib(48),
            Parameter::integer("sweeps", "", "relaxations of both colours in each iteration", [1, 1, 1000]),
            params::iterations(1),
            params::threads(16),
            params::PAGE,
        ],
    };

    fn new(settings: &Settings, _seed: u64, space: &mut Space) -> Result<Ocean, WorkloadError> {
        let side = ((settings.footprint_bytes() / (3 * 8)).isqrt() - 2) / 4 * 4 + 2;
        Ok(Ocean {
            threads: settings.threads(),
            iterations: settings.size("iterations"),
            sweeps: settings.size("sweeps"),
            side,
            psi: space.array("psi", side * side)?,
            vorticity: [space.array("vorticity", side * side)?, space.array("next vorticity", side * side)?],
        })
    }
}

impl Ocean {
    /// The initial vorticity: two gyres.
    fn gyres(&self, row: usize, column: usize) -> f64 {
        let along = |i: usize| i as f64 / (self.side - 1) as f64;
        let (x, y) = (along(column), along(row));
        (x * (1.0 - x)) * (y * (1.0 - y)) * (2.0 * y - 1.0)
    }

    fn init<M: Memory>(&self, m: &mut M, row: usize) {
        for column in 0..self.side {
            let at = row * self.side + column;
            m.work(12);
            m.store(&self.psi, at, 0.0);
            m.store(&self.vorticity[0], at, self.gyres(row, column));
            m.store(&self.vorticity[1], at, 0.0);
        }
    }

    fn relax<M: Memory>(&self, m: &mut M, row: usize, colour: usize, vorticity: &Array<f64>) {
        let first = row * self.side + 1 + (row + colour) % 2;
        let mut west = *m.load(&self.psi, first - 1);
        for at in (first..(row + 1) * self.side - 1).step_by(2) {
            let east = *m.load(&self.psi, at + 1);
            let (north, south) = (*m.load(&self.psi, at - self.side), *m.load(&self.psi, at + self.side));
            let source = *m.load(vorticity, at);
            m.work(RELAX_INSTRUCTIONS);
            m.store(&self.psi, at, 0.25 * ((west + east) + (north + south) - source));
            west = east;
        }
    }

    fn advect<M: Memory>(&self, m: &mut M, row: usize, [now, next]: [&Array<f64>; 2]) {
        let side = self.side;
        for at in (row * side + 1..(row + 1) * side - 1).step_by(4) {
            let [p, z] = [&self.psi, now].map(|array| -> [Vector; 4] {
                [at - 1, at + 1, at - side, at + side].map(|at| *m.load_lanes(array, at))
            });
            let centre: Vector = *m.load_lanes(now, at);
            m.work(ADVECT_INSTRUCTIONS);
            let lanes: Vector = from_fn(|l| step(p.map(|v| v[l]), z.map(|v| v[l]), centre[l]));
            m.store_lanes(next, at, lanes);
        }
    }
}

/// A point's vorticity after a time step, from stream function and vorticity to its west, east, north and
/// south.
fn step([pw, pe, pn, ps]: [f64; 4], [zw, ze, zn, zs]: [f64; 4], centre: f64) -> f64 {
    let jacobian = 0.25 * ((pe - pw) * (zn - zs) - (pn - ps) * (ze - zw));
    let laplacian = (zw + ze) + (zn + zs) - 4.0 * centre;
    centre + TIME_STEP * (VISCOSITY * laplacian - jacobian)
}

impl Workload for Ocean {
    type Step = Step;
    type Local = ();

    fn threads(&self) -> usize {
        self.threads
    }

    fn phases(&self) -> Vec<Phase<Step>> {
        let inner = self.side - 2;
        let mut phases = vec![Phase::new(Step::Init, self.side)];
        for from in (0..self.iterations).map(|iteration| iteration % 2) {
            for colour in [0, 1].repeat(self.sweeps) {
                phases.push(Phase::new(Step::Relax { colour, from }, inner));
            }
            phases.push(Phase::new(Step::Advect { from }, inner));
        }
        phases
    }

    fn stage(&self, _: usize, step: Step) -> Stage {
        if matches!(step, Step::Init) { Stage::Initialisation } else { Stage::Region }
    }

    fn local(&self, _thread: usize) {}

    fn run<M: Memory>(&self, m: &mut M, step: Step, item: usize, _local: &mut ()) {
        match step {
            Step::Init => self.init(m, item),
            Step::Relax { colour, from } => self.relax(m, item + 1, colour, &self.vorticity[from]),
            Step::Advect { from } => {
                self.advect(m, item + 1, [&self.vorticity[from], &self.vorticity[1 - from]]);
            }
        }
    }

    /// The vorticity's sum of squares.
    fn result(&self) -> f64 {
        self.vorticity[self.iterations % 2].values().map(|z| z * z).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check, native};

    /// The same, by plain loops.
    fn reference(ocean: &Ocean) -> (Vec<f64>, Vec<f64>) {
        let n = ocean.side;
        let inner = || (1..n - 1).flat_map(|row| (1..n - 1).map(move |column| (row, column)));
        let mut psi = vec![0.0; n * n];
        let mut z: Vec<f64> = (0..n * n).map(|at| ocean.gyres(at / n, at % n)).collect();
        for _ in 0..ocean.iterations {
            for sweep in 0..2 * ocean.sweeps {
                for (row, column) in inner().filter(|(row, column)| (row + column + 1) % 2 == sweep % 2) {
                    let at = row * n + column;
                    psi[at] = 0.25 * ((psi[at - 1] + psi[at + 1]) + (psi[at - n] + psi[at + n]) - z[at]);
                }
            }
            let old = z.clone();
            let around = |of: &[f64], at: usize| [of[at - 1], of[at + 1], of[at - n], of[at + n]];
            for (row, column) in inner() {
                let at = row * n + column;
                z[at] = step(around(&psi, at), around(&old, at), old[at]);
            }
        }
        (psi, z)
    }

    #[test]
    fn grids_are_those_of_plain_loops() {
        let (program, _) = check::<Ocean>("footprint_mib=1,iterations=2,sweeps=2,threads=3");
        let ocean = program.workload();
        let (psi, z) = reference(ocean);
        assert!(ocean.psi.values().eq(psi));
        let inner = |at: &usize| (1..ocean.side - 1).contains(&(at % ocean.side)) && *at > ocean.side;
        for at in (0..ocean.side * (ocean.side - 1)).filter(inner) {
            assert_eq!(ocean.vorticity[0].get(at), z[at]);
        }
    }

    #[test]
    fn relaxing_more_brings_the_stream_function_nearer_to_its_equation() {
        let residual = |sweeps: usize| {
            let ocean = native::<Ocean>(&format!("footprint_mib=1,sweeps={sweeps},threads=1"));
            let Ocean { side: n, psi, vorticity, .. } = &ocean;
            let defect = |at: usize| {
                let around: f64 = [at - 1, at + 1, at - n, at + n].iter().map(|at| psi.get(*at)).sum();
                around - 4.0 * psi.get(at) - vorticity[0].get(at)
            };
            let rows = (1..n - 1).flat_map(|row| (row * n + 1..(row + 1) * n - 1).map(defect));
            rows.map(|defect| defect * defect).sum::<f64>()
        };
        let (few, many) = (residual(1), residual(1000));
        assert!(many < few / 2.0, "{few} -> {many}");
    }
}

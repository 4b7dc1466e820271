//! Two-dimensional convolution.

use std::array::from_fn;

use memtide_core::Stage;

use crate::array::{Array, Space};
use crate::error::WorkloadError;
use crate::info::Info;
use crate::memory::Memory;
use crate::params::{self, Settings};
use crate::random::{hash, unit};
use crate::workload::{Algorithm, Phase, Workload};

const LANES: usize = 8;
/// A vector register (AVX2).
type Vector = [f32; LANES];
/// Rows and columns of the kernel.
const KERNEL: usize = 5;
/// The loop's add, compare, branch; the multiplications are folded into the loads.
const LOOP_INSTRUCTIONS: u64 = 3;

/// An image with a border of zeros, and the kernel's output image.
pub struct Convolution {
    threads: usize,
    iterations: usize,
    seed: u64,
    /// Rows and columns of the output; the input has KERNEL - 1 more of each.
    height: usize,
    width: usize,
    image: Array<f32>,
    made: Array<f32>,
}

#[derive(Clone, Copy)]
pub enum Step {
    Init,
    Convolve,
}

impl Algorithm for Convolution {
    const INFO: Info = Info {
        name: "convolution",
        summary: "convolves an image with a kernel of 5 x 5 weights",
        stresses: "a stream of reads and one of writes; all data alike",
        source: "hinuma section II",
        parameters: &[params::footprint_mib(48), params::iterations(1), params::threads(16), params::PAGE],
    };

    fn new(settings: &Settings, seed: u64, space: &mut Space) -> Result<Convolution, WorkloadError> {
        let side = (settings.footprint_bytes() / 8).isqrt();
        let width = (side - KERNEL) / LANES * LANES;
        let height = side - KERNEL;
        Ok(Convolution {
            threads: settings.threads(),
            iterations: settings.size("iterations"),
            seed,
            height,
            width,
            image: space.array("image", (height + KERNEL - 1) * (width + KERNEL - 1))?,
            made: space.array("made", height * width)?,
        })
    }
}

/// Weight of a pixel: a smoothing kernel with sum 1.
fn weight(row: usize, column: usize) -> f32 {
    const BINOMIAL: [f32; KERNEL] = [1.0, 4.0, 6.0, 4.0, 1.0];
    BINOMIAL[row] * BINOMIAL[column] / 256.0
}

impl Convolution {
    fn pitch(&self) -> usize {
        self.width + KERNEL - 1
    }

    /// An input pixel, from 0 to 1; 0 in the border.
    fn pixel(&self, at: usize) -> f32 {
        let border = KERNEL / 2;
        let (row, column) = (at / self.pitch(), at % self.pitch());
        let inner =
            (border..border + self.height).contains(&row) && (border..border + self.width).contains(&column);
        if inner { unit(hash(self.seed ^ hash(at as u64))) as f32 } else { 0.0 }
    }
}

impl Workload for Convolution {
    type Step = Step;
    type Local = ();

    fn threads(&self) -> usize {
        self.threads
    }

    fn phases(&self) -> Vec<Phase<Step>> {
        let rounds = std::iter::repeat_n(Phase::new(Step::Convolve, self.height), self.iterations);
        std::iter::once(Phase::new(Step::Init, self.height + KERNEL - 1)).chain(rounds).collect()
    }

    fn stage(&self, _: usize, step: Step) -> Stage {
        if matches!(step, Step::Init) { Stage::Initialisation } else { Stage::Region }
    }

    fn local(&self, _thread: usize) {}

    fn run<M: Memory>(&self, m: &mut M, step: Step, row: usize, _local: &mut ()) {
        let pitch = self.pitch();
        match step {
            Step::Init => {
                for at in (row * pitch..(row + 1) * pitch).step_by(KERNEL - 1) {
                    m.work(20);
                    m.store_lanes::<_, { KERNEL - 1 }>(&self.image, at, from_fn(|l| self.pixel(at + l)));
                }
            }
            Step::Convolve => {
                for column in (0..self.width).step_by(LANES) {
                    let mut sum: Vector = [0.0; LANES];
                    for i in 0..KERNEL {
                        for j in 0..KERNEL {
                            let pixels: Vector = *m.load_lanes(&self.image, (row + i) * pitch + column + j);
                            sum = from_fn(|lane| sum[lane] + weight(i, j) * pixels[lane]);
                        }
                    }
                    m.work(LOOP_INSTRUCTIONS);
                    m.store_lanes(&self.made, row * self.width + column, sum);
                }
            }
        }
    }

    /// The sum of all output pixels.
    fn result(&self) -> f64 {
        self.made.values().map(f64::from).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check;

    #[test]
    fn pixels_are_those_of_plain_loops() {
        let (program, _) = check::<Convolution>("footprint_mib=1,threads=3");
        let images = program.workload();
        for row in 0..images.height {
            for column in 0..images.width {
                let mut sum = 0.0;
                for i in 0..KERNEL {
                    for j in 0..KERNEL {
                        sum += weight(i, j) * images.pixel((row + i) * images.pitch() + column + j);
                    }
                }
                assert!((images.made.get(row * images.width + column) - sum).abs() < 1e-5);
            }
        }
    }

    #[test]
    fn weights_sum_to_1() {
        let sum: f32 = (0..KERNEL).flat_map(|i| (0..KERNEL).map(move |j| weight(i, j))).sum();
        assert_eq!(sum, 1.0);
    }
}

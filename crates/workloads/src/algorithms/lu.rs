//! Blocked LU factorization of a dense matrix.

use std::array::from_fn;

use memtide_core::Stage;

use crate::array::{Array, Space};
use crate::error::WorkloadError;
use crate::info::Info;
use crate::memory::Memory;
use crate::params::{self, Settings};
use crate::random::{hash, unit};
use crate::workload::{Algorithm, Phase, Workload};

/// A vector register (AVX2).
type Vector = [f64; 4];
/// Rows and columns per block.
const SIDE: usize = 32;
const BLOCK_WORDS: usize = SIDE * SIDE;
/// Rows and vectors of the tile of a block in registers.
const TILE_ROWS: usize = 4;
const TILE_VECTORS: usize = 2;
/// Per tile step: eight fused multiply-adds, and the loop's add, compare, branch.
const TILE_INSTRUCTIONS: u64 = 11;
/// Per vector of a triangular solve or of the factorization: a fused multiply-add, and the loop's add,
/// compare, branch.
const VECTOR_INSTRUCTIONS: u64 = 4;

/// A matrix of contiguous blocks.
pub struct Lu {
    threads: usize,
    seed: u64,
    /// Blocks per side.
    blocks: usize,
    a: Array<f64>,
}

#[derive(Clone, Copy)]
pub enum Step {
    Init,
    /// Factors the diagonal block.
    Factor {
        k: usize,
    },
    /// Solves the row to its right and the column below it.
    Panels {
        k: usize,
    },
    /// Subtracts their product from the rest.
    Update {
        k: usize,
    },
}

impl Algorithm for Lu {
    const INFO: Info = Info {
        name: "lu",
        summary: "blocked LU factorization of a dense matrix without pivoting",
        stresses: "arithmetic on blocks in the caches; little bandwidth",
        source: "after SPLASH-2's LU (contiguous blocks) and HPL",
        parameters: &[params::footprint_mib(4), params::threads(16), params::PAGE],
    };

    fn new(settings: &Settings, seed: u64, space: &mut Space) -> Result<Lu, WorkloadError> {
        let blocks = (settings.footprint_bytes() / 8 / BLOCK_WORDS).isqrt();
        let a = space.array("a", blocks * blocks * BLOCK_WORDS)?;
        Ok(Lu { threads: settings.threads(), seed, blocks, a })
    }
}

impl Lu {
    /// A block's first element.
    fn block(&self, row: usize, column: usize) -> usize {
        (row * self.blocks + column) * BLOCK_WORDS
    }

    /// An element of the input matrix, which is diagonally dominant.
    fn element(&self, row: usize, column: usize) -> f64 {
        let bits = hash(self.seed ^ hash((row * self.blocks * SIDE + column) as u64));
        unit(bits) + if row == column { (self.blocks * SIDE) as f64 } else { 0.0 }
    }

    fn init<M: Memory>(&self, m: &mut M, item: usize) {
        let (block_row, block_column) = (item / self.blocks, item % self.blocks);
        for at in (0..BLOCK_WORDS).step_by(4) {
            let (row, column) = (block_row * SIDE + at / SIDE, block_column * SIDE + at % SIDE);
            m.work(30);
            m.store_lanes::<_, 4>(
                &self.a,
                item * BLOCK_WORDS + at,
                from_fn(|l| self.element(row, column + l)),
            );
        }
    }

    /// a[to..] -= factor x a[from..], from the vector with column `first` on.
    fn subtract_row<M: Memory>(&self, m: &mut M, to: usize, from: usize, factor: f64, first: usize) {
        for column in (first / 4 * 4..SIDE).step_by(4) {
            let x: Vector = *m.load_lanes(&self.a, from + column);
            let y: Vector = *m.load_lanes(&self.a, to + column);
            m.work(VECTOR_INSTRUCTIONS);
            let lanes = from_fn(|l| if column + l < first { y[l] } else { y[l] - factor * x[l] });
            m.store_lanes::<_, 4>(&self.a, to + column, lanes);
        }
    }

    /// Factors a block into a unit lower and an upper triangular matrix.
    fn factor<M: Memory>(&self, m: &mut M, block: usize) {
        for k in 0..SIDE {
            let pivot = *m.load(&self.a, block + k * SIDE + k);
            for row in k + 1..SIDE {
                let factor = *m.load(&self.a, block + row * SIDE + k) / pivot;
                m.store(&self.a, block + row * SIDE + k, factor);
                self.subtract_row(m, block + row * SIDE, block + k * SIDE, factor, k + 1);
            }
        }
    }

    /// Solves L X = B for a block to the right of the diagonal block.
    fn solve_lower<M: Memory>(&self, m: &mut M, diagonal: usize, block: usize) {
        for k in 0..SIDE {
            for row in k + 1..SIDE {
                let factor = *m.load(&self.a, diagonal + row * SIDE + k);
                self.subtract_row(m, block + row * SIDE, block + k * SIDE, factor, 0);
            }
        }
    }

    /// Solves X U = B for a block below the diagonal block.
    fn solve_upper<M: Memory>(&self, m: &mut M, diagonal: usize, block: usize) {
        for k in 0..SIDE {
            let pivot = *m.load(&self.a, diagonal + k * SIDE + k);
            for row in 0..SIDE {
                let factor = *m.load(&self.a, block + row * SIDE + k) / pivot;
                m.store(&self.a, block + row * SIDE + k, factor);
                self.subtract_row(m, block + row * SIDE, diagonal + k * SIDE, factor, k + 1);
            }
        }
    }

    /// c -= a b, tile by tile.
    fn multiply<M: Memory>(&self, m: &mut M, a: usize, b: usize, c: usize) {
        for row in (0..SIDE).step_by(TILE_ROWS) {
            for column in (0..SIDE).step_by(4 * TILE_VECTORS) {
                let at = |r: usize, v: usize| c + (row + r) * SIDE + column + 4 * v;
                let mut tile: [[Vector; TILE_VECTORS]; TILE_ROWS] =
                    from_fn(|r| from_fn(|v| *m.load_lanes(&self.a, at(r, v))));
                for k in 0..SIDE {
                    let right: [Vector; TILE_VECTORS] =
                        from_fn(|v| *m.load_lanes(&self.a, b + k * SIDE + column + 4 * v));
                    for (r, sums) in tile.iter_mut().enumerate() {
                        let left = *m.load(&self.a, a + (row + r) * SIDE + k);
                        for (sum, right) in sums.iter_mut().zip(&right) {
                            *sum = from_fn(|l| sum[l] - left * right[l]);
                        }
                    }
                    m.work(TILE_INSTRUCTIONS);
                }
                for (r, sums) in tile.into_iter().enumerate() {
                    for (v, sum) in sums.into_iter().enumerate() {
                        m.store_lanes(&self.a, at(r, v), sum);
                    }
                }
            }
        }
    }
}

impl Workload for Lu {
    type Step = Step;
    type Local = ();

    fn threads(&self) -> usize {
        self.threads
    }

    fn phases(&self) -> Vec<Phase<Step>> {
        let rounds = (0..self.blocks).flat_map(|k| {
            let rest = self.blocks - k - 1;
            [
                Phase::new(Step::Factor { k }, 1),
                Phase::new(Step::Panels { k }, 2 * rest),
                Phase::new(Step::Update { k }, rest * rest),
            ]
        });
        std::iter::once(Phase::new(Step::Init, self.blocks * self.blocks)).chain(rounds).collect()
    }

    fn stage(&self, _: usize, step: Step) -> Stage {
        if matches!(step, Step::Init) { Stage::Initialisation } else { Stage::Region }
    }

    fn local(&self, _thread: usize) {}

    fn run<M: Memory>(&self, m: &mut M, step: Step, item: usize, _local: &mut ()) {
        match step {
            Step::Init => self.init(m, item),
            Step::Factor { k } => self.factor(m, self.block(k, k)),
            Step::Panels { k } => {
                let other = k + 1 + item / 2;
                match item % 2 {
                    0 => self.solve_lower(m, self.block(k, k), self.block(k, other)),
                    _ => self.solve_upper(m, self.block(k, k), self.block(other, k)),
                }
            }
            Step::Update { k } => {
                let rest = self.blocks - k - 1;
                let (row, column) = (k + 1 + item / rest, k + 1 + item % rest);
                self.multiply(m, self.block(row, k), self.block(k, column), self.block(row, column));
            }
        }
    }

    /// The logarithm of the determinant.
    fn result(&self) -> f64 {
        let diagonal = (0..self.blocks * SIDE)
            .map(|i| self.a.get(self.block(i / SIDE, i / SIDE) + (i % SIDE) * (SIDE + 1)));
        diagonal.map(|pivot| libm::log(pivot.abs())).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check;

    #[test]
    fn product_of_factors_is_matrix() {
        let (program, _) = check::<Lu>("footprint_mib=1,threads=3");
        let lu = program.workload();
        let n = lu.blocks * SIDE;
        let at = |row: usize, column: usize| {
            lu.a.get(lu.block(row / SIDE, column / SIDE) + (row % SIDE) * SIDE + column % SIDE)
        };
        for row in (0..n).step_by(7) {
            for column in 0..n {
                let lower = |k: usize| if k == row { 1.0 } else { at(row, k) };
                let sum: f64 = (0..=row.min(column)).map(|k| lower(k) * at(k, column)).sum();
                assert!((sum - lu.element(row, column)).abs() < 1e-9, "{row}, {column}");
            }
        }
    }
}

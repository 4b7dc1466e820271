//! A one-dimensional complex FFT in six steps.

use std::array::from_fn;
use std::f64::consts::PI;

use memtide_core::Stage;

use crate::array::{Array, Space};
use crate::error::WorkloadError;
use crate::info::Info;
use crate::memory::Memory;
use crate::params::{self, Settings};
use crate::random::{hash, unit};
use crate::workload::{Algorithm, Phase, Workload};

/// A vector register (AVX2): two complex numbers.
type Pair = [f64; 4];
/// Rows of a transposed matrix written per item.
const TRANSPOSED_ROWS: usize = 4;
/// Per product of two pairs: three shuffles, two multiplications, one add-subtract.
const MULTIPLY_INSTRUCTIONS: u64 = 6;
/// A loop's add, compare, branch.
const LOOP_INSTRUCTIONS: u64 = 3;
/// Sine and cosine of an angle.
const ROOT_INSTRUCTIONS: u64 = 80;

/// n = `rows` x `columns` complex numbers, real and imaginary part side by side.
pub struct Fft {
    threads: usize,
    seed: u64,
    rows: usize,
    columns: usize,
    x: Array<f64>,
    y: Array<f64>,
    /// The n-th roots of unity for step 3, in order of use.
    twiddles: Array<f64>,
    /// The roots for the rows' FFTs: those of a stage of half length h start at h.
    roots: Array<f64>,
}

#[derive(Clone, Copy)]
pub enum Step {
    Roots,
    Init,
    /// Writes x, of rows x columns, to y, of columns x rows; or y to x.
    Transpose {
        x_to_y: bool,
    },
    /// Transforms the rows of y or x, and multiplies those of y by the twiddles.
    Rows {
        of_y: bool,
    },
}

impl Algorithm for Fft {
    const INFO: Info = Info {
        name: "fft",
        summary: "complex FFT in six steps: transposes, and FFTs of the rows between them",
        stresses: "sequential and strided reads and writes",
        source: "D. Bailey, FFTs in external or hierarchical memory, 1990; SPLASH-2's FFT",
        parameters: &[params::footprint_mib(64), params::threads(16), params::PAGE],
    };

    fn new(settings: &Settings, seed: u64, space: &mut Space) -> Result<Fft, WorkloadError> {
        let n = (settings.footprint_bytes() / (3 * 16) + 1).next_power_of_two() / 2;
        let columns = 1 << (n.trailing_zeros() / 2);
        let rows = n / columns;
        Ok(Fft {
            threads: settings.threads(),
            seed,
            rows,
            columns,
            x: space.array("x", 2 * n)?,
            y: space.array("y", 2 * n)?,
            twiddles: space.array("twiddles", 2 * n)?,
            roots: space.array("roots", 2 * rows)?,
        })
    }
}

/// e^(-2 pi i turn).
fn root(turn: f64) -> [f64; 2] {
    [libm::cos(2.0 * PI * turn), -libm::sin(2.0 * PI * turn)]
}

/// The products of two pairs of complex numbers.
fn multiply(a: Pair, b: Pair) -> Pair {
    from_fn(|lane| match lane & 1 {
        0 => a[lane] * b[lane] - a[lane + 1] * b[lane + 1],
        _ => a[lane - 1] * b[lane] + a[lane] * b[lane - 1],
    })
}

impl Fft {
    fn fill_roots<M: Memory>(&self, m: &mut M, item: usize) {
        // Row `item` of y, and the stage table's entry with that index.
        for column in 0..self.rows {
            let turn = (item * column) as f64 / (self.rows * self.columns) as f64;
            m.work(ROOT_INSTRUCTIONS);
            m.store_lanes(&self.twiddles, 2 * (item * self.rows + column), root(turn));
        }
        for entry in (item..self.rows).step_by(self.columns).filter(|entry| *entry > 0) {
            let half = 1 << entry.ilog2();
            m.work(ROOT_INSTRUCTIONS);
            m.store_lanes(&self.roots, 2 * entry, root((entry - half) as f64 / (2 * half) as f64));
        }
    }

    fn init<M: Memory>(&self, m: &mut M, row: usize) {
        for i in (2 * row * self.columns..2 * (row + 1) * self.columns).step_by(4) {
            let values: Pair = from_fn(|lane| input(self.seed, i + lane));
            m.work(20);
            m.store_lanes(&self.x, i, values);
        }
    }

    /// Writes `TRANSPOSED_ROWS` rows of `to`, each `length` long, from as many columns of `from`.
    fn transpose<M: Memory>(
        &self,
        m: &mut M,
        from: &Array<f64>,
        to: &Array<f64>,
        first: usize,
        length: usize,
    ) {
        let width = self.rows * self.columns / length;
        for j in (0..length).step_by(2) {
            for i in (first..first + TRANSPOSED_ROWS).step_by(2) {
                let a: Pair = *m.load_lanes(from, 2 * (j * width + i));
                let b: Pair = *m.load_lanes(from, 2 * ((j + 1) * width + i));
                m.work(2 + LOOP_INSTRUCTIONS);
                m.store_lanes(to, 2 * (i * length + j), [a[0], a[1], b[0], b[1]]);
                m.store_lanes(to, 2 * ((i + 1) * length + j), [a[2], a[3], b[2], b[3]]);
            }
        }
    }

    /// One part of a row's FFT: 0 permutes the row to bit-reversed order, 1.. are the stages, after which the
    /// row of y is multiplied by its twiddles.
    fn transform<M: Memory>(&self, m: &mut M, data: &Array<f64>, row: usize, length: usize, part: usize) {
        let base = 2 * row * length;
        let stages = length.ilog2() as usize;
        match part {
            0 => bit_reverse(m, data, base, length),
            1 => first_stage(m, data, base, length),
            part if part <= stages => self.stage(m, data, base, length, 1 << (part - 1)),
            _ => {
                for i in (base..base + 2 * length).step_by(4) {
                    let product = multiply(*m.load_lanes(data, i), *m.load_lanes(&self.twiddles, i));
                    m.work(MULTIPLY_INSTRUCTIONS + LOOP_INSTRUCTIONS);
                    m.store_lanes(data, i, product);
                }
            }
        }
    }

    /// The butterflies of a stage with groups of length `2 * half`.
    fn stage<M: Memory>(&self, m: &mut M, data: &Array<f64>, base: usize, length: usize, half: usize) {
        for group in (base..base + 2 * length).step_by(4 * half) {
            for j in (0..2 * half).step_by(4) {
                let low: Pair = *m.load_lanes(data, group + j);
                let high: Pair = *m.load_lanes(data, group + 2 * half + j);
                let turned = multiply(high, *m.load_lanes(&self.roots, 2 * half + j));
                m.work(2 + MULTIPLY_INSTRUCTIONS + LOOP_INSTRUCTIONS);
                m.store_lanes::<_, 4>(data, group + j, from_fn(|lane| low[lane] + turned[lane]));
                m.store_lanes::<_, 4>(data, group + 2 * half + j, from_fn(|lane| low[lane] - turned[lane]));
            }
        }
    }
}

/// A real or imaginary part of the input.
fn input(seed: u64, index: usize) -> f64 {
    unit(hash(seed ^ hash(index as u64))) - 0.5
}

fn bit_reverse<M: Memory>(m: &mut M, data: &Array<f64>, base: usize, length: usize) {
    for i in 0..length {
        let j = i.reverse_bits() >> (usize::BITS - length.ilog2());
        m.work(2 + LOOP_INSTRUCTIONS);
        if i < j {
            let (a, b): ([f64; 2], [f64; 2]) =
                (*m.load_lanes(data, base + 2 * i), *m.load_lanes(data, base + 2 * j));
            m.store_lanes(data, base + 2 * i, b);
            m.store_lanes(data, base + 2 * j, a);
        }
    }
}

/// The stage of neighbours, whose roots are all 1.
fn first_stage<M: Memory>(m: &mut M, data: &Array<f64>, base: usize, length: usize) {
    for i in (base..base + 2 * length).step_by(4) {
        let [a, b, c, d]: Pair = *m.load_lanes(data, i);
        m.work(4 + LOOP_INSTRUCTIONS);
        m.store_lanes(data, i, [a + c, b + d, a - c, b - d]);
    }
}

impl Workload for Fft {
    type Step = Step;
    type Local = ();

    fn threads(&self) -> usize {
        self.threads
    }

    fn phases(&self) -> Vec<Phase<Step>> {
        let Fft { rows, columns, .. } = *self;
        let parts = |length: usize| 1 + length.ilog2() as usize;
        vec![
            Phase::new(Step::Roots, columns),
            Phase::new(Step::Init, rows),
            Phase::new(Step::Transpose { x_to_y: true }, columns / TRANSPOSED_ROWS),
            Phase::grouped(Step::Rows { of_y: true }, columns, parts(rows) + 1),
            Phase::new(Step::Transpose { x_to_y: false }, rows / TRANSPOSED_ROWS),
            Phase::grouped(Step::Rows { of_y: false }, rows, parts(columns)),
            Phase::new(Step::Transpose { x_to_y: true }, columns / TRANSPOSED_ROWS),
        ]
    }

    fn stage(&self, _: usize, step: Step) -> Stage {
        if matches!(step, Step::Roots | Step::Init) { Stage::Initialisation } else { Stage::Region }
    }

    fn local(&self, _thread: usize) {}

    fn run<M: Memory>(&self, m: &mut M, step: Step, item: usize, _local: &mut ()) {
        let Fft { rows, columns, .. } = *self;
        match step {
            Step::Roots => self.fill_roots(m, item),
            Step::Init => self.init(m, item),
            Step::Transpose { x_to_y: true } => {
                self.transpose(m, &self.x, &self.y, item * TRANSPOSED_ROWS, rows)
            }
            Step::Transpose { x_to_y: false } => {
                self.transpose(m, &self.y, &self.x, item * TRANSPOSED_ROWS, columns)
            }
            Step::Rows { of_y: true } => {
                let parts = rows.ilog2() as usize + 2;
                self.transform(m, &self.y, item / parts, rows, item % parts);
            }
            Step::Rows { of_y: false } => {
                let parts = columns.ilog2() as usize + 1;
                self.transform(m, &self.x, item / parts, columns, item % parts);
            }
        }
    }

    /// The sum of the spectrum's squares.
    fn result(&self) -> f64 {
        self.y.values().map(|part| part * part).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check;

    #[test]
    fn spectrum_matches_definition() {
        for params in ["footprint_mib=1,threads=3", "footprint_mib=2,threads=2"] {
            let (program, _) = check::<Fft>(params);
            let fft = program.workload();
            let n = fft.rows * fft.columns;
            let roots: Vec<_> = (0..n).map(|k| root(k as f64 / n as f64)).collect();
            for k in [0, 1, 2, fft.rows - 1, fft.rows, n / 2 + 1, n - 1] {
                let mut sum = [0.0; 2];
                for j in 0..n {
                    let [c, s] = roots[j * k % n];
                    let (re, im) = (input(1, 2 * j), input(1, 2 * j + 1));
                    sum[0] += re * c - im * s;
                    sum[1] += re * s + im * c;
                }
                for (part, expected) in sum.into_iter().enumerate() {
                    let computed = fft.y.get(2 * k + part);
                    assert!((computed - expected).abs() < 1e-8, "{k}: {computed} for {expected}");
                }
            }
        }
    }
}

//! Conjugate gradients on a sparse symmetric matrix with random columns.

use memtide_core::Stage;

use crate::array::{Array, Space};
use crate::error::WorkloadError;
use crate::info::Info;
use crate::memory::Memory;
use crate::params::{self, Settings};
use crate::random::{Permutation, hash, unit};
use crate::reduction::Reduction;
use crate::workload::{Algorithm, Phase, Workload};

const LANES: usize = 4;
/// Entries per row: the diagonal and eleven others.
const ENTRIES: usize = 12;
/// Rows per item.
const BLOCK: usize = 64;
/// Instructions beside accesses: per four entries of a row, for the rest of the row, and per four elements of
/// the two vector updates. Counted on the native build (x86-64, release), see docs/workloads.md:
/// 159 a row and iteration, shared out as the source's operations are.
const ENTRY_INSTRUCTIONS: u64 = 36;
const ROW_INSTRUCTIONS: u64 = 16;
const ADVANCE_INSTRUCTIONS: u64 = 29;
const TURN_INSTRUCTIONS: u64 = 17;

/// A in compressed sparse rows, and the vectors of the iteration for A x = b with b = (1, .., 1).
pub struct Cg {
    threads: usize,
    iterations: usize,
    seed: u64,
    /// Each pairs the rows: x and y have a common entry if they are neighbours in a permuted order.
    pairings: [Permutation; ENTRIES - 1],
    row_start: Array<u32>,
    columns: Array<u32>,
    values: Array<f64>,
    x: Array<f64>,
    r: Array<f64>,
    p: Array<f64>,
    q: Array<f64>,
    /// p q and r r.
    pq: Reduction,
    rr: Reduction,
}

#[derive(Clone, Copy)]
pub enum Step {
    Init,
    /// q = A p
    Multiply,
    /// x += alpha p, r -= alpha q
    Advance,
    /// p = r + beta p
    Turn,
}

/// Thread-local state.
#[derive(Default)]
pub struct Local {
    thread: usize,
    /// The thread's part of the current sum.
    sum: f64,
    /// r r of the current iteration.
    rho: f64,
    /// alpha or beta.
    factor: f64,
}

impl Algorithm for Cg {
    const INFO: Info = Info {
        name: "cg",
        summary: "conjugate gradients: sparse matrix times vector, with gathers through a column index",
        stresses: "bandwidth of reads; random reads that depend on an index",
        source: "after the NAS Parallel Benchmarks' CG",
        parameters: &[params::footprint_mib(64), params::iterations(2), params::threads(16), params::PAGE],
    };

    fn new(settings: &Settings, seed: u64, space: &mut Space) -> Result<Cg, WorkloadError> {
        let row_bytes = 4 + 12 * ENTRIES + 4 * 8;
        let rows = settings.footprint_bytes() / row_bytes / BLOCK * BLOCK;
        let threads = settings.threads();
        Ok(Cg {
            threads,
            iterations: settings.size("iterations"),
            seed,
            pairings: std::array::from_fn(|k| Permutation::new(rows as u64, hash(seed ^ k as u64))),
            row_start: space.array("row_start", rows + 1)?,
            columns: space.array("columns", rows * ENTRIES)?,
            values: space.array("values", rows * ENTRIES)?,
            x: space.array("x", rows)?,
            r: space.array("r", rows)?,
            p: space.array("p", rows)?,
            q: space.array("q", rows)?,
            pq: Reduction::new("pq", threads, space)?,
            rr: Reduction::new("rr", threads, space)?,
        })
    }
}

impl Cg {
    /// A row's `k`th neighbour and their common entry.
    fn entry(&self, row: usize, k: usize) -> (usize, f64) {
        let pairing = &self.pairings[k];
        let column = pairing.forward(pairing.inverse(row as u64) ^ 1) as usize;
        let pair = (row.min(column) as u64) << 32 | row.max(column) as u64;
        (column, -unit(hash(self.seed ^ hash(pair))))
    }

    /// Fills a row: the diagonal exceeds the sum of the others, which makes A positive definite.
    fn init<M: Memory>(&self, m: &mut M, row: usize) {
        let excess = 0.1 + unit(hash(self.seed ^ row as u64));
        let mut entries = [(row, excess); ENTRIES];
        for k in 0..ENTRIES - 1 {
            entries[k + 1] = self.entry(row, k);
            entries[0].1 -= entries[k + 1].1;
        }
        let start = row * ENTRIES;
        m.work(20 * ENTRIES as u64);
        m.store(&self.row_start, row + 1, (start + ENTRIES) as u32);
        for first in (0..ENTRIES).step_by(LANES) {
            let lanes: [_; LANES] = std::array::from_fn(|lane| entries[first + lane]);
            m.store_lanes(&self.columns, start + first, lanes.map(|(column, _)| column as u32));
            m.store_lanes(&self.values, start + first, lanes.map(|(_, value)| value));
        }
        m.store(&self.x, row, 0.0);
        m.store(&self.r, row, 1.0);
        m.store(&self.p, row, 1.0);
    }

    /// A row's part of p q.
    fn multiply<M: Memory>(&self, m: &mut M, row: usize) -> f64 {
        let start = m.load(&self.row_start, row).map(|start| start as usize);
        let mut sum = [0.0; LANES];
        for first in (0..ENTRIES).step_by(LANES) {
            let columns = m.load_lanes::<_, LANES>(&self.columns, start.map(|start| start + first));
            let values: [f64; LANES] = *m.load_lanes(&self.values, start.map(|start| start + first));
            for lane in 0..LANES {
                let p = *m.load(&self.p, columns.map(|columns| columns[lane] as usize));
                sum[lane] += values[lane] * p;
            }
            m.work(ENTRY_INSTRUCTIONS);
        }
        let q = sum.iter().sum();
        m.work(ROW_INSTRUCTIONS);
        m.store(&self.q, row, q);
        q * *m.load(&self.p, row)
    }

    /// Four rows' part of r r.
    fn advance<M: Memory>(&self, m: &mut M, row: usize, alpha: f64) -> f64 {
        let axpy = |a: f64, x: [f64; LANES], y: [f64; LANES]| std::array::from_fn(|l| a * x[l] + y[l]);
        let x: [f64; LANES] = axpy(alpha, *m.load_lanes(&self.p, row), *m.load_lanes(&self.x, row));
        m.store_lanes(&self.x, row, x);
        let r: [f64; LANES] = axpy(-alpha, *m.load_lanes(&self.q, row), *m.load_lanes(&self.r, row));
        m.store_lanes(&self.r, row, r);
        m.work(ADVANCE_INSTRUCTIONS);
        r.iter().map(|r| r * r).sum()
    }

    fn turn<M: Memory>(&self, m: &mut M, row: usize, beta: f64) {
        let (r, p): ([f64; LANES], [f64; LANES]) = (*m.load_lanes(&self.r, row), *m.load_lanes(&self.p, row));
        m.work(TURN_INSTRUCTIONS);
        m.store_lanes::<_, LANES>(&self.p, row, std::array::from_fn(|lane| r[lane] + beta * p[lane]));
    }
}

impl Workload for Cg {
    type Step = Step;
    type Local = Local;

    fn threads(&self) -> usize {
        self.threads
    }

    fn phases(&self) -> Vec<Phase<Step>> {
        let round = [Step::Multiply, Step::Advance, Step::Turn].repeat(self.iterations);
        let blocks = self.x.len() / BLOCK;
        std::iter::once(Step::Init).chain(round).map(|step| Phase::new(step, blocks)).collect()
    }

    fn stage(&self, _: usize, step: Step) -> Stage {
        if matches!(step, Step::Init) { Stage::Initialisation } else { Stage::Region }
    }

    fn local(&self, thread: usize) -> Local {
        Local { thread, rho: self.x.len() as f64, ..Local::default() }
    }

    fn begin<M: Memory>(&self, m: &mut M, step: Step, local: &mut Local) {
        local.sum = 0.0;
        match step {
            Step::Init | Step::Multiply => {}
            Step::Advance => local.factor = local.rho / self.pq.sum(m),
            Step::Turn => {
                let rho = self.rr.sum(m);
                local.factor = rho / local.rho;
                local.rho = rho;
            }
        }
    }

    fn run<M: Memory>(&self, m: &mut M, step: Step, item: usize, local: &mut Local) {
        let rows = item * BLOCK..(item + 1) * BLOCK;
        match step {
            Step::Init => rows.for_each(|row| self.init(m, row)),
            Step::Multiply => rows.for_each(|row| local.sum += self.multiply(m, row)),
            Step::Advance => {
                rows.step_by(LANES).for_each(|row| local.sum += self.advance(m, row, local.factor));
            }
            Step::Turn => rows.step_by(LANES).for_each(|row| self.turn(m, row, local.factor)),
        }
    }

    fn finish<M: Memory>(&self, m: &mut M, step: Step, local: &mut Local) {
        match step {
            Step::Multiply => self.pq.put(m, local.thread, local.sum),
            Step::Advance => self.rr.put(m, local.thread, local.sum),
            Step::Init | Step::Turn => {}
        }
    }

    /// The norm of the residual.
    fn result(&self) -> f64 {
        self.rr.total().sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check, native};

    #[test]
    fn matrix_is_symmetric_and_residual_falls() {
        let mut last = f64::INFINITY;
        for iterations in [1, 4, 16] {
            let cg = native::<Cg>(&format!("footprint_mib=1,iterations={iterations},threads=3"));
            let mut dense_check = std::collections::BTreeMap::new();
            let mut square = 0.0;
            for row in 0..cg.x.len() {
                let mut sum = 0.0;
                for at in row * ENTRIES..(row + 1) * ENTRIES {
                    let (column, value) = (cg.columns.get(at) as usize, cg.values.get(at));
                    sum += value * cg.x.get(column);
                    *dense_check.entry((row.min(column), row.max(column))).or_insert(0.0) +=
                        if row < column { value } else { -value };
                }
                square += (1.0 - sum) * (1.0 - sum);
            }
            assert!(dense_check.iter().all(|((row, column), sum)| row == column || *sum == 0.0));
            let residual = cg.result();
            assert!((square.sqrt() / residual - 1.0).abs() < 1e-6, "{} for {residual}", square.sqrt());
            assert!(residual < last / 2.0, "{last} -> {residual}");
            last = residual;
        }
    }

    #[test]
    fn gathers_wait_for_their_column_index() {
        let (program, recorded) = check::<Cg>("footprint_mib=1,iterations=1,threads=2");
        let p = program.workload().p.address(0).0..program.workload().q.address(0).0;
        let gathers = |access: &&memtide_core::Access| {
            p.contains(&access.address.0) && !access.write && access.size == 8 && access.producer > 0
        };
        let gathers: Vec<_> = recorded.streams.iter().flatten().filter(gathers).collect();
        assert_eq!(gathers.len(), program.workload().columns.len());
        assert!(gathers.iter().all(|access| (2..=5).contains(&access.producer)));
    }
}

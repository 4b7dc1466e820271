//! Sparse factorizations column by column, as CSparse's second demo runs them.
//!
//! ```text
//!  lu, left-looking                            cholesky, up-looking
//!   column k of A ─▶ x                          row k of A ─▶ x
//!   search: read the indices of L's columns     walk the elimination tree for the columns
//!     that reach x, and mark what they reach      in which row k of L has nonzeros
//!   solve: x -= x[j] L[:, j] for each           solve: l = x[j] / L[j, j], x -= l L[j..k, j] for each,
//!   store: x above ─▶ U, below ─▶ L             and l is stored at the end of column j
//! ```
//!
//! A mesh's matrix is diagonally dominant: partial pivoting searches each column and finds its diagonal
//! element, so that the factors' structure is known before. QR by Householder reflections is in `qr`.
//!
//! # Sample
//! With `sample` = f, one in f columns is computed, and of each part of a column's work one of f nearly equal
//! runs, the next run at the next column. That is one in f² of the work. Columns left out are those of A's
//! diagonal. Off-diagonal elements are negative, and subtractions make them more so: the fewer, the smaller
//! are the factors' elements and the larger the pivots, so that all stay finite.

mod mesh;
mod qr;
mod structure;

use std::ops::Range;

use memtide_core::Stage;
use memtide_core::params::Parameter;

use crate::array::{Array, Element, Space};
use crate::error::WorkloadError;
use crate::info::Info;
use crate::memory::{Loaded, Memory, Native};
use crate::params::{self, Settings};
use crate::workload::{Algorithm, Phase, Workload, block};
use mesh::{CT20STIF, Kind, Mesh, ND3K};
use qr::Reflections;
use structure::Structure;

/// Indices and values of a line.
const INDICES: usize = 16;
const VALUES: usize = 8;
const PAGE_BYTES: usize = 4096;
/// Per nonzero of A that is read from a text file: three numbers are parsed (estimated).
const READ_INSTRUCTIONS: u64 = 1000;
/// Per entry searched, scalar AArch64: load of the index, test and branch on the mark, and the loop, less the
/// access recorded.
const SEARCH_INSTRUCTIONS: u64 = 6;
/// Per entry solved: loads of index and value, fused multiply-add, and the loop, less the lines recorded.
const SOLVE_INSTRUCTIONS: u64 = 5;
/// Per entry scattered or stored: addresses, and the loop.
const STORE_INSTRUCTIONS: u64 = 6;
/// A square root (Cortex-A53: 22 cycles), and the step's loop.
const ROOT_INSTRUCTIONS: u64 = 26;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Method {
    Lu,
    Cholesky,
    Qr,
}

/// A matrix in compressed columns.
struct Compressed {
    starts: Array<u32>,
    indices: Array<u32>,
    values: Array<f64>,
}

/// A, its factors, and the workspace. Steps are columns of L in elimination order; rows are A's, of QR steps.
pub struct Sparse {
    method: Method,
    sample: usize,
    /// The unknown that is eliminated at each step.
    order: Vec<u32>,
    structure: Structure,
    a: Compressed,
    /// The upper triangle of A in elimination order: of Cholesky.
    c: Option<Compressed>,
    /// L, or V of QR: the Householder vectors.
    l: Compressed,
    /// U of LU, R of QR.
    u: Option<Compressed>,
    qr: Option<Reflections>,
    /// The step at which an unknown is eliminated.
    steps: Array<u32>,
    parents: Array<u32>,
    /// The last step that reached a row or column.
    marks: Array<u32>,
    /// What a step reaches.
    reached: Array<u32>,
    /// Next free place in each column of L.
    next: Array<u32>,
    x: Array<f64>,
}

#[derive(Clone, Copy)]
pub enum Step {
    Read,
    Scatter { k: usize },
    Search { k: usize },
    Solve { k: usize },
    Store { k: usize },
}

impl Algorithm for Sparse {
    const INFO: Info = Info {
        name: "sparse",
        summary: "sparse LU, Cholesky or QR factorization of a mesh's matrix, by columns as CSparse's demo",
        stresses: "streams of indices and values, scattered accesses to a vector in the caches",
        source: "T. Davis, Direct Methods for Sparse Linear Systems; pms section 5.7",
        parameters: &[
            Parameter::word(
                "method",
                "factorization: left-looking LU or QR, or up-looking Cholesky",
                &["lu", "cholesky", "qr"],
            ),
            Parameter::word(
                "ordering",
                "graph whose nested dissection orders the columns: of A + A', or of A'A",
                &["a+at", "ata"],
            ),
            Parameter::word("matrix", "original that is imitated", &["ct20stif", "nd3k"]),
            Parameter::integer(
                "nodes",
                "nodes",
                "mesh size; 17443 (ct20stif), 3000 (nd3k)",
                [8, 1000, 1 << 20],
            ),
            Parameter::integer(
                "sample",
                "",
                "one column in this number, and of each one run in this number, is computed",
                [1, 1, 1000],
            ),
            params::threads(1),
            params::PAGE,
        ],
    };

    fn new(settings: &Settings, seed: u64, space: &mut Space) -> Result<Sparse, WorkloadError> {
        if settings.threads() > 1 {
            return Err(settings.unfit("the factorization is serial: set threads=1"));
        }
        let kind: Kind = if settings.word("matrix") == "nd3k" { ND3K } else { CT20STIF };
        let mesh = Mesh::new(kind, settings.size("nodes"), seed);
        let wide = settings.word("ordering") == "ata";
        let order = mesh.dissection(if wide { 2 * mesh.width } else { mesh.width });
        let method = match settings.word("method") {
            "lu" => Method::Lu,
            "qr" => Method::Qr,
            _ => Method::Cholesky,
        };
        Sparse::of(&mesh, order, method, settings.size("sample"), seed, space)
    }
}

impl Compressed {
    /// Columns of these lengths.
    fn new(
        name: &str,
        lengths: impl Iterator<Item = usize>,
        space: &mut Space,
    ) -> Result<Compressed, WorkloadError> {
        let starts: Vec<usize> = std::iter::once(0)
            .chain(lengths.scan(0, |end, length| {
                *end += length;
                Some(*end)
            }))
            .collect();
        let nonzeros = starts.last().copied().unwrap_or(0);
        let matrix = Compressed {
            indices: space.array(&format!("{name}_i"), nonzeros)?,
            values: space.array(&format!("{name}_x"), nonzeros)?,
            starts: space.array(&format!("{name}_p"), starts.len())?,
        };
        starts.iter().enumerate().for_each(|(column, start)| matrix.starts.set(column, *start as u32));
        Ok(matrix)
    }

    /// A column's entries, without recorded accesses.
    fn range(&self, column: usize) -> Range<usize> {
        self.starts.get(column) as usize..self.starts.get(column + 1) as usize
    }

    fn set(&self, at: usize, index: u32, value: f64) {
        self.indices.set(at, index);
        self.values.set(at, value);
    }
}

impl Method {
    /// The lower factor, or the Householder vectors, and the upper factor.
    fn factors(
        self,
        structure: &Structure,
        leftmost: &[u32],
        space: &mut Space,
    ) -> Result<(Compressed, Option<Compressed>), WorkloadError> {
        let columns = 0..structure.lengths.len();
        let upper = columns.map(|k| structure.row(k).len() + 1);
        let lower = structure.lengths.iter().copied();
        Ok(match self {
            Method::Cholesky => (Compressed::new("L", lower, space)?, None),
            Method::Lu => (Compressed::new("L", lower, space)?, Some(Compressed::new("U", upper, space)?)),
            Method::Qr => {
                let vectors = Compressed::new("V", structure.vectors(leftmost).into_iter(), space)?;
                (vectors, Some(Compressed::new("R", upper, space)?))
            }
        })
    }
}

impl Sparse {
    fn of(
        mesh: &Mesh,
        order: Vec<u32>,
        method: Method,
        sample: usize,
        seed: u64,
        space: &mut Space,
    ) -> Result<Sparse, WorkloadError> {
        let n = mesh.unknowns();
        let mut step_of = vec![0; n];
        order.iter().enumerate().for_each(|(step, unknown)| step_of[*unknown as usize] = step as u32);
        let steps_of = |k: usize| mesh.columns[order[k] as usize].iter().map(|row| step_of[*row as usize]);
        let below = |k: usize| -> Vec<u32> { steps_of(k).filter(|step| (*step as usize) < k).collect() };
        let leftmost = qr::leftmost(mesh, &order, &step_of);
        let structure = if method == Method::Qr {
            let first = |k: usize| steps_of(k).map(|row| leftmost[row as usize]);
            Structure::new(n, |k| first(k).filter(|step| (*step as usize) < k).collect())
        } else {
            Structure::new(n, below)
        };
        let a = Compressed::new("A", mesh.columns.iter().map(Vec::len), space)?;
        let c = (method == Method::Cholesky)
            .then(|| Compressed::new("P", (0..n).map(|k| below(k).len() + 1), space))
            .transpose()?;
        let (l, u) = method.factors(&structure, &leftmost, space)?;
        let qr = (method == Method::Qr).then(|| Reflections::new(n, space)).transpose()?;
        let sparse = Sparse {
            method,
            sample,
            a,
            c,
            l,
            u,
            qr,
            steps: space.array("steps", n)?,
            parents: space.array("parents", n)?,
            marks: space.array("marks", n)?,
            reached: space.array("reached", n)?,
            next: space.array("next", n)?,
            x: space.array("x", n)?,
            structure,
            order,
        };
        sparse.fill(mesh, &step_of, seed);
        match &sparse.qr {
            Some(qr) => sparse.fill_reflections(qr, &leftmost),
            None => sparse.fill_lower(mesh, seed),
        }
        Ok(sparse)
    }

    /// Fills A, its copy, the workspace, and U or R with its structure and A's diagonal.
    fn fill(&self, mesh: &Mesh, step_of: &[u32], seed: u64) {
        for (column, rows) in mesh.columns.iter().enumerate() {
            for (at, row) in self.a.range(column).zip(rows) {
                self.a.set(at, *row, mesh.value(*row as usize, column, seed));
            }
        }
        for (k, unknown) in self.order.iter().enumerate() {
            self.steps.set(*unknown as usize, step_of[*unknown as usize]);
            self.parents.set(k, self.structure.parents[k].unwrap_or(u32::MAX));
            self.next.set(k, self.l.range(k).start as u32 + 1);
            if let Some(u) = &self.u {
                let row = self.structure.row(k).iter().copied().chain([k as u32]);
                u.range(k).zip(row).for_each(|(at, row)| u.indices.set(at, row));
                u.values.set(u.range(k).end - 1, mesh.value(*unknown as usize, *unknown as usize, seed));
            }
            if let Some(c) = &self.c {
                let rows =
                    self.a.range(*unknown as usize).map(|at| (self.a.indices.get(at), self.a.values.get(at)));
                let rows = rows
                    .map(|(row, value)| (step_of[row as usize], value))
                    .filter(|(row, _)| *row as usize <= k);
                c.range(k).zip(rows).for_each(|(at, (row, value))| c.set(at, row, value));
            }
        }
    }

    /// Fills L with its structure and that of A's diagonal.
    fn fill_lower(&self, mesh: &Mesh, seed: u64) {
        let mut ends: Vec<usize> = (0..self.order.len()).map(|k| self.l.range(k).start + 1).collect();
        for (k, unknown) in self.order.iter().enumerate() {
            let diagonal = mesh.value(*unknown as usize, *unknown as usize, seed);
            let is_lu = self.method == Method::Lu;
            let (label, value) = if is_lu { (*unknown, 1.0) } else { (k as u32, libm::sqrt(diagonal)) };
            self.l.set(self.l.range(k).start, label, value);
            for column in self.structure.row(k) {
                self.l.indices.set(ends[*column as usize], label);
                ends[*column as usize] += 1;
            }
        }
    }

    /// The run of `count` entries that a step does.
    fn run_of(&self, count: usize, k: usize) -> Range<usize> {
        block(count, k / self.sample % self.sample, self.sample)
    }

    /// Stores to each page of the matrices, and waits for the input file.
    fn read<M: Memory>(&self, m: &mut M, item: usize) {
        let matrices = [Some(&self.a), self.c.as_ref(), Some(&self.l), self.u.as_ref()];
        let mut page = item;
        for matrix in matrices.into_iter().flatten() {
            if touch(m, &matrix.indices, &mut page) || touch(m, &matrix.values, &mut page) {
                break;
            }
        }
        m.work(READ_INSTRUCTIONS * self.a.values.len() as u64 / self.pages() as u64);
    }

    /// Pages of the matrices' indices and values.
    fn pages(&self) -> usize {
        let matrices = [Some(&self.a), self.c.as_ref(), Some(&self.l), self.u.as_ref()];
        let of = |matrix: &Compressed| pages(&matrix.indices) + pages(&matrix.values);
        matrices.into_iter().flatten().map(of).sum()
    }

    /// Returns the diagonal element of a row of Cholesky's.
    fn scatter<M: Memory>(&self, m: &mut M, k: usize) -> f64 {
        let (matrix, column) = match &self.c {
            Some(c) => (c, k),
            None => (&self.a, self.order[k] as usize),
        };
        let entries = matrix.range(column);
        let run = self.run_of(entries.len(), k);
        for (number, at) in entries.enumerate() {
            if run.contains(&number) {
                self.scatter_entry(m, matrix, at);
            } else {
                self.scatter_entry(&mut Native, matrix, at);
            }
        }
        if self.method == Method::Lu {
            return 0.0;
        }
        self.walk(m, k);
        if self.method == Method::Qr {
            return 0.0;
        }
        let diagonal = *m.load(&self.x, k);
        m.store(&self.x, k, 0.0);
        diagonal
    }

    fn scatter_entry<M: Memory>(&self, m: &mut M, matrix: &Compressed, at: usize) {
        let row = match &self.qr {
            Some(qr) => self.row_of(m, qr, at),
            None => m.load(&matrix.indices, at).map(|row| row as usize),
        };
        let value = *m.load(&matrix.values, at);
        m.work(STORE_INSTRUCTIONS);
        m.store(&self.x, row, value);
    }

    /// Lists the columns of a row of L, or of a column of R, from the elimination tree.
    fn walk<M: Memory>(&self, m: &mut M, k: usize) {
        let row = self.structure.row(k);
        for number in self.run_of(row.len(), k) {
            let column = row[number] as usize;
            m.load(&self.parents, column);
            m.store(&self.marks, column, k as u32 + 1);
            m.work(STORE_INSTRUCTIONS);
            m.store(&self.reached, number, column as u32);
        }
    }

    /// Marks what a column of L reaches.
    fn search<M: Memory>(&self, m: &mut M, k: usize, column: usize) {
        let mut line = Loaded::from([0; INDICES]);
        let entries = self.l.range(column);
        for at in entries.clone() {
            index_line(m, &self.l, at, entries.start, &mut line);
            let row = line.map(|line| line[at % INDICES] as usize);
            m.work(SEARCH_INSTRUCTIONS);
            if *m.load(&self.marks, row) != k as u32 + 1 {
                m.store(&self.marks, row, k as u32 + 1);
            }
        }
    }

    /// Loads entries of a column of L by lines; passes each one's place in x, and its value.
    fn entries<M: Memory>(
        &self,
        m: &mut M,
        entries: Range<usize>,
        mut each: impl FnMut(&mut M, Loaded<usize>, f64),
    ) {
        let mut line = Loaded::from([0; INDICES]);
        let mut values = [0.0; VALUES];
        let first = entries.start;
        for at in entries {
            index_line(m, &self.l, at, first, &mut line);
            if at % VALUES == 0 || at == first {
                values = *load_line::<_, _, VALUES>(m, &self.l.values, at);
            }
            each(m, line.map(|line| line[at % INDICES] as usize), values[at % VALUES]);
        }
    }

    /// Subtracts a multiple of entries of L from x.
    fn subtract<M: Memory>(&self, m: &mut M, entries: Range<usize>, factor: f64) {
        self.entries(m, entries, |m, row, value| {
            let x = *m.load(&self.x, row);
            m.work(SOLVE_INSTRUCTIONS);
            m.store(&self.x, row, x - value * factor);
        });
    }

    /// A column of L in the solve of a step.
    fn solve<M: Memory>(&self, m: &mut M, k: usize, column: usize, diagonal: &mut f64) {
        if let Some(qr) = &self.qr {
            return self.reflect(m, k, column, qr);
        }
        let entries = self.l.range(column);
        if self.method == Method::Lu {
            let unknown = m.load(&self.l.indices, entries.start).map(|unknown| unknown as usize);
            let factor = *m.load(&self.x, unknown);
            self.subtract(m, entries.start + 1..entries.end, factor);
            return;
        }
        let end = self.place(k, column);
        m.load(&self.next, column);
        let factor = *m.load(&self.x, column) / *m.load(&self.l.values, entries.start);
        m.store(&self.x, column, 0.0);
        self.subtract(m, entries.start + 1..end, factor);
        *diagonal -= factor * factor;
        m.work(STORE_INSTRUCTIONS);
        m.store(&self.l.indices, end, k as u32);
        m.store(&self.l.values, end, factor);
        m.store(&self.next, column, end as u32 + 1);
    }

    /// Where row `k` is stored in a column of Cholesky's L.
    fn place(&self, k: usize, column: usize) -> usize {
        let Range { mut start, mut end } = self.l.range(column);
        while start < end {
            let middle = start.midpoint(end);
            if (self.l.indices.get(middle) as usize) < k { start = middle + 1 } else { end = middle }
        }
        start
    }

    /// Moves a step's results from x to the factors, and clears x.
    fn store<M: Memory>(&self, m: &mut M, k: usize, diagonal: f64) {
        match (&self.u, &self.qr) {
            (Some(r), Some(qr)) => self.house(m, k, qr, r),
            (Some(u), None) => self.store_lu(m, k, u),
            (None, _) => {
                m.work(ROOT_INSTRUCTIONS);
                m.store(&self.l.values, self.l.range(k).start, libm::sqrt(diagonal));
                self.structure.row(k).iter().for_each(|row| self.x.set(*row as usize, 0.0));
            }
        }
    }

    fn store_lu<M: Memory>(&self, m: &mut M, k: usize, u: &Compressed) {
        let (above, below) = (self.structure.row(k), self.l.range(k));
        let pivot = self.x.get(self.order[k] as usize);
        let entry = |at: usize| self.x.get(self.l.indices.get(at) as usize);
        debug_assert!(self.sample > 1 || below.clone().all(|at| entry(at).abs() <= pivot));
        let run = self.run_of(above.len(), k);
        for (number, (at, step)) in u.range(k).zip(above).enumerate() {
            let row = self.order[*step as usize] as usize;
            if run.contains(&number) {
                self.store_entry(m, (u, at), row, *step, 1.0);
            } else {
                self.store_entry(&mut Native, (u, at), row, *step, 1.0);
            }
        }
        u.values.set(u.range(k).end - 1, pivot);
        let run = self.run_of(below.len(), k);
        for (number, at) in below.enumerate() {
            let row = self.l.indices.get(at);
            if run.contains(&number) {
                self.store_entry(m, (&self.l, at), row as usize, row, pivot);
            } else {
                self.store_entry(&mut Native, (&self.l, at), row as usize, row, pivot);
            }
        }
    }

    /// Stores an entry of x, divided by the pivot, in a factor.
    fn store_entry<M: Memory>(
        &self,
        m: &mut M,
        to: (&Compressed, usize),
        row: usize,
        index: u32,
        pivot: f64,
    ) {
        m.load(&self.steps, row);
        let value = *m.load(&self.x, row) / pivot;
        m.store(&self.x, row, 0.0);
        m.work(STORE_INSTRUCTIONS);
        m.store(&to.0.indices, to.1, index);
        m.store(&to.0.values, to.1, value);
    }
}

fn pages<T: Element>(array: &Array<T>) -> usize {
    (array.len() * size_of::<T>()).div_ceil(PAGE_BYTES)
}

/// Stores to a page of an array, if it has that page; else subtracts its pages.
fn touch<M: Memory, T: Element>(m: &mut M, array: &Array<T>, page: &mut usize) -> bool {
    let pages = pages(array);
    if *page >= pages {
        *page -= pages;
        return false;
    }
    let at = *page * PAGE_BYTES / size_of::<T>();
    m.store(array, at, array.get(at));
    true
}

/// Loads the rest of the line in which an element is; lanes before it, and beyond the array, are zeros.
fn load_line<M: Memory, T: Element, const N: usize>(
    m: &mut M,
    array: &Array<T>,
    at: usize,
) -> Loaded<[T; N]> {
    let first = at / N * N;
    if first + N <= array.len() {
        return m.load_lanes(array, first);
    }
    let lanes =
        std::array::from_fn(
            |lane| if first + lane < array.len() { array.get(first + lane) } else { T::default() },
        );
    m.load(array, at).map(|_| lanes)
}

/// Loads the line of an index if it is the first of a line, or of a column.
fn index_line<M: Memory>(
    m: &mut M,
    matrix: &Compressed,
    at: usize,
    first: usize,
    line: &mut Loaded<[u32; INDICES]>,
) {
    if at.is_multiple_of(INDICES) || at == first {
        *line = load_line(m, &matrix.indices, at);
    }
}

impl Workload for Sparse {
    type Step = Step;
    /// The diagonal element of the current row, less what has been subtracted (Cholesky).
    type Local = f64;

    fn threads(&self) -> usize {
        1
    }

    fn phases(&self) -> Vec<Phase<Step>> {
        let mut phases = vec![Phase::new(Step::Read, self.pages())];
        for k in (self.sample / 2..self.order.len()).step_by(self.sample) {
            let columns = self.run_of(self.structure.row(k).len(), k).len();
            phases.push(Phase::new(Step::Scatter { k }, 1));
            if self.method == Method::Lu {
                phases.push(Phase::new(Step::Search { k }, columns));
            }
            phases.push(Phase::new(Step::Solve { k }, columns));
            phases.push(Phase::new(Step::Store { k }, 1));
        }
        phases
    }

    fn stage(&self, _: usize, step: Step) -> Stage {
        if matches!(step, Step::Read) { Stage::Initialisation } else { Stage::Region }
    }

    fn local(&self, _thread: usize) -> f64 {
        0.0
    }

    fn run<M: Memory>(&self, m: &mut M, step: Step, item: usize, diagonal: &mut f64) {
        let column = |k: usize| {
            let row = self.structure.row(k);
            row[self.run_of(row.len(), k).start + item] as usize
        };
        match step {
            Step::Read => self.read(m, item),
            Step::Scatter { k } => *diagonal = self.scatter(m, k),
            Step::Search { k } => self.search(m, k, column(k)),
            Step::Solve { k } => self.solve(m, k, column(k), diagonal),
            Step::Store { k } => self.store(m, k, *diagonal),
        }
    }

    /// The logarithm of the product of the factors' diagonals.
    fn result(&self) -> f64 {
        let diagonal = (0..self.order.len()).map(|k| match &self.u {
            Some(u) => u.values.get(u.range(k).end - 1),
            None => self.l.values.get(self.l.range(k).start),
        });
        diagonal.map(libm::log).sum()
    }
}

#[cfg(test)]
mod tests;

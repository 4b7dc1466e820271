//! HPL's LU factorization with row partial pivoting, on a 1 x Q grid of processes.
//!
//! ```text
//!  columns in blocks of nb, dealt to processes in turn     a step k
//!   0   1   2   3   0   1   2   3                           panel     owner: factors its nb columns
//!  ┌───┬───┬───┬───┬───┬───┬───┬──┐                         pack      owner: copies L to its buffer
//!  │ U │ U │ U │ U │ U │ U │ U │  │ solved                  copy      others: copy it to theirs
//!  ├───┼───┴───┴───┴───┴───┴───┴──┤                         swap      all: interchange rows of their columns
//!  │ L │      trailing columns    │ updated                 solve     all: U, the top nb rows
//!  └───┴──────────────────────────┘                         update    all: the rest -= L U
//! ```
//!
//! # Sample
//! A matrix of full size takes about n³ / nb accesses, too many to simulate. With `sample` = f, one in f is
//! made: the panels of one in f steps, whole; in every step the swaps, solves, copies and updates of one in
//! f nearly equal runs of columns or rows, the next run in the next step. Runs are as long as they can be, so
//! that caches and prefetchers behave as in whole steps. Updates and solves then store what they loaded, and
//! pivots of panels that are left out are drawn uniformly: elements stay those of random matrices.

mod kernel;
mod panel;

use std::ops::Range;

use memtide_core::Stage;
use memtide_core::params::Parameter;

use crate::array::{Array, Space};
use crate::error::WorkloadError;
use crate::info::Info;
use crate::memory::Memory;
use crate::params::{self, Settings};
use crate::random::{hash, unit};
use crate::workload::{Algorithm, Phase, Workload, block};
use kernel::{Local, ROWS, SLIVER};

/// A cache line of elements.
const LINE: usize = 8;
/// Columns of an item of swaps and solves.
const GROUP: usize = 16;
/// Per element of the matrix: HPL's generator multiplies and adds 64-bit numbers in pieces of 16 bits
/// (estimated).
const RANDOM_INSTRUCTIONS: u64 = 80;
/// Per line copied: four pairs of loads and stores, and the loop, less the two accesses recorded.
const COPY_INSTRUCTIONS: u64 = 8;
/// Per pair of elements swapped: two addresses.
const SWAP_INSTRUCTIONS: u64 = 2;

/// A matrix of n rows and n + 1 columns, the last one the right-hand side.
pub struct Hpl {
    seed: u64,
    n: usize,
    /// Columns per block.
    nb: usize,
    /// Distance of columns in elements: n and padding, whole lines.
    ld: usize,
    /// The work is done for one part in this number.
    sample: usize,
    processes: Vec<Process>,
}

/// A process' memory.
struct Process {
    /// Its columns, one after the other.
    part: Array<f64>,
    /// L of the current step in blocks of [`ROWS`] rows, each by columns.
    panel: Array<f64>,
    /// L's triangle of the current step, by columns.
    triangle: Array<f64>,
    /// U of the current step in slivers of [`SLIVER`] columns, each by rows.
    u: Array<f64>,
    /// The row with which each of the step's rows is interchanged.
    pivots: Array<u32>,
    /// Number of its columns.
    columns: usize,
}

#[derive(Clone, Copy)]
pub enum Step {
    Init,
    Panel { k: usize },
    Pack { k: usize },
    Copy { k: usize },
    Swap { k: usize },
    Solve { k: usize },
    Update { k: usize },
}

impl Algorithm for Hpl {
    const INFO: Info = Info {
        name: "hpl",
        summary: "HPL: LU factorization with partial pivoting, a process per thread, a column-cyclic matrix",
        stresses: "arithmetic on blocks in the caches, beside streams and single elements of columns",
        source: "A. Petitet and others, HPL; pms section 5.6",
        parameters: &[
            params::footprint_mib(64),
            Parameter::integer("nb", "columns", "columns of a block", [8, 128, 512]),
            Parameter::integer("sample", "", "one part in this number is computed", [1, 1, 1000]),
            params::threads(4),
            params::PAGE,
        ],
    };

    fn new(settings: &Settings, seed: u64, space: &mut Space) -> Result<Hpl, WorkloadError> {
        let (n, nb) = ((settings.footprint_bytes() / 8).isqrt(), settings.size("nb"));
        let processes = settings.threads();
        if !nb.is_multiple_of(LINE) {
            return Err(settings.unfit(format!("nb={nb} must be a multiple of {LINE}")));
        }
        if n.div_ceil(nb) < processes {
            return Err(settings.unfit(format!(
                "order {n} has fewer blocks of {nb} columns than {processes} threads: reduce nb or threads"
            )));
        }
        let lines = n.next_multiple_of(LINE);
        let ld = if lines.is_multiple_of(512) { lines + LINE } else { lines };
        let sample = settings.size("sample");
        let mut hpl = Hpl { seed, n, nb, ld, sample, processes: Vec::new() };
        for process in 0..processes {
            let columns = local_columns(n + 1, process, processes, nb);
            let mut array = |name: &str, len: usize| space.array(&format!("{name}{process}"), len);
            hpl.processes.push(Process {
                part: array("part", ld * columns)?,
                panel: array("panel", ld.next_multiple_of(ROWS) * nb)?,
                triangle: array("triangle", nb * nb)?,
                u: array("u", columns.next_multiple_of(SLIVER) * nb)?,
                pivots: space.array(&format!("pivots{process}"), nb)?,
                columns,
            });
        }
        Ok(hpl)
    }
}

/// How many of the first `columns` columns a process has.
fn local_columns(columns: usize, process: usize, processes: usize, nb: usize) -> usize {
    let whole = columns / nb;
    let rest = if whole % processes == process { columns % nb } else { 0 };
    (whole + processes - 1 - process) / processes * nb + rest
}

impl Hpl {
    /// An element of the input matrix: uniform in [-0.5, 0.5).
    fn element(&self, row: usize, column: usize) -> f64 {
        unit(hash(self.seed ^ hash((column * self.n + row) as u64))) - 0.5
    }

    /// A local column's number in the whole matrix.
    fn global(&self, process: usize, column: usize) -> usize {
        (column / self.nb * self.processes.len() + process) * self.nb + column % self.nb
    }

    /// Width of a step's panel in columns.
    fn width(&self, k: usize) -> usize {
        self.nb.min(self.n - k * self.nb)
    }

    fn owner(&self, k: usize) -> usize {
        k % self.processes.len()
    }

    /// Index of the first element of a step's panel: its diagonal one.
    fn panel_start(&self, k: usize) -> usize {
        k / self.processes.len() * self.nb * self.ld + k * self.nb
    }

    /// Rows below a step's panel.
    fn rows_below(&self, k: usize) -> usize {
        self.n - k * self.nb - self.width(k)
    }

    /// A process' columns to the right of a step's panel.
    fn trailing(&self, k: usize, process: usize) -> Range<usize> {
        let end = k * self.nb + self.width(k);
        local_columns(end, process, self.processes.len(), self.nb)..self.processes[process].columns
    }

    /// Whether a step's panel is factored.
    fn has_panel(&self, k: usize) -> bool {
        k % self.sample == self.sample / 2
    }

    /// The run of `count` rows or columns that is done at a turn.
    fn run_of(&self, count: usize, turn: usize) -> Range<usize> {
        block(count, turn % self.sample, self.sample)
    }

    /// The most that [`Hpl::run_of`] can return.
    fn longest_run(&self, count: usize) -> usize {
        count.div_ceil(self.sample)
    }

    /// Fills a column. Of a sample, some lines' stores are recorded, at least one of each page.
    fn init<M: Memory>(&self, m: &mut M, process: usize, column: usize) {
        let Process { part, columns, .. } = &self.processes[process];
        if column >= *columns {
            return;
        }
        let global = self.global(process, column);
        let value = |row: usize| if row < self.n { self.element(row, global) } else { 0.0 };
        for row in (0..self.ld).step_by(LINE) {
            let at = column * self.ld + row;
            m.work(LINE as u64 * RANDOM_INSTRUCTIONS);
            if (at / LINE).is_multiple_of(self.sample.min(64)) {
                m.store_lanes::<_, LINE>(part, at, std::array::from_fn(|lane| value(row + lane)));
            } else {
                (0..LINE).for_each(|lane| part.set(at + lane, value(row + lane)));
            }
        }
    }

    /// Copies a block of the panel's rows to the owner's buffer; the triangle before the first.
    fn pack<M: Memory>(&self, m: &mut M, k: usize, item: usize) {
        let Process { part, panel, triangle, .. } = &self.processes[self.owner(k)];
        let (start, width) = (self.panel_start(k), self.width(k));
        if item == 0 {
            for column in 0..width {
                copy(m, (part, start + column * self.ld), (triangle, column * self.nb), width);
            }
        }
        let rows = self.rows_below(k);
        let run = self.run_of(rows.div_ceil(ROWS), k);
        let Some(number) = run.clone().nth(item) else { return };
        for column in 0..width {
            let from = start + column * self.ld + width + number * ROWS;
            let to = (number * self.nb + column) * ROWS;
            copy(m, (part, from), (panel, to), ROWS.min(rows - number * ROWS));
        }
    }

    /// Copies a block of the owner's buffer to a process'; triangle and pivots before the first.
    fn copy<M: Memory>(&self, m: &mut M, k: usize, process: usize, item: usize) {
        if process == self.owner(k) {
            return;
        }
        let (from, to) = (&self.processes[self.owner(k)], &self.processes[process]);
        let width = self.width(k);
        if item == 0 {
            for column in 0..width {
                copy(m, (&from.triangle, column * self.nb), (&to.triangle, column * self.nb), width);
            }
            for i in 0..width {
                let pivot = *m.load(&from.pivots, i);
                m.store(&to.pivots, i, pivot);
            }
        }
        let run = self.run_of(self.rows_below(k).div_ceil(ROWS), k);
        let Some(number) = run.clone().nth(item) else { return };
        let at = number * self.nb * ROWS;
        copy(m, (&from.panel, at), (&to.panel, at), width * ROWS);
    }

    /// A group's columns at a step, if it is of the sample.
    fn group(&self, k: usize, process: usize, item: usize) -> Option<Range<usize>> {
        let columns = self.trailing(k, process);
        let group = self.run_of(columns.len().div_ceil(GROUP), k).nth(item)?;
        let first = columns.start + group * GROUP;
        Some(first..columns.end.min(first + GROUP))
    }

    /// Interchanges rows of a group of columns.
    fn swap<M: Memory>(&self, m: &mut M, k: usize, process: usize, item: usize) {
        let Process { part, pivots, .. } = &self.processes[process];
        let Some(columns) = self.group(k, process, item) else { return };
        for i in 0..self.width(k) {
            let row = k * self.nb + i;
            let pivot = m.load(pivots, i).map(|pivot| pivot as usize);
            if *pivot != row {
                for column in columns.clone() {
                    let other = pivot.map(|pivot| column * self.ld + pivot);
                    let (x, y) = (*m.load(part, column * self.ld + row), *m.load(part, other));
                    m.work(SWAP_INSTRUCTIONS);
                    m.store(part, column * self.ld + row, y);
                    m.store(part, other, x);
                }
            }
        }
    }

    /// Solves for U in a group of columns, and copies it to the buffer.
    fn solve<M: Memory>(&self, m: &mut M, k: usize, process: usize, item: usize) {
        let Process { part, triangle, u, .. } = &self.processes[process];
        let Some(columns) = self.group(k, process, item) else { return };
        let first = self.trailing(k, process).start;
        for sliver in columns.clone().step_by(SLIVER) {
            let count = SLIVER.min(columns.end - sliver);
            let top = (part, sliver * self.ld + k * self.nb);
            let to = (u, (sliver - first) * self.nb);
            let lower = kernel::Lower { array: triangle, start: 0, stride: self.nb };
            kernel::solve::<M, LINE>(m, self, lower, self.width(k), top, count, to);
        }
    }

    /// Subtracts L U from a block of rows of nb columns.
    fn update<M: Memory>(&self, m: &mut M, k: usize, local: &mut Local, item: usize) {
        let Process { part, panel, u, .. } = &self.processes[local.process];
        let (width, rows) = (self.width(k), self.rows_below(k));
        let blocks = rows.div_ceil(ROWS);
        let longest = self.longest_run(blocks).max(1);
        let (columns, turn) = (self.trailing(k, local.process), item / longest);
        let first = columns.start + turn * self.nb;
        let Some(number) = self.run_of(blocks, k + turn).nth(item % longest) else { return };
        if first >= columns.end {
            return;
        }
        let lanes = ROWS.min(rows - number * ROWS).div_ceil(LINE);
        kernel::load_block(m, local, panel, number * self.nb * ROWS, width);
        for sliver in (first..columns.end.min(first + self.nb)).step_by(SLIVER) {
            kernel::load_sliver(m, local, u, (sliver - columns.start) * self.nb, width);
            let top = sliver * self.ld + k * self.nb + width + number * ROWS;
            let count = SLIVER.min(columns.end - sliver);
            kernel::subtract(m, self, local, (part, top), count, lanes, 0, width);
        }
    }
}

/// Copies `len` elements, whole lines at a time.
fn copy<M: Memory>(m: &mut M, from: (&Array<f64>, usize), to: (&Array<f64>, usize), len: usize) {
    for at in (0..len).step_by(LINE) {
        let line: [f64; LINE] = *m.load_lanes(from.0, from.1 + at);
        m.work(COPY_INSTRUCTIONS);
        m.store_lanes(to.0, to.1 + at, line);
    }
}

impl Workload for Hpl {
    type Step = Step;
    type Local = Local;

    fn threads(&self) -> usize {
        self.processes.len()
    }

    fn phases(&self) -> Vec<Phase<Step>> {
        let processes = self.processes.len();
        let widest = self.processes.iter().map(|process| process.columns).max().unwrap_or(0);
        let mut phases = vec![Phase::grouped(Step::Init, processes, widest)];
        for k in 0..self.n.div_ceil(self.nb) {
            let blocks = self.longest_run(self.rows_below(k).div_ceil(ROWS));
            let columns = (0..processes).map(|process| self.trailing(k, process).len()).max().unwrap_or(0);
            let groups = self.longest_run(columns.div_ceil(GROUP));
            let steps = [
                (Step::Panel { k }, self.panel_ops(k).len()),
                (Step::Pack { k }, blocks.max(1)),
                (Step::Copy { k }, blocks.max(1)),
                (Step::Swap { k }, groups),
                (Step::Solve { k }, groups),
                (Step::Update { k }, blocks * columns.div_ceil(self.nb)),
            ];
            let phase = |(step, items): (Step, usize)| Phase::grouped(step, processes, items.max(1));
            phases.extend(steps.map(phase));
        }
        phases
    }

    fn stage(&self, _: usize, step: Step) -> Stage {
        if matches!(step, Step::Init) { Stage::Initialisation } else { Stage::Region }
    }

    fn local(&self, process: usize) -> Local {
        Local::new(process, self.nb)
    }

    fn begin<M: Memory>(&self, _m: &mut M, step: Step, local: &mut Local) {
        local.item = 0;
        if let Step::Panel { k } = step {
            local.ops = if local.process == self.owner(k) { self.panel_ops(k) } else { Vec::new() };
        }
    }

    fn run<M: Memory>(&self, m: &mut M, step: Step, _item: usize, local: &mut Local) {
        let item = local.item;
        local.item += 1;
        match step {
            Step::Init => self.init(m, local.process, item),
            Step::Panel { k } => {
                if let Some(op) = local.ops.get(item).copied() {
                    self.panel(m, k, local, op);
                }
            }
            Step::Pack { k } if local.process == self.owner(k) => self.pack(m, k, item),
            Step::Pack { .. } => {}
            Step::Copy { k } => self.copy(m, k, local.process, item),
            Step::Swap { k } => self.swap(m, k, local.process, item),
            Step::Solve { k } => self.solve(m, k, local.process, item),
            Step::Update { k } => self.update(m, k, local, item),
        }
    }

    /// The logarithm of the absolute value of the product of U's diagonal.
    fn result(&self) -> f64 {
        let diagonal = (0..self.n).map(|i| {
            let start = self.panel_start(i / self.nb);
            self.processes[self.owner(i / self.nb)].part.get(start + i % self.nb * (self.ld + 1))
        });
        diagonal.map(|pivot| libm::log(pivot.abs())).sum()
    }
}

#[cfg(test)]
mod tests;

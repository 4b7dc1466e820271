//! The factorization of a panel: recursive, right-looking, with four columns at its leaves.

use crate::memory::Memory;
use crate::random::{hash, scale};

use super::kernel::{self, Local, Lower, ROWS, SLIVER};
use super::{Hpl, LINE, Process, SWAP_INSTRUCTIONS};

/// Columns of a leaf of the recursion (HPL's NBMIN).
const LEAF: usize = 4;
/// Right columns solved in an item, and blocks of rows multiplied in one.
const SOLVED: usize = 16;
const BLOCKS: usize = 8;
/// Per line searched for a pivot: four load pairs, eight absolute values, compares and two selects each, and
/// the loop, less the access recorded.
const SEARCH_INSTRUCTIONS: u64 = 38;
/// Per line scaled or updated: four load and store pairs, eight multiplications, and the loop, less the two
/// accesses recorded.
const COLUMN_INSTRUCTIONS: u64 = 16;

/// An operation on columns of a panel, counted from its first one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Op {
    /// Draws the pivots of a panel that is left out of the sample.
    Draw,
    /// Finds the pivot of a column, interchanges rows, scales the column, and updates those up to `end`.
    Pivot { column: usize, end: usize },
    /// Solves for U above the right part of a pair, from a column on.
    Solve { from: usize, left: usize, first: usize, end: usize },
    /// Subtracts a product from rows of the right part, from a block on.
    Multiply { from: usize, left: usize, right: usize, block: usize },
}

impl Hpl {
    /// The operations of a step's panel, in order.
    pub(super) fn panel_ops(&self, k: usize) -> Vec<Op> {
        let mut ops = Vec::new();
        match self.has_panel(k) {
            true => self.split(k, 0, self.width(k), &mut ops),
            false => ops.push(Op::Draw),
        }
        ops
    }

    fn split(&self, k: usize, from: usize, width: usize, ops: &mut Vec<Op>) {
        if width <= LEAF {
            let end = from + width;
            ops.extend((from..end).map(|column| Op::Pivot { column, end }));
            return;
        }
        let left = (width / 2 / LEAF * LEAF).max(LEAF);
        let right = width - left;
        self.split(k, from, left, ops);
        let end = from + width;
        let solved = (from + left..end).step_by(SOLVED);
        ops.extend(solved.map(|first| Op::Solve { from, left, first, end: end.min(first + SOLVED) }));
        let rows = self.n - self.below(k, from + left);
        let blocks = (0..rows.div_ceil(ROWS)).step_by(BLOCKS);
        ops.extend(blocks.map(|block| Op::Multiply { from, left, right, block }));
        self.split(k, from + left, right, ops);
    }

    /// The row of a panel's column on the diagonal, rounded down to a line.
    fn below(&self, k: usize, column: usize) -> usize {
        (k * self.nb + column) / LINE * LINE
    }

    pub(super) fn panel<M: Memory>(&self, m: &mut M, k: usize, local: &mut Local, op: Op) {
        match op {
            Op::Draw => self.draw(m, k),
            Op::Pivot { column, end } => self.pivot(m, k, column, end),
            Op::Solve { from, left, first, end } => self.solve_right(m, k, [from, left, first, end]),
            Op::Multiply { from, left, right, block } => {
                self.multiply_right(m, k, local, [from, left, right], block);
            }
        }
    }

    fn draw<M: Memory>(&self, m: &mut M, k: usize) {
        let pivots = &self.processes[self.owner(k)].pivots;
        for i in 0..self.width(k) {
            let row = k * self.nb + i;
            let drawn = scale(hash(self.seed ^ hash(row as u64)), (self.n - row) as u64);
            m.store(pivots, i, row as u32 + drawn as u32);
        }
    }

    fn pivot<M: Memory>(&self, m: &mut M, k: usize, column: usize, end: usize) {
        let Process { part, pivots, .. } = &self.processes[self.owner(k)];
        let row = k * self.nb + column;
        let start = |column: usize| self.panel_start(k) - k * self.nb + column * self.ld;
        let pivot = self.search(m, k, column);
        m.store(pivots, column, pivot as u32);
        if pivot != row {
            for column in 0..self.width(k) {
                let (x, y) = (*m.load(part, start(column) + row), *m.load(part, start(column) + pivot));
                m.work(SWAP_INSTRUCTIONS);
                m.store(part, start(column) + row, y);
                m.store(part, start(column) + pivot, x);
            }
        }
        let reciprocal = 1.0 / *m.load(part, start(column) + row);
        let factors: Vec<f64> = (column + 1..end).map(|right| *m.load(part, start(right) + row)).collect();
        for first in (self.below(k, column + 1)..self.n).step_by(LINE) {
            let is_below = |lane: usize| first + lane > row;
            let old: [f64; LINE] = *m.load_lanes(part, start(column) + first);
            let l: [f64; LINE] =
                std::array::from_fn(|lane| if is_below(lane) { old[lane] * reciprocal } else { old[lane] });
            m.work(COLUMN_INSTRUCTIONS);
            m.store_lanes(part, start(column) + first, l);
            for (right, factor) in (column + 1..end).zip(&factors) {
                let mut values: [f64; LINE] = *m.load_lanes(part, start(right) + first);
                for lane in (0..LINE).filter(|&lane| is_below(lane)) {
                    values[lane] -= l[lane] * factor;
                }
                m.work(COLUMN_INSTRUCTIONS);
                m.store_lanes(part, start(right) + first, values);
            }
        }
    }

    /// The row of the largest element of a column on or below the diagonal.
    fn search<M: Memory>(&self, m: &mut M, k: usize, column: usize) -> usize {
        let part = &self.processes[self.owner(k)].part;
        let start = self.panel_start(k) - k * self.nb + column * self.ld;
        let row = k * self.nb + column;
        let mut best = (row, -1.0);
        for first in (self.below(k, column)..self.n).step_by(LINE) {
            let values: [f64; LINE] = *m.load_lanes(part, start + first);
            m.work(SEARCH_INSTRUCTIONS);
            for (other, value) in (first..self.n).zip(values) {
                if other >= row && value.abs() > best.1 {
                    best = (other, value.abs());
                }
            }
        }
        best.0
    }

    fn solve_right<M: Memory>(&self, m: &mut M, k: usize, [from, left, first, end]: [usize; 4]) {
        let Process { part, u, .. } = &self.processes[self.owner(k)];
        let at = |column: usize| self.panel_start(k) + column * self.ld + from;
        let lower = Lower { array: part, start: at(from), stride: self.ld };
        for column in (first..end).step_by(SLIVER) {
            let count = SLIVER.min(end - column);
            let to = (u, (column - from - left) * self.nb);
            kernel::solve::<M, LEAF>(m, self, lower, left, (part, at(column)), count, to);
        }
    }

    fn multiply_right<M: Memory>(
        &self,
        m: &mut M,
        k: usize,
        local: &mut Local,
        [from, left, right]: [usize; 3],
        block: usize,
    ) {
        let Process { part, u, .. } = &self.processes[self.owner(k)];
        let first = self.below(k, from + left);
        let at = |column: usize| self.panel_start(k) - k * self.nb + column * self.ld;
        for row in (first + block * ROWS..self.n.min(first + (block + BLOCKS) * ROWS)).step_by(ROWS) {
            let lanes = ROWS.min(self.n - row).div_ceil(LINE);
            let above = (k * self.nb + from + left).saturating_sub(row);
            let columns = Lower { array: part, start: at(from) + row, stride: self.ld };
            kernel::load_columns(m, local, (columns, self.ld), left, lanes);
            for column in (0..right).step_by(SLIVER) {
                kernel::load_sliver(m, local, u, column * self.nb, left);
                let top = (part, at(from + left + column) + row);
                let count = SLIVER.min(right - column);
                kernel::subtract(m, self, local, top, count, lanes, above, left);
            }
        }
    }
}

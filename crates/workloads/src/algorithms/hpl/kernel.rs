//! The matrix product and the triangular solve, blocked for a small in-order core.
//!
//! ```text
//!             U: slivers of 4 columns, from L2           registers: 4 x 4 of C, 4 of L, 4 of U
//!  L: 24 x nb ┌┐┌┐┌┐                                     per step of the inner loop: 2 + 2 load pairs,
//!  in L1 ┌──┐ └┘└┘└┘                                     16 fused multiply-adds
//!        └──┘ C: loaded and stored once
//! ```
//!
//! Recorded are accesses to lines that need not be in L1: of C, of each sliver, once, and of L when it is
//! loaded. The inner loop's loads, which hit L1 by this blocking, are counted as instructions.

use crate::array::Array;
use crate::memory::Memory;

use super::panel::Op;
use super::{Hpl, LINE};

/// Rows of a block of L: 24 rows of 128 columns are 24 KiB of an L1 of 32 KiB.
pub(super) const ROWS: usize = 24;
/// Columns of a sliver of U.
pub(super) const SLIVER: usize = 4;
/// Rows of the tile in registers.
const TILE: usize = 4;
/// Per tile and column of L, scalar AArch64: 16 fused multiply-adds, four load pairs, and a fourth of the
/// loop's add, compare, branch and prefetch, which is unrolled four times.
const INNER_INSTRUCTIONS: u64 = 21;
/// Per line of C: four load and four store pairs, less the two accesses recorded.
const LINE_INSTRUCTIONS: u64 = 6;
/// Per tile: two addresses, and add, compare, branch.
const TILE_INSTRUCTIONS: u64 = 5;

/// A thread's registers and stack.
pub struct Local {
    pub(super) process: usize,
    /// Number of the next item of the phase.
    pub(super) item: usize,
    /// Operations of the current panel.
    pub(super) ops: Vec<Op>,
    /// The block of L in L1, by columns.
    block: Vec<f64>,
    /// The sliver of U in L1, by rows.
    sliver: Vec<f64>,
}

impl Local {
    pub(super) fn new(process: usize, nb: usize) -> Local {
        let (block, sliver) = (vec![0.0; ROWS * nb], vec![0.0; SLIVER * nb]);
        Local { process, item: 0, ops: Vec::new(), block, sliver }
    }
}

/// A unit lower triangular matrix, by columns.
#[derive(Clone, Copy)]
pub(super) struct Lower<'a> {
    pub array: &'a Array<f64>,
    /// Index of its first element.
    pub start: usize,
    /// Distance of its columns.
    pub stride: usize,
}

/// Loads a packed block of L of `width` columns.
pub(super) fn load_block<M: Memory>(
    m: &mut M,
    local: &mut Local,
    packed: &Array<f64>,
    at: usize,
    width: usize,
) {
    for line in (0..ROWS * width).step_by(LINE) {
        let values: [f64; LINE] = *m.load_lanes(packed, at + line);
        local.block[line..line + LINE].copy_from_slice(&values);
    }
}

/// Loads a block of L out of `width` columns of a matrix, `lanes` lines of each.
pub(super) fn load_columns<M: Memory>(
    m: &mut M,
    local: &mut Local,
    (from, stride): (Lower<'_>, usize),
    width: usize,
    lanes: usize,
) {
    for column in 0..width {
        for lane in 0..lanes {
            let values: [f64; LINE] = *m.load_lanes(from.array, from.start + column * stride + lane * LINE);
            let to = column * ROWS + lane * LINE;
            local.block[to..to + LINE].copy_from_slice(&values);
        }
    }
    m.work((width * lanes) as u64 * super::COPY_INSTRUCTIONS);
}

/// Loads a packed sliver of U of `width` rows.
pub(super) fn load_sliver<M: Memory>(
    m: &mut M,
    local: &mut Local,
    packed: &Array<f64>,
    at: usize,
    width: usize,
) {
    for line in (0..SLIVER * width).step_by(LINE) {
        let values: [f64; LINE] = *m.load_lanes(packed, at + line);
        let end = (line + LINE).min(SLIVER * width);
        local.sliver[line..end].copy_from_slice(&values[..end - line]);
    }
}

/// C -= L U, for the block and the sliver loaded: `lanes` lines of each of `count` columns; the first
/// `above` rows stay as they are.
#[expect(clippy::too_many_arguments, reason = "a matrix product's shape")]
pub(super) fn subtract<M: Memory>(
    m: &mut M,
    hpl: &Hpl,
    local: &Local,
    (c, top): (&Array<f64>, usize),
    count: usize,
    lanes: usize,
    above: usize,
    width: usize,
) {
    let tiles = (lanes * LINE / TILE) as u64;
    m.work(tiles * (width as u64 * INNER_INSTRUCTIONS + TILE_INSTRUCTIONS));
    for column in 0..count {
        let start = top + column * hpl.ld;
        let mut sums = [0.0; ROWS];
        if hpl.sample == 1 {
            for k in 0..width {
                let (factor, l) = (local.sliver[k * SLIVER + column], &local.block[k * ROWS..(k + 1) * ROWS]);
                sums.iter_mut().zip(l).for_each(|(sum, l)| *sum += l * factor);
            }
            sums[..above].fill(0.0);
        }
        for lane in 0..lanes {
            let mut values: [f64; LINE] = *m.load_lanes(c, start + lane * LINE);
            values.iter_mut().zip(&sums[lane * LINE..]).for_each(|(value, sum)| *value -= sum);
            m.work(LINE_INSTRUCTIONS);
            m.store_lanes(c, start + lane * LINE, values);
        }
    }
}

/// Solves L X = B in place for `count` columns of `width` rows from `top` on, and copies X to a packed
/// sliver. Accesses are of `N` elements.
pub(super) fn solve<M: Memory, const N: usize>(
    m: &mut M,
    hpl: &Hpl,
    lower: Lower<'_>,
    width: usize,
    (b, top): (&Array<f64>, usize),
    count: usize,
    (packed, to): (&Array<f64>, usize),
) {
    let rows = width.next_multiple_of(N);
    let mut x = vec![[0.0; SLIVER]; rows];
    for column in 0..count {
        for row in (0..rows).step_by(N) {
            let values: [f64; N] = *m.load_lanes(b, top + column * hpl.ld + row);
            values.iter().zip(&mut x[row..]).for_each(|(value, x)| x[column] = *value);
        }
    }
    for k in 0..width {
        let factors = x[k];
        for row in (k / N * N..width).step_by(N) {
            let l: [f64; N] = *m.load_lanes(lower.array, lower.start + k * lower.stride + row);
            if hpl.sample == 1 {
                for (row, l) in (row..width).zip(l).filter(|(row, _)| *row > k) {
                    x[row].iter_mut().zip(factors).for_each(|(x, factor)| *x -= l * factor);
                }
            }
        }
    }
    m.work((width * width / (2 * TILE)) as u64 * INNER_INSTRUCTIONS);
    for (column, start) in (0..count).map(|column| (column, top + column * hpl.ld)) {
        for row in (0..rows).step_by(N) {
            let values: [f64; N] = std::array::from_fn(|lane| x[row + lane][column]);
            m.store_lanes(b, start + row, values);
        }
    }
    for line in (0..SLIVER * width).step_by(LINE) {
        let at = |i: usize| x.get(i / SLIVER).map_or(0.0, |x| x[i % SLIVER]);
        m.store_lanes::<_, LINE>(packed, to + line, std::array::from_fn(|lane| at(line + lane)));
    }
    m.work((rows * (SLIVER + count)) as u64);
}

//! The four orders of computation.
//!
//! A step reads a point and its six neighbours. Two arrays take turns as input and output, so that a tile may
//! overwrite what the step before last has left, once all its neighbours have used it.

use std::ops::Range;

use super::tile::{Order, Shape, Tile, TooMany};

/// The points that change.
fn inner(shape: Shape) -> [Range<usize>; 3] {
    shape.map(|points| 1..points - 1)
}

/// Consecutive blocks of a range; the last may be smaller.
fn blocks(of: Range<usize>, size: usize) -> impl Iterator<Item = Range<usize>> + Clone {
    of.clone().step_by(size).map(move |start| start..(start + size).min(of.end))
}

/// Two-dimensional cache blocking: each step computes columns of blocks along x and y, streaming along z.
///
/// ```text
///   z │ │ │ │ │     three planes of a block column fit into a cache
///     ▼ ▼ ▼ ▼ ▼
/// ```
pub fn blocked(shape: Shape, steps: usize, [size_x, size_y]: [usize; 2]) -> Result<Order, TooMany> {
    let [x, y, z] = inner(shape);
    let mut order = Order::default();
    for step in 0..steps {
        for y in blocks(y.clone(), size_y) {
            for x in blocks(x.clone(), size_x) {
                order.push(Tile::new(step, [x, y.clone(), z.clone()]))?;
            }
        }
    }
    Ok(order)
}

/// Time skewing: a block goes through all steps before the next one; with each step it moves back by a point
/// along each axis, to points whose neighbours have been computed. At the grid's edges it stays.
///
/// ```text
///  step 2 │  \  │\    \    │
///  step 1 │   \ │ \    \   │
///  step 0 │    \│  \    \  │
///          block 0   1    2
/// ```
pub fn time_skewed(shape: Shape, steps: usize, size: [usize; 3]) -> Result<Order, TooMany> {
    let [x, y, z] = inner(shape);
    let mut order = Order::default();
    for z_block in blocks(z.clone(), size[2]) {
        for y_block in blocks(y.clone(), size[1]) {
            for x_block in blocks(x.clone(), size[0]) {
                for step in 0..steps {
                    let points = [(&x_block, &x), (&y_block, &y), (&z_block, &z)];
                    order.push(Tile::new(step, points.map(|(block, all)| skewed(block, all, step))))?;
                }
            }
        }
    }
    Ok(order)
}

/// A block of a range, moved back by this many points; empty if there is nothing left of it.
fn skewed(block: &Range<usize>, all: &Range<usize>, by: usize) -> Range<usize> {
    let back = |at: usize| if at == all.end { at } else { at.saturating_sub(by).max(all.start) };
    back(block.start)..back(block.end)
}

/// Circular queue: a column of blocks along y goes through all steps while it streams along z, each step a
/// plane behind the one before. Intermediate steps are in buffers of three planes, and compute a row more at
/// each side for every step that follows, so that columns do not depend on each other.
///
/// ```text
///  step 0   z z+1 z+2 ──▶ first buffer
///  step 1     z  z+1  ──▶ second buffer      planes in turn: step 0 of z+2, step 1 of z+1, step 2 of z
///  step 2        z    ──▶ output
/// ```
pub fn circular_queue(shape: Shape, steps: usize, size_y: usize) -> Result<Order, TooMany> {
    let [x, y, z] = inner(shape);
    let mut order = Order::default();
    for block in blocks(y.clone(), size_y) {
        for front in z.start..z.end + steps - 1 {
            for step in 0..steps.min(front) {
                let plane = front - step;
                if !z.contains(&plane) {
                    continue;
                }
                let more = steps - 1 - step;
                let rows = block.start.saturating_sub(more).max(y.start)..(block.end + more).min(y.end);
                let tile = Tile::new(step, [x.clone(), rows, plane..plane + 1]);
                order.push(Tile { base: block.start.saturating_sub(steps) as u32, ..tile })?;
            }
        }
    }
    Ok(order)
}

/// Rows of each buffer of [`circular_queue`].
pub fn queue_rows(shape: Shape, steps: usize, size_y: usize) -> usize {
    (size_y.min(shape[1]) + 2 * steps).min(shape[1])
}

/// An edge of a region in space and time: where it starts, and by how many points it moves with each step.
type Edges = [(i64, i64); 2];

/// Cache-oblivious trapezoids (Frigo and Strumpen, 2005): a region of space and time is cut in space, along
/// a line of slope -1, if it is wide enough, else in time, down to single steps.
///
/// ```text
///       ┌────\─────┐        ┌──────────┐
///      /  1   \  2  \      /     2      \
///     /        \     \    /──────────────\
///    └──────────\─────┘  └───────1────────┘
/// ```
pub fn cache_oblivious(shape: Shape, steps: usize) -> Result<Order, TooMany> {
    let mut order = Order::default();
    let whole = inner(shape).map(|range| [(range.start as i64, 0), (range.end as i64, 0)]);
    trapezoid(&mut order, [0, steps as i64], whole)?;
    Ok(order)
}

fn trapezoid(order: &mut Order, [from, to]: [i64; 2], edges: [Edges; 3]) -> Result<(), TooMany> {
    let steps = to - from;
    if steps == 1 {
        let points = edges.map(|[(start, _), (end, _)]| start as usize..end.max(start) as usize);
        return order.push(Tile::new(from as usize, points));
    }
    let cut = [2, 1, 0].into_iter().find_map(|axis| Some((axis, cut_at(edges[axis], steps)?)));
    if let Some((axis, at)) = cut {
        let [start, end] = edges[axis];
        for part in [[start, (at, -1)], [(at, -1), end]] {
            let mut edges = edges;
            edges[axis] = part;
            trapezoid(order, [from, to], edges)?;
        }
        return Ok(());
    }
    let half = steps / 2;
    let later = edges.map(|part| part.map(|(start, slope)| (start + slope * half, slope)));
    trapezoid(order, [from, from + half], edges)?;
    trapezoid(order, [from + half, to], later)
}

/// Where a line of slope -1 through the middle of a region starts, if each part keeps a width of at least
/// one point for each step.
fn cut_at([(start, left), (end, right)]: Edges, steps: i64) -> Option<i64> {
    let twice_width = 2 * (end - start) + (right - left) * steps;
    (twice_width >= 4 * steps).then(|| (2 * (start + end) + (2 + left + right) * steps) / 4)
}

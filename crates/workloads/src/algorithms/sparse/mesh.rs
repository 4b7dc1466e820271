//! Matrices of meshes with three unknowns a node, and their nested dissection.

use crate::random::{hash, unit};

/// Unknowns of a node.
const UNKNOWNS: usize = 3;
/// Largest distance of coupled nodes along a dimension.
const RADIUS: i32 = 4;
/// Nodes that are not dissected further.
const LEAF: usize = 8;

type Point = [i32; 3];

/// A matrix from a collection, of which others of the same kind are generated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Kind {
    /// Nodes and nonzeros of the original.
    nodes: usize,
    nonzeros: usize,
    /// Proportions of the box of nodes; 0: as many as there must be.
    box_shape: [usize; 3],
}

/// ct20stif, a structure: a plate of two layers of nodes.
pub(super) const CT20STIF: Kind = Kind { nodes: 17_443, nonzeros: 2_600_295, box_shape: [0, 0, 2] };
/// nd3k, a three-dimensional mesh with wide couplings.
pub(super) const ND3K: Kind = Kind { nodes: 3000, nonzeros: 3_279_690, box_shape: [4, 3, 2] };

/// A symmetric matrix in compressed columns, and where its unknowns are.
pub(super) struct Mesh {
    points: Vec<Point>,
    /// Largest difference of two coupled nodes' coordinates.
    pub width: i32,
    /// Rows of each column's nonzeros, ascending.
    pub columns: Vec<Vec<u32>>,
}

impl Mesh {
    /// A matrix of this many nodes, with as many nonzeros per node as the original: those of the nearest
    /// nodes, equally near ones in random order.
    pub fn new(kind: Kind, nodes: usize, seed: u64) -> Mesh {
        let points = points(kind, nodes);
        let unknowns = nodes * UNKNOWNS;
        let nonzeros = kind.nonzeros * nodes / kind.nodes;
        let mut left = nonzeros.saturating_sub(unknowns) / 2;
        let mut columns: Vec<Vec<u32>> = (0..unknowns as u32).map(|diagonal| vec![diagonal]).collect();
        let mut width = 1;
        for (first, second) in pairs(&points, seed) {
            let of = |node: usize| node * UNKNOWNS..(node + 1) * UNKNOWNS;
            let couplings = of(first).flat_map(|x| of(second).map(move |y| (x, y))).filter(|(x, y)| x < y);
            for (x, y) in couplings.take(left) {
                columns[x].push(y as u32);
                columns[y].push(x as u32);
                left -= 1;
                width = (0..3).map(|d| (points[first][d] - points[second][d]).abs()).fold(width, i32::max);
            }
        }
        columns.iter_mut().for_each(|rows| rows.sort_unstable());
        Mesh { points, width, columns }
    }

    /// Number of unknowns.
    pub fn unknowns(&self) -> usize {
        self.columns.len()
    }

    /// A nonzero: the diagonal exceeds the sum of the others, so that the matrix is positive definite and
    /// keeps its diagonal as pivots.
    pub fn value(&self, row: usize, column: usize, seed: u64) -> f64 {
        if row != column {
            return coupling(row, column, seed);
        }
        let others = self.columns[column].iter().filter(|other| **other as usize != column);
        0.1 - others.map(|other| coupling(*other as usize, column, seed)).sum::<f64>()
    }

    /// The unknowns in an order of little fill, by nested dissection with separators of this width.
    pub fn dissection(&self, width: i32) -> Vec<u32> {
        let mut nodes: Vec<u32> = (0..self.points.len() as u32).collect();
        let mut order = Vec::new();
        self.dissect(&mut nodes, width, &mut order);
        order.iter().flat_map(|node| (0..UNKNOWNS as u32).map(move |i| node * UNKNOWNS as u32 + i)).collect()
    }

    fn dissect(&self, nodes: &mut [u32], width: i32, order: &mut Vec<u32>) {
        let along = |node: u32, d: usize| self.points[node as usize][d];
        let extent = |d: usize| {
            let (mut least, mut most) = (i32::MAX, i32::MIN);
            for node in nodes.iter() {
                (least, most) = (least.min(along(*node, d)), most.max(along(*node, d)));
            }
            most - least
        };
        let Some(d) = (0..3).max_by_key(|d| extent(*d)) else { return };
        if nodes.len() <= LEAF || extent(d) <= width {
            order.extend_from_slice(nodes);
            return;
        }
        nodes.sort_unstable_by_key(|node| (along(*node, d), *node));
        let middle = along(nodes[nodes.len() / 2], d);
        let from = nodes.partition_point(|node| along(*node, d) < middle - (width - 1) / 2);
        let to = nodes.partition_point(|node| along(*node, d) <= middle + width / 2);
        let (lower, rest) = nodes.split_at_mut(from);
        let (separator, upper) = rest.split_at_mut(to - from);
        if lower.is_empty() && upper.is_empty() {
            order.extend_from_slice(separator);
            return;
        }
        self.dissect(lower, width, order);
        self.dissect(upper, width, order);
        order.extend_from_slice(separator);
    }
}

fn coupling(row: usize, column: usize, seed: u64) -> f64 {
    let pair = (row.min(column) as u64) << 32 | row.max(column) as u64;
    -unit(hash(seed ^ hash(pair)))
}

fn shape(kind: Kind, nodes: usize) -> [usize; 3] {
    let [x, y, z] = kind.box_shape;
    if x == 0 {
        let side = nodes.div_ceil(z).isqrt();
        return [nodes.div_ceil(side * z), side, z];
    }
    let unit = libm::cbrt(nodes as f64 / (x * y * z) as f64);
    let [y, z] = [y, z].map(|sides| (libm::round(unit * sides as f64) as usize).max(1));
    [nodes.div_ceil(y * z), y, z]
}

fn points(kind: Kind, nodes: usize) -> Vec<Point> {
    let [_, y, z] = shape(kind, nodes);
    (0..nodes).map(|node| [node / (y * z), node / z % y, node % z].map(|at| at as i32)).collect()
}

/// Pairs of near nodes, each with itself first, by distance.
fn pairs(points: &[Point], seed: u64) -> Vec<(usize, usize)> {
    let sides: [i32; 3] = std::array::from_fn(|d| points.iter().map(|point| point[d] + 1).max().unwrap_or(1));
    let number = |[x, y, z]: Point| ((x * sides[1] + y) * sides[2] + z) as usize;
    let range = || -RADIUS..=RADIUS;
    let mut offsets: Vec<Point> =
        range().flat_map(|x| range().flat_map(move |y| range().map(move |z| [x, y, z]))).collect();
    offsets.retain(|offset| *offset >= [0; 3]);
    let mut pairs = Vec::new();
    for (first, point) in points.iter().enumerate() {
        for offset in &offsets {
            let other: Point = std::array::from_fn(|d| point[d] + offset[d]);
            let is_inside = (0..3).all(|d| (0..sides[d]).contains(&other[d]));
            if is_inside && number(other) < points.len() {
                let distance = offset.iter().map(|x| x * x).sum::<i32>();
                let second = number(other);
                pairs.push((
                    distance,
                    hash(seed ^ hash((first * points.len() + second) as u64)),
                    first,
                    second,
                ));
            }
        }
    }
    pairs.sort_unstable();
    pairs.into_iter().map(|(_, _, first, second)| (first, second)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn originals_have_their_order_and_nonzeros() {
        for (kind, unknowns) in [(CT20STIF, 52_329), (ND3K, 9000)] {
            let mesh = Mesh::new(kind, kind.nodes, 1);
            let nonzeros: usize = mesh.columns.iter().map(Vec::len).sum();
            assert_eq!((mesh.unknowns(), nonzeros), (unknowns, kind.nonzeros));
        }
    }

    #[test]
    fn matrix_is_symmetric_and_diagonally_dominant() {
        let mesh = Mesh::new(CT20STIF, 60, 1);
        for (column, rows) in mesh.columns.iter().enumerate() {
            let others = rows.iter().map(|row| *row as usize).filter(|row| *row != column);
            let sum: f64 = others.clone().map(|row| mesh.value(row, column, 1).abs()).sum();
            assert!(mesh.value(column, column, 1) > sum);
            for row in others {
                assert!(mesh.columns[row].contains(&(column as u32)));
                assert_eq!(mesh.value(row, column, 1), mesh.value(column, row, 1));
            }
        }
    }

    #[test]
    fn dissection_is_a_permutation_that_separates() {
        let mesh = Mesh::new(CT20STIF, 800, 1);
        let mut order = mesh.dissection(mesh.width);
        let first = order[0];
        assert!(order[..order.len() / 3].iter().all(|unknown| !mesh.columns[*unknown as usize].is_empty()));
        order.sort_unstable();
        assert!(order.into_iter().eq(0..2400) && first < 2400);
    }
}

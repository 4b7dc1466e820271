//! A power-law graph in compressed sparse rows.

use crate::array::{Array, Space};
use crate::error::WorkloadError;
use crate::memory::{Loaded, Memory};
use crate::random::Random;
use crate::zipf::Zipf;

/// Edges of a vertex's row: minimum, mean, and maximum.
const FEWEST_EDGES: u64 = 4;
pub(crate) const MEAN_EDGES: usize = 8;
pub(crate) const MOST_EDGES: usize = 2 * MEAN_EDGES - FEWEST_EDGES as usize;
/// Skew of the edges' other ends.
const THETA: f64 = 0.7;
/// Bytes of the graph per vertex.
pub(crate) const VERTEX_BYTES: usize = 4 + 4 * MEAN_EDGES;

/// A row per vertex, of 4 to 12 edges whose other ends are drawn by Zipf's law: a few vertices are the ends
/// of most edges, and some of none.
pub(crate) struct Graph {
    pub(crate) vertices: usize,
    seed: u64,
    popularity: Zipf,
    start: Array<u32>,
    ends: Array<u32>,
}

impl Graph {
    /// Lays out the arrays: where each row starts, and `ends`, the edges' other ends. `vertices` is even.
    pub(crate) fn new(
        vertices: usize,
        seed: u64,
        ends: &str,
        space: &mut Space,
    ) -> Result<Graph, WorkloadError> {
        Ok(Graph {
            vertices,
            seed,
            popularity: Zipf::new(vertices as u64, THETA),
            start: space.array("edge_start", vertices + 1)?,
            ends: space.array(ends, vertices * MEAN_EDGES)?,
        })
    }

    /// Index of a vertex's first edge: two neighbours share 2 x MEAN_EDGES unevenly.
    fn edge_start(&self, vertex: usize) -> usize {
        match vertex % 2 {
            0 => vertex * MEAN_EDGES,
            _ => {
                (vertex - 1) * MEAN_EDGES
                    + Random::new(self.seed, vertex as u64).below(FEWEST_EDGES * 2) as usize
                    + FEWEST_EDGES as usize
            }
        }
    }

    /// The other ends of a vertex's edges, without the arrays.
    pub(crate) fn edges(&self, vertex: usize) -> impl Iterator<Item = u32> {
        let mut random = Random::new(!self.seed, vertex as u64);
        (self.edge_start(vertex)..self.edge_start(vertex + 1))
            .map(move |_| self.popularity.scrambled(&mut random) as u32)
    }

    /// Stores a vertex's row.
    pub(crate) fn init<M: Memory>(&self, m: &mut M, vertex: usize) {
        let start = self.edge_start(vertex);
        for (edge, end) in self.edges(vertex).enumerate() {
            m.work(4);
            m.store(&self.ends, start + edge, end);
        }
        m.store(&self.start, vertex + 1, self.edge_start(vertex + 1) as u32);
    }

    /// A vertex's edges, which depend on the load of where they start.
    pub(crate) fn row<M: Memory>(
        &self,
        m: &mut M,
        vertex: Loaded<usize>,
    ) -> impl Iterator<Item = Loaded<usize>> + use<M> {
        let start = m.load(&self.start, vertex);
        let end = *m.load(&self.start, vertex.map(|vertex| vertex + 1));
        (*start..end).map(move |edge| start.map(|_| edge as usize))
    }

    /// The other end of an edge of a row.
    pub(crate) fn end<M: Memory>(&self, m: &mut M, edge: Loaded<usize>) -> Loaded<usize> {
        m.load(&self.ends, edge).map(|end| end as usize)
    }
}

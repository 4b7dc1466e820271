//! PageRank on a power-law graph.

use memtide_core::Stage;

use super::graph::{self, Graph};
use crate::array::{Array, Space};
use crate::error::WorkloadError;
use crate::info::Info;
use crate::memory::Memory;
use crate::params::{self, Settings};
use crate::reduction::Reduction;
use crate::workload::{Algorithm, Phase, Workload};

/// Vertices per item.
const BLOCK: usize = 16;
const DAMPING: f64 = 0.85;
/// Instructions beside accesses: per edge, and per vertex in each of the two steps. Counted on the native
/// build (x86-64, release), see docs/workloads.md: 116 a vertex and iteration, shared out as the source's
/// operations are.
const EDGE_INSTRUCTIONS: u64 = 6;
const VERTEX_INSTRUCTIONS: u64 = 23;

/// The graph, whose rows are the edges into each vertex, and ranks.
pub struct Pagerank {
    threads: usize,
    iterations: usize,
    graph: Graph,
    /// Outgoing edges of each vertex; part of the graph, before the program reads it.
    leaving: Vec<u32>,
    degree: Array<u32>,
    rank: Array<f64>,
    /// A vertex's contribution to each of its targets.
    share: Array<f64>,
    /// Sum of the ranks of vertices without outgoing edges.
    dangling: Reduction,
}

#[derive(Clone, Copy)]
pub enum Step {
    Init,
    /// Computes each vertex's contribution per edge.
    Share,
    /// Computes each vertex's new rank.
    Gather,
}

/// Thread-local state.
pub struct Local {
    thread: usize,
    /// Ranks of the thread's dangling vertices; then every vertex's share of all of them.
    dangling: f64,
}

impl Algorithm for Pagerank {
    const INFO: Info = Info {
        name: "pagerank",
        summary: "PageRank: each vertex gathers the shares of those that point to it, in a power-law graph",
        stresses: "skewed random reads that depend on an index; beside a stream of reads",
        source: "L. Page et al., The PageRank citation ranking, 1999; in BigDataBench and GAP",
        parameters: &[params::footprint_mib(48), params::iterations(1), params::threads(16), params::PAGE],
    };

    fn new(settings: &Settings, seed: u64, space: &mut Space) -> Result<Pagerank, WorkloadError> {
        let vertex_bytes = graph::VERTEX_BYTES + 4 + 8 + 8;
        let vertices = settings.footprint_bytes() / vertex_bytes / BLOCK * BLOCK;
        let threads = settings.threads();
        let graph = Graph::new(vertices, seed, "edge_sources", space)?;
        Ok(Pagerank {
            threads,
            iterations: settings.size("iterations"),
            leaving: count_leaving(&graph),
            graph,
            degree: space.array("degree", vertices)?,
            rank: space.array("rank", vertices)?,
            share: space.array("share", vertices)?,
            dangling: Reduction::new("dangling", threads, space)?,
        })
    }
}

fn count_leaving(graph: &Graph) -> Vec<u32> {
    let mut leaving = vec![0; graph.vertices];
    for source in (0..graph.vertices).flat_map(|vertex| graph.edges(vertex)) {
        leaving[source as usize] += 1;
    }
    leaving
}

impl Pagerank {
    fn init<M: Memory>(&self, m: &mut M, vertex: usize) {
        self.graph.init(m, vertex);
        m.store(&self.degree, vertex, self.leaving[vertex]);
        m.store(&self.rank, vertex, 1.0 / self.graph.vertices as f64);
        m.store(&self.share, vertex, 0.0);
    }

    fn give<M: Memory>(&self, m: &mut M, vertex: usize, local: &mut Local) {
        let (rank, degree) = (*m.load(&self.rank, vertex), *m.load(&self.degree, vertex));
        m.work(VERTEX_INSTRUCTIONS);
        if degree == 0 {
            local.dangling += rank;
        } else {
            m.store(&self.share, vertex, rank / f64::from(degree));
        }
    }

    fn gather<M: Memory>(&self, m: &mut M, vertex: usize, every: f64) {
        let mut sum = 0.0;
        for edge in self.graph.row(m, vertex.into()) {
            let source = self.graph.end(m, edge);
            sum += *m.load(&self.share, source);
            m.work(EDGE_INSTRUCTIONS);
        }
        m.work(VERTEX_INSTRUCTIONS);
        m.store(&self.rank, vertex, every + DAMPING * sum);
    }
}

impl Workload for Pagerank {
    type Step = Step;
    type Local = Local;

    fn threads(&self) -> usize {
        self.threads
    }

    fn phases(&self) -> Vec<Phase<Step>> {
        let rounds = [Step::Share, Step::Gather].repeat(self.iterations);
        let blocks = self.graph.vertices / BLOCK;
        std::iter::once(Step::Init).chain(rounds).map(|step| Phase::new(step, blocks)).collect()
    }

    fn stage(&self, _: usize, step: Step) -> Stage {
        if matches!(step, Step::Init) { Stage::Initialisation } else { Stage::Region }
    }

    fn local(&self, thread: usize) -> Local {
        Local { thread, dangling: 0.0 }
    }

    fn begin<M: Memory>(&self, m: &mut M, step: Step, local: &mut Local) {
        local.dangling = match step {
            Step::Init | Step::Share => 0.0,
            Step::Gather => (1.0 - DAMPING + DAMPING * self.dangling.sum(m)) / self.graph.vertices as f64,
        };
    }

    fn run<M: Memory>(&self, m: &mut M, step: Step, item: usize, local: &mut Local) {
        for vertex in item * BLOCK..(item + 1) * BLOCK {
            match step {
                Step::Init => self.init(m, vertex),
                Step::Share => self.give(m, vertex, local),
                Step::Gather => self.gather(m, vertex, local.dangling),
            }
        }
    }

    fn finish<M: Memory>(&self, m: &mut M, step: Step, local: &mut Local) {
        if let Step::Share = step {
            self.dangling.put(m, local.thread, local.dangling);
        }
    }

    /// The sum of all ranks.
    fn result(&self) -> f64 {
        self.rank.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check;

    #[test]
    fn ranks_are_those_of_plain_loops_and_sum_to_1() {
        let (program, _) = check::<Pagerank>("footprint_mib=1,iterations=3,threads=3");
        let pagerank = program.workload();
        let (graph, leaving) = (&pagerank.graph, &pagerank.leaving);
        let n = graph.vertices;
        let mut rank = vec![1.0 / n as f64; n];
        for _ in 0..3 {
            let dangling: f64 = (0..n).filter(|v| leaving[*v] == 0).map(|v| rank[v]).sum();
            let mut next = vec![(1.0 - DAMPING + DAMPING * dangling) / n as f64; n];
            for (vertex, next) in next.iter_mut().enumerate() {
                for source in graph.edges(vertex) {
                    *next += DAMPING * rank[source as usize] / f64::from(leaving[source as usize]);
                }
            }
            rank = next;
        }
        assert!((pagerank.result() - 1.0).abs() < 1e-9);
        assert!(
            pagerank
                .rank
                .values()
                .zip(&rank)
                .all(|(computed, expected)| (computed / expected - 1.0).abs() < 1e-9)
        );
    }

    #[test]
    fn few_vertices_have_most_edges() {
        let (program, _) = check::<Pagerank>("footprint_mib=1,iterations=1,threads=1");
        let mut degrees = program.workload().leaving.clone();
        degrees.sort_by(|a, b| b.cmp(a));
        let edges: u32 = degrees.iter().sum();
        let most: u32 = degrees[..degrees.len() / 10].iter().sum();
        assert!(f64::from(most) > 0.4 * f64::from(edges), "{most} of {edges}");
        assert_eq!(edges as usize, degrees.len() * graph::MEAN_EDGES);
    }
}

//! Breadth-first search of a power-law graph.
//!
//! The queue is one array: vertices in the order in which they are reached. `parents` has, for each vertex
//! that was reached, the place of its parent in the queue, or a claim while a round lasts:
//!
//! ```text
//! queue    [ expanded in earlier rounds | this round's, split among the threads | found by this round ]
//! expand   each edge of this round's vertices to one that is not reached claims it; the least place wins
//! settle   each thread keeps those of its claims that won, counts them, and makes their vertices reached
//! append   each thread writes the vertices that it won behind those of the threads before it
//! ```
//!
//! The queue and the parents are those of a search by one thread, whatever the number of threads and their
//! speed: the least place is that of the vertex that would have come first.

use memtide_core::Stage;
use memtide_core::params::Parameter;

use super::graph::{self, Graph};
use crate::array::{Array, Space};
use crate::error::WorkloadError;
use crate::info::Info;
use crate::memory::Memory;
use crate::params::{self, Settings};
use crate::random::Random;
use crate::reduction::Reduction;
use crate::workload::{Algorithm, Phase, Workload, block};

/// Vertices per item.
const BLOCK: usize = 64;
/// Elements of a vector register (AVX2).
const LANES: usize = 8;
/// Share of the vertices that a round expands at most, which bounds the memory for claims.
const ROUND_SHARE: usize = 32;
/// Rounds of fewer vertices, at most: each expands all that the queue has, and so ends a level. A graph of
/// 512 MiB has 18 levels, one of 1 MiB 10.
const LEVELS: usize = 32;
/// In `parents`, of a vertex that is not reached before this round: claimed for the rest, a place in the
/// queue; all ones: not claimed.
const OPEN: u32 = 1 << 31;
/// Bytes per vertex: its row, parent and place in the queue, and its share of the claims.
const VERTEX_BYTES: usize = graph::VERTEX_BYTES + 4 + 4 + 8 * graph::MOST_EDGES / ROUND_SHARE;
/// Instructions beside accesses: per edge and vertex expanded, per claim when it is made and when it is
/// settled, and per vertex appended. Counted on the native build (x86-64, release), over searches that end
/// after more and fewer vertices, see docs/workloads.md.
const EDGE_INSTRUCTIONS: u64 = 9;
const VERTEX_INSTRUCTIONS: u64 = 26;
const CLAIM_INSTRUCTIONS: u64 = 16;
const APPEND_INSTRUCTIONS: u64 = 6;

/// The graph, whose rows are the edges out of each vertex, and the search.
pub struct Bfs {
    threads: usize,
    searches: usize,
    /// Vertices that a search expands at most.
    visits: usize,
    seed: u64,
    /// Items of a round.
    blocks: usize,
    graph: Graph,
    parents: Array<u32>,
    queue: Array<u32>,
    /// Each item's claims: the vertex, and above it the place of its would-be parent in the queue.
    claims: Array<u64>,
    /// The number of each item's claims.
    claimed: Array<u32>,
    /// The number of each thread's claims that won.
    won: Reduction,
}

#[derive(Clone, Copy)]
pub enum Step {
    Init,
    /// Empties the queue and forgets the parents.
    Reset {
        search: usize,
    },
    Expand,
    Settle,
    Append,
}

/// Thread-local state.
#[derive(Default)]
pub struct Local {
    thread: usize,
    /// Places in the queue: of this round's first vertex, and the end.
    head: usize,
    tail: usize,
    won: usize,
    /// Place of the next vertex that it appends.
    next: usize,
}

impl Algorithm for Bfs {
    const INFO: Info = Info {
        name: "bfs",
        summary: "breadth-first search, top-down, of a power-law graph from random sources",
        stresses: "random reads of short rows; skewed reads and writes that depend on them",
        source: "S. Beamer et al., The GAP Benchmark Suite, 2015",
        parameters: &[
            params::footprint_mib(48),
            Parameter::integer("sources", "", "searches, each from another vertex", [1, 1, 1000]),
            Parameter::integer(
                "visits",
                "",
                "vertices that a search expands at most; 0: all that it reaches",
                [0, 0, 1 << 31],
            ),
            params::threads(16),
            params::PAGE,
        ],
    };

    fn new(settings: &Settings, seed: u64, space: &mut Space) -> Result<Bfs, WorkloadError> {
        let (threads, visits) = (settings.threads(), settings.size("visits"));
        let vertices = settings.footprint_bytes() / VERTEX_BYTES / BLOCK * BLOCK;
        let blocks = (vertices / BLOCK).div_ceil(ROUND_SHARE);
        Ok(Bfs {
            threads,
            searches: settings.size("sources"),
            visits: if visits == 0 { vertices } else { visits.min(vertices) },
            seed,
            blocks,
            graph: Graph::new(vertices, seed, "edge_targets", space)?,
            parents: space.array("parents", vertices)?,
            queue: space.array("queue", vertices)?,
            claims: space.array("claims", blocks * BLOCK * graph::MOST_EDGES)?,
            claimed: space.array("claimed", blocks)?,
            won: Reduction::new("won", threads, space)?,
        })
    }
}

impl Bfs {
    /// Stores the rows of an item's vertices, and touches the rest.
    fn init<M: Memory>(&self, m: &mut M, item: usize) {
        for vertex in item * BLOCK..(item + 1) * BLOCK {
            self.graph.init(m, vertex);
            m.store(&self.queue, vertex, 0);
        }
        self.open(m, item);
    }

    /// Forgets the parents of an item's vertices.
    fn open<M: Memory>(&self, m: &mut M, item: usize) {
        for vertex in (item * BLOCK..(item + 1) * BLOCK).step_by(LANES) {
            m.work(3);
            m.store_lanes(&self.parents, vertex, [u32::MAX; LANES]);
        }
    }

    /// The vertex that a search begins at.
    fn source(&self, search: usize) -> usize {
        Random::new(self.seed, self.graph.vertices as u64 + search as u64).below(self.graph.vertices as u64)
            as usize
    }

    fn reset<M: Memory>(&self, m: &mut M, item: usize, search: usize) {
        self.open(m, item);
        let source = self.source(search);
        if source / BLOCK == item {
            m.store(&self.parents, source, 0);
            m.store(&self.queue, 0, source as u32);
        }
    }

    /// Vertices that the round expands.
    fn round(&self, local: &Local) -> usize {
        (local.tail.min(self.visits).saturating_sub(local.head)).min(self.blocks * BLOCK)
    }

    /// Claims the ends of the edges of an item's part of the round.
    fn expand<M: Memory>(&self, m: &mut M, item: usize, local: &Local) {
        let first = item * BLOCK * graph::MOST_EDGES;
        let mut at = first;
        let places = block(self.round(local), item, self.blocks);
        for place in local.head + places.start..local.head + places.end {
            let vertex = m.load(&self.queue, place).map(|vertex| vertex as usize);
            m.work(VERTEX_INSTRUCTIONS);
            for edge in self.graph.row(m, vertex) {
                let end = self.graph.end(m, edge);
                m.work(EDGE_INSTRUCTIONS);
                if *m.load(&self.parents, end) & OPEN != 0 {
                    m.work(CLAIM_INSTRUCTIONS);
                    m.lower(&self.parents, end, OPEN | place as u32);
                    m.store(&self.claims, at, (place as u64) << 32 | *end as u64);
                    at += 1;
                }
            }
        }
        m.store(&self.claimed, item, (at - first) as u32);
    }

    /// Keeps those of an item's claims that won. Of two edges from one vertex to another the first wins.
    fn settle<M: Memory>(&self, m: &mut M, item: usize, local: &mut Local) {
        let first = item * BLOCK * graph::MOST_EDGES;
        let mut at = first;
        for claim in first..first + *m.load(&self.claimed, item) as usize {
            let claim = m.load(&self.claims, claim);
            let (place, end) = ((*claim >> 32) as u32, claim.map(|claim| claim as u32 as usize));
            m.work(CLAIM_INSTRUCTIONS);
            if *m.load(&self.parents, end) == OPEN | place {
                m.store(&self.parents, end, place);
                m.store(&self.claims, at, *claim);
                at += 1;
            }
        }
        m.store(&self.claimed, item, (at - first) as u32);
        local.won += at - first;
    }

    fn append<M: Memory>(&self, m: &mut M, item: usize, local: &mut Local) {
        let first = item * BLOCK * graph::MOST_EDGES;
        for claim in first..first + *m.load(&self.claimed, item) as usize {
            let end = *m.load(&self.claims, claim) as u32;
            m.work(APPEND_INSTRUCTIONS);
            m.store(&self.queue, local.next, end);
            local.next += 1;
        }
    }

    /// Begins to append: the threads' places are in their order.
    fn share_places<M: Memory>(&self, m: &mut M, local: &mut Local) {
        local.head += self.round(local);
        for thread in 0..self.threads {
            if thread == local.thread {
                local.next = local.tail;
            }
            m.work(2);
            local.tail += self.won.part(m, thread) as usize;
        }
    }

    /// Where each level of the last search ends in the queue.
    fn level_ends(&self) -> Vec<usize> {
        let reached = self.parents.values().filter(|parent| parent & OPEN == 0).count();
        let parent = |place: usize| self.parents.get(self.queue.get(place) as usize) as usize;
        let mut ends = vec![1];
        while let Some(&end) = ends.last().filter(|end| **end < reached) {
            // Parents ascend with places, so that the level is a range.
            let (mut low, mut high) = (end, reached);
            while low < high {
                let middle = (low + high) / 2;
                if parent(middle) < end { low = middle + 1 } else { high = middle }
            }
            ends.push(low);
        }
        ends
    }
}

impl Workload for Bfs {
    type Step = Step;
    type Local = Local;

    fn threads(&self) -> usize {
        self.threads
    }

    fn phases(&self) -> Vec<Phase<Step>> {
        let all = self.graph.vertices / BLOCK;
        let rounds = self.visits.div_ceil(BLOCK * self.blocks.max(1)) + LEVELS;
        let round = [Step::Expand, Step::Settle, Step::Append].map(|step| Phase::new(step, self.blocks));
        let mut phases = vec![Phase::new(Step::Init, all)];
        for search in 0..self.searches {
            phases.push(Phase::new(Step::Reset { search }, all));
            phases.extend(round.repeat(rounds));
        }
        phases
    }

    fn stage(&self, _: usize, step: Step) -> Stage {
        if matches!(step, Step::Init) { Stage::Initialisation } else { Stage::Region }
    }

    fn local(&self, thread: usize) -> Local {
        Local { thread, ..Local::default() }
    }

    fn begin<M: Memory>(&self, m: &mut M, step: Step, local: &mut Local) {
        match step {
            Step::Init | Step::Expand => {}
            Step::Reset { .. } => {
                assert_eq!(self.round(local), 0, "a search ended before its last round");
                (local.head, local.tail) = (0, 1);
            }
            Step::Settle => local.won = 0,
            Step::Append if self.round(local) > 0 => self.share_places(m, local),
            Step::Append => {}
        }
    }

    fn run<M: Memory>(&self, m: &mut M, step: Step, item: usize, local: &mut Local) {
        match step {
            Step::Init => self.init(m, item),
            Step::Reset { search } => self.reset(m, item, search),
            Step::Expand if self.round(local) > 0 => self.expand(m, item, local),
            Step::Settle if self.round(local) > 0 => self.settle(m, item, local),
            Step::Append if local.won > 0 => self.append(m, item, local),
            Step::Expand | Step::Settle | Step::Append => {}
        }
    }

    fn finish<M: Memory>(&self, m: &mut M, step: Step, local: &mut Local) {
        if matches!(step, Step::Settle) && self.round(local) > 0 {
            self.won.put(m, local.thread, local.won as f64);
        }
    }

    /// The sum of the levels of all vertices that the last search reached.
    fn result(&self) -> f64 {
        let ends = self.level_ends();
        (1..ends.len()).map(|level| (level * (ends[level] - ends[level - 1])) as f64).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::time::Duration;

    use super::*;
    use crate::native_run::{Pace, run_native};
    use crate::testing::{check, traced};

    /// Each vertex's level, and the vertices in the order in which they are reached, of `visits` expanded.
    fn search(graph: &Graph, source: usize, visits: usize) -> (Vec<Option<usize>>, Vec<u32>) {
        let mut levels = vec![None; graph.vertices];
        levels[source] = Some(0);
        let (mut queue, mut order) = (VecDeque::from([source as u32]), Vec::new());
        while order.len() < visits
            && let Some(vertex) = queue.pop_front()
        {
            order.push(vertex);
            for end in graph.edges(vertex as usize) {
                if levels[end as usize].is_none() {
                    levels[end as usize] = levels[vertex as usize].map(|level| level + 1);
                    queue.push_back(end);
                }
            }
        }
        order.extend(queue);
        (levels, order)
    }

    #[test]
    fn levels_and_queue_are_those_of_a_search_by_one_thread() {
        for settings in [
            "threads=1,sources=1",
            "threads=3,sources=3",
            "threads=16,sources=2",
            "threads=3,visits=5000",
            "threads=2,visits=1",
        ] {
            let (program, _) = check::<Bfs>(&format!("footprint_mib=1,{settings}"));
            let bfs = program.workload();
            let (levels, order) = search(&bfs.graph, bfs.source(bfs.searches - 1), bfs.visits);
            let all = bfs.visits == bfs.graph.vertices;
            assert!(!all || order.len() > bfs.graph.vertices / 2, "{} reached", order.len());
            assert!(bfs.queue.values().take(order.len()).eq(order.iter().copied()));
            let mut found = vec![None; bfs.graph.vertices];
            let mut first = 0;
            for (level, end) in bfs.level_ends().into_iter().enumerate() {
                (first..end).for_each(|place| found[bfs.queue.get(place) as usize] = Some(level));
                first = end;
            }
            assert_eq!(found, levels);
            assert_eq!(bfs.result(), levels.iter().flatten().sum::<usize>() as f64);
        }
    }

    #[test]
    fn parents_are_reached_and_have_an_edge_to_their_children() {
        let (program, _) = check::<Bfs>("footprint_mib=1,threads=4");
        let bfs = program.workload();
        for (vertex, parent) in bfs.parents.values().enumerate().filter(|(_, parent)| parent & OPEN == 0) {
            let parent = bfs.queue.get(parent as usize) as usize;
            let is_source = vertex == bfs.source(0) && parent == vertex;
            assert!(is_source || bfs.graph.edges(parent).any(|end| end as usize == vertex), "{vertex}");
        }
    }

    #[test]
    fn repeated_search_is_the_same() {
        let once = check::<Bfs>("footprint_mib=1,threads=2").0;
        let again = traced::<Bfs>("footprint_mib=1,threads=2");
        let pace = Pace { warm_up: Duration::from_millis(50), ..Pace::FULL };
        run_native(again.workload(), pace, &|_| {});
        assert!(again.workload().queue.values().eq(once.workload().queue.values()));
    }
}

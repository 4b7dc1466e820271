//! What has been counted, and what of it happened in a region of interest.

use memtide_core::{NodeId, Time};
use memtide_memory::curve::{Curve, CurveCounts, NodeTraffic, Region, SpaceTraffic};

/// Most address spaces that are told apart; later ones count as the first.
const SPACES: usize = 256;

/// Counts since the start.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// On the guest's clock.
    pub time: Time,
    /// Processor time of the thread that runs the virtual CPUs, in ns.
    host_cpu_ns: u64,
    /// Of all virtual CPUs.
    pub instructions: u64,
    /// Of all virtual CPUs.
    pub accesses: u64,
    misses: u64,
    walks: u64,
    nodes: Vec<CurveCounts>,
    spaces: Vec<Space>,
}

/// An address space and the lines that it read from each node.
#[derive(Clone, Debug)]
struct Space {
    root: u64,
    reads: Vec<u64>,
}

/// Address spaces seen.
#[derive(Clone, Debug)]
pub struct Spaces {
    nodes: usize,
    all: Vec<Space>,
}

impl Spaces {
    /// The kernel's own, before any other.
    pub fn new(nodes: usize) -> Spaces {
        Spaces { nodes, all: vec![Space { root: 0, reads: vec![0; nodes] }] }
    }

    /// The number of the address space with this page table.
    pub fn number(&mut self, root: u64) -> usize {
        if let Some(known) = self.all.iter().position(|space| space.root == root) {
            return known;
        }
        if self.all.len() == SPACES {
            return 0;
        }
        self.all.push(Space { root, reads: vec![0; self.nodes] });
        self.all.len() - 1
    }

    /// An address space read a line.
    #[inline]
    pub fn read(&mut self, space: usize, node: NodeId) {
        self.all[space].reads[node.index()] += 1;
    }
}

impl Counts {
    /// All counts, those of the virtual CPUs being given.
    pub fn of(time: Time, instructions: u64, accesses: u64, curve: &Curve, spaces: &Spaces) -> Counts {
        let nodes = (0..spaces.nodes).map(|node| curve.counts(NodeId::from(node)));
        Counts {
            time,
            host_cpu_ns: thread_cpu_ns(),
            instructions,
            accesses,
            misses: curve.misses(),
            walks: curve.walks(),
            nodes: nodes.collect(),
            spaces: spaces.all.clone(),
        }
    }

    /// What happened since `before`.
    pub fn since(&self, before: &Counts) -> Region {
        let nodes = self.nodes.iter().zip(&before.nodes).map(|(now, before)| {
            let reads = now.demand_reads - before.demand_reads;
            let prefetches = now.prefetches - before.prefetches;
            let writes = now.writes - before.writes;
            NodeTraffic {
                reads,
                prefetches,
                writes,
                bytes: (reads + prefetches + writes) * memtide_core::LINE_BYTES,
                mean_latency_ns: now.latency.since(before.latency).as_ns() / reads.max(1) as f64,
            }
        });
        let spaces = self.spaces.iter().enumerate().map(|(number, now)| {
            let reads_before = before.spaces.get(number).map(|space| &space.reads);
            let reads = now.reads.iter().enumerate();
            let reads = reads.map(|(node, reads)| reads - reads_before.map_or(0, |before| before[node]));
            SpaceTraffic { root: now.root, reads: reads.collect() }
        });
        Region {
            guest_ns: self.time.since(before.time).as_ns(),
            host_cpu_ns: self.host_cpu_ns - before.host_cpu_ns,
            instructions: self.instructions - before.instructions,
            accesses: self.accesses - before.accesses,
            llc_misses: self.misses - before.misses,
            page_walks: self.walks - before.walks,
            nodes: nodes.collect(),
            spaces: spaces.filter(|space| space.reads.iter().any(|&reads| reads > 0)).collect(),
        }
    }
}

fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

//! What the lab's clock plugin tells, as a JSON file.

use serde::{Deserialize, Serialize};

/// What the plugin has measured so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Whether the guest's clock follows the model.
    pub hook: bool,
    /// Why not.
    pub why: Option<String>,
    /// Regions of interest so far, in order.
    pub regions: Vec<Region>,
}

/// A region of interest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Region {
    /// Time on the guest's clock, in ns.
    pub guest_ns: f64,
    /// Processor time of the host that it took, in ns: the one figure that differs from run to run.
    pub host_cpu_ns: u64,
    /// Instructions of all virtual CPUs.
    pub instructions: u64,
    /// Accesses to memory that the model saw.
    pub accesses: u64,
    /// Lines that missed all caches.
    pub llc_misses: u64,
    /// TLB misses.
    pub page_walks: u64,
    /// By node.
    pub nodes: Vec<NodeTraffic>,
    /// Address spaces that read memory, in the order in which they were first seen.
    pub spaces: Vec<SpaceTraffic>,
}

/// What was asked of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeTraffic {
    /// Lines read because a program wanted them.
    pub reads: u64,
    /// Lines fetched ahead.
    pub prefetches: u64,
    /// Lines written.
    pub writes: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Mean latency of the reads, in ns; 0 without any.
    pub mean_latency_ns: f64,
}

/// What one address space asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpaceTraffic {
    /// Guest-physical address of its page table.
    pub root: u64,
    /// Lines read from each node because a program wanted them.
    pub reads: Vec<u64>,
}

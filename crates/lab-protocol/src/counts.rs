//! Counters of a virtual CPU, of a process, or of all.
//!
//! Sums saturate: the guest can write any values to the counters page.

use memtide_core::{LINE_BYTES, Time};
use serde::{Deserialize, Serialize};

/// Counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Instructions.
    pub instructions: u64,
    /// User instructions among them.
    pub user_instructions: u64,
    /// Loads and stores.
    pub accesses: u64,
    /// Cache lines that missed all caches.
    pub llc_misses: u64,
    /// TLB misses.
    pub page_walks: u64,
    /// By node.
    pub nodes: Vec<NodeCounts>,
}

/// Traffic of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCounts {
    /// Lines read on demand.
    pub reads: u64,
    /// Lines prefetched.
    pub prefetches: u64,
    /// Lines written.
    pub writes: u64,
    /// Sum of read latencies, from the miss in the last cache to the line's arrival.
    pub latency: Time,
}

impl Counts {
    /// Zero, on `nodes` nodes.
    pub fn none(nodes: usize) -> Counts {
        Counts { nodes: vec![NodeCounts::default(); nodes], ..Counts::default() }
    }

    /// The difference since `before`.
    pub fn since(&self, before: &Counts) -> Counts {
        let pairs = self.nodes.iter().zip(&before.nodes);
        Counts {
            instructions: self.instructions.saturating_sub(before.instructions),
            user_instructions: self.user_instructions.saturating_sub(before.user_instructions),
            accesses: self.accesses.saturating_sub(before.accesses),
            llc_misses: self.llc_misses.saturating_sub(before.llc_misses),
            page_walks: self.page_walks.saturating_sub(before.page_walks),
            nodes: pairs.map(|(now, before)| now.since(*before)).collect(),
        }
    }

    /// Adds other counters.
    pub fn add(&mut self, other: &Counts) {
        self.instructions = self.instructions.saturating_add(other.instructions);
        self.user_instructions = self.user_instructions.saturating_add(other.user_instructions);
        self.accesses = self.accesses.saturating_add(other.accesses);
        self.llc_misses = self.llc_misses.saturating_add(other.llc_misses);
        self.page_walks = self.page_walks.saturating_add(other.page_walks);
        for (node, other) in self.nodes.iter_mut().zip(&other.nodes) {
            node.add(*other);
        }
    }

    /// Instructions of the kernel.
    pub fn kernel_instructions(&self) -> u64 {
        self.instructions.saturating_sub(self.user_instructions)
    }

    /// The sum of several, each of `nodes` nodes.
    pub fn sum<'a>(nodes: usize, all: impl Iterator<Item = &'a Counts>) -> Counts {
        all.fold(Counts::none(nodes), |mut sum, counts| {
            sum.add(counts);
            sum
        })
    }

    /// Traffic of all nodes.
    pub fn all_nodes(&self) -> NodeCounts {
        self.nodes.iter().fold(NodeCounts::default(), |mut sum, node| {
            sum.add(*node);
            sum
        })
    }
}

impl NodeCounts {
    fn since(self, before: NodeCounts) -> NodeCounts {
        NodeCounts {
            reads: self.reads.saturating_sub(before.reads),
            prefetches: self.prefetches.saturating_sub(before.prefetches),
            writes: self.writes.saturating_sub(before.writes),
            latency: self.latency.since(before.latency),
        }
    }

    fn add(&mut self, other: NodeCounts) {
        self.reads = self.reads.saturating_add(other.reads);
        self.prefetches = self.prefetches.saturating_add(other.prefetches);
        self.writes = self.writes.saturating_add(other.writes);
        self.latency = Time(self.latency.0.saturating_add(other.latency.0));
    }

    /// Bytes moved.
    pub fn bytes(self) -> u64 {
        self.reads.saturating_add(self.prefetches).saturating_add(self.writes).saturating_mul(LINE_BYTES)
    }

    /// Mean read latency in ns; `None` without reads.
    pub fn mean_latency_ns(self) -> Option<f64> {
        (self.reads > 0).then(|| self.latency.as_ns() / self.reads as f64)
    }
}

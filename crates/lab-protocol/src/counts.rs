//! What is counted: of a virtual CPU, of a process, or of all.
//!
//! Sums saturate, since a guest may have put any figures where they are read from.

use memtide_core::{LINE_BYTES, Time};
use serde::{Deserialize, Serialize};

/// What is counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Instructions.
    pub instructions: u64,
    /// Of them, those outside the kernel.
    pub user_instructions: u64,
    /// Loads and stores.
    pub accesses: u64,
    /// Lines of memory that missed all caches.
    pub llc_misses: u64,
    /// TLB misses.
    pub page_walks: u64,
    /// By node.
    pub nodes: Vec<NodeCounts>,
}

/// What was asked of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCounts {
    /// Lines read because a core wanted them.
    pub reads: u64,
    /// Lines fetched ahead.
    pub prefetches: u64,
    /// Lines written.
    pub writes: u64,
    /// Latency of the reads, added up, from the miss in the last cache to the line's arrival.
    pub latency: Time,
}

impl Counts {
    /// Nothing, on so many nodes.
    pub fn none(nodes: usize) -> Counts {
        Counts { nodes: vec![NodeCounts::default(); nodes], ..Counts::default() }
    }

    /// What was counted since `before`.
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

    /// Adds what was counted elsewhere.
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

    /// The sum of several, all of so many nodes.
    pub fn sum<'a>(nodes: usize, all: impl Iterator<Item = &'a Counts>) -> Counts {
        all.fold(Counts::none(nodes), |mut sum, counts| {
            sum.add(counts);
            sum
        })
    }

    /// What was asked of all nodes.
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

    /// Mean latency of the reads in ns; none without any.
    pub fn mean_latency_ns(self) -> Option<f64> {
        (self.reads > 0).then(|| self.latency.as_ns() / self.reads as f64)
    }
}

//! What monitors saw of memory in an epoch.

use serde::{Deserialize, Serialize};

use crate::ids::{NodeId, TaskId};
use crate::units::{PageSize, Vpn};

/// A run of neighbouring pages that were found alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Whose memory it is.
    pub task: TaskId,
    /// First base page.
    pub start: Vpn,
    /// Length in pages of `size`, at least 1.
    pub pages: u64,
    /// The size of its pages.
    pub size: PageSize,
    /// The node they lie on.
    pub node: NodeId,
    /// Reads seen in the aggregation interval, as a count of samples.
    pub reads: u32,
    /// Writes seen in the aggregation interval, as a count of samples.
    pub writes: u32,
    /// Aggregation intervals since the region last changed.
    pub age: u32,
}

/// How full a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeUse {
    /// The node.
    pub node: NodeId,
    /// Base pages that it has.
    pub pages: u64,
    /// Of them, those that nobody uses.
    pub free_pages: u64,
    /// What went to and fro, where something counts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<Traffic>,
}

/// What a node has moved, since a time before the first epoch: two observations differ by what went to and fro between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Traffic {
    /// Bytes read from it, ahead of their use or not.
    pub read_bytes: u64,
    /// Bytes written to it.
    pub written_bytes: u64,
}

/// Regions as columns, sorted by task and start; a page is a region of length one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// How full the nodes are, where the host tells it.
    pub nodes_use: Vec<NodeUse>,
    tasks: Vec<TaskId>,
    starts: Vec<Vpn>,
    pages: Vec<u64>,
    sizes: Vec<PageSize>,
    nodes: Vec<NodeId>,
    reads: Vec<u32>,
    writes: Vec<u32>,
    ages: Vec<u32>,
}

impl Observation {
    /// Number of regions.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether nothing was seen.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Forgets everything, keeping the memory.
    pub fn clear(&mut self) {
        self.nodes_use.clear();
        self.tasks.clear();
        self.starts.clear();
        self.pages.clear();
        self.sizes.clear();
        self.nodes.clear();
        self.reads.clear();
        self.writes.clear();
        self.ages.clear();
    }

    /// Adds a region after all others.
    ///
    /// # Panics
    /// If it does not come after the last one.
    pub fn push(&mut self, region: Region) {
        if let Some(last) = self.len().checked_sub(1).map(|at| self.get(at)) {
            let end = last.start.0 + last.pages * last.size.base_pages();
            let sorted = (last.task, end) <= (region.task, region.start.0);
            assert!(sorted || last.task < region.task, "regions out of order: {last:?}, {region:?}");
        }
        self.tasks.push(region.task);
        self.starts.push(region.start);
        self.pages.push(region.pages);
        self.sizes.push(region.size);
        self.nodes.push(region.node);
        self.reads.push(region.reads);
        self.writes.push(region.writes);
        self.ages.push(region.age);
    }

    /// The regions in order.
    pub fn iter(&self) -> impl Iterator<Item = Region> + '_ {
        (0..self.len()).map(|at| self.get(at))
    }

    fn get(&self, at: usize) -> Region {
        Region {
            task: self.tasks[at],
            start: self.starts[at],
            pages: self.pages[at],
            size: self.sizes[at],
            node: self.nodes[at],
            reads: self.reads[at],
            writes: self.writes[at],
            age: self.ages[at],
        }
    }
}

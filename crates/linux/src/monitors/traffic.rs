//! What nodes move, as the lab's counters tell it. A real processor counts it, too, each model in its own way; none of them is read.

use memtide_core::policy::Traffic;
use memtide_core::{LINE_BYTES, NodeId};
use memtide_lab_protocol::NodeCounts;
use memtide_lab_protocol::counters::Snapshot;

use crate::counters::{Counters, CountersError};

/// Counters of nodes.
#[derive(Debug)]
pub struct NodeTraffic(Counters);

impl NodeTraffic {
    /// Finds them.
    ///
    /// # Errors
    /// If there are none that can be read.
    pub fn open() -> Result<NodeTraffic, CountersError> {
        let counters = Counters::open()?;
        counters.read()?;
        Ok(NodeTraffic(counters))
    }

    /// What each of some nodes has moved, as far as it is counted.
    pub fn read(&self, nodes: &[NodeId]) -> Vec<Option<Traffic>> {
        let seen = self.0.read().ok();
        nodes.iter().map(|&node| of_node(seen.as_ref()?, node)).collect()
    }
}

fn of_node(seen: &Snapshot, node: NodeId) -> Option<Traffic> {
    let at = seen.nodes.iter().position(|&number| number == u64::from(node.0))?;
    let &NodeCounts { reads, prefetches, writes, .. } = seen.total.nodes.get(at)?;
    let bytes = |lines: u64| lines.saturating_mul(LINE_BYTES);
    Some(Traffic { read_bytes: bytes(reads.saturating_add(prefetches)), written_bytes: bytes(writes) })
}

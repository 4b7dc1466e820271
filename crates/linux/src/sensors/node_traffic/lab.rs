//! The lab's counters.

use memtide_core::policy::Traffic;
use memtide_core::{LINE_BYTES, NodeId};
use memtide_lab_protocol::NodeCounts;
use memtide_lab_protocol::counters::Snapshot;

use crate::counters::{Counters, CountersError};

#[derive(Debug)]
pub(super) struct Lab(Counters);

impl Lab {
    pub(super) fn open() -> Result<Lab, CountersError> {
        let counters = Counters::open()?;
        counters.read()?;
        Ok(Lab(counters))
    }

    pub(super) fn read(&self, nodes: &[NodeId]) -> Vec<Option<Traffic>> {
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

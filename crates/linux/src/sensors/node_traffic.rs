//! Reads and writes per node, from the lab's counters. Real processors count them too, each model
//! differently; none of those counters is supported.

use std::io;

use memtide_core::policy::{Answer, Event, Sensor, Traffic, View};
use memtide_core::{LINE_BYTES, NodeId};
use memtide_lab_protocol::NodeCounts;
use memtide_lab_protocol::counters::Snapshot;

use super::{Sense, SensorSetup, Watched};
use crate::counters::{Counters, CountersError};

/// Traffic counters of nodes.
#[derive(Debug)]
pub struct NodeTraffic(Counters);

impl NodeTraffic {
    /// Opens the counters.
    ///
    /// # Errors
    /// If there are no readable counters.
    pub fn open() -> Result<NodeTraffic, CountersError> {
        let counters = Counters::open()?;
        counters.read()?;
        Ok(NodeTraffic(counters))
    }

    /// The traffic of each node, where it is counted.
    pub fn read(&self, nodes: &[NodeId]) -> Vec<Option<Traffic>> {
        let seen = self.0.read().ok();
        nodes.iter().map(|&node| of_node(seen.as_ref()?, node)).collect()
    }
}

pub(super) fn open(sensor: &Sensor, _: &SensorSetup<'_>) -> Option<io::Result<Box<dyn Sense>>> {
    let opened = || NodeTraffic::open().map(|traffic| Box::new(traffic) as Box<dyn Sense>);
    (*sensor == Sensor::NodeTraffic).then(|| opened().map_err(io::Error::other))
}

impl Sense for NodeTraffic {
    fn answer(&self) -> Answer {
        Answer::Observed("the lab's counters".to_owned())
    }

    fn fill(&mut self, watched: &mut Watched, view: &mut View, _: &mut Vec<Event>) {
        for (node, traffic) in view.nodes.iter_mut().zip(self.read(&watched.numbers.nodes)) {
            node.traffic = traffic;
        }
    }
}

fn of_node(seen: &Snapshot, node: NodeId) -> Option<Traffic> {
    let at = seen.nodes.iter().position(|&number| number == u64::from(node.0))?;
    let &NodeCounts { reads, prefetches, writes, .. } = seen.total.nodes.get(at)?;
    let bytes = |lines: u64| lines.saturating_mul(LINE_BYTES);
    Some(Traffic { read_bytes: bytes(reads.saturating_add(prefetches)), written_bytes: bytes(writes) })
}

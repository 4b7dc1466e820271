//! Reads and writes of nodes, from the counters of their channels.

use memtide_core::LINE_BYTES;
use memtide_core::policy::{Sensor, Traffic, View};

use super::{Sense, SensorSetup};
use crate::engine::Engine;

struct NodeTraffic;

pub(super) fn open(sensor: &Sensor, _: &SensorSetup) -> Option<Box<dyn Sense>> {
    (*sensor == Sensor::NodeTraffic).then(|| Box::new(NodeTraffic) as Box<dyn Sense>)
}

impl Sense for NodeTraffic {
    fn fill(&mut self, engine: &mut Engine<'_>, view: &mut View) {
        for node in &mut view.nodes {
            let counts = engine.uncore.node_counters(node.node, engine.now);
            let (read_bytes, written_bytes) = (counts.reads * LINE_BYTES, counts.writes * LINE_BYTES);
            node.traffic = Some(Traffic { read_bytes, written_bytes });
        }
    }
}

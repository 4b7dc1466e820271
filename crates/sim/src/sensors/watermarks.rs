//! Watermarks of the nodes' free memory, as reclaim uses them.

use memtide_core::policy::{Sensor, View};

use super::{Sense, SensorSetup};
use crate::engine::Engine;

struct NodeWatermarks;

pub(super) fn open(sensor: &Sensor, _: &SensorSetup) -> Option<Box<dyn Sense>> {
    (*sensor == Sensor::Watermarks).then(|| Box::new(NodeWatermarks) as Box<dyn Sense>)
}

impl Sense for NodeWatermarks {
    fn fill(&mut self, engine: &mut Engine<'_>, view: &mut View) {
        self.refresh(engine, view);
    }

    fn refresh(&mut self, engine: &mut Engine<'_>, view: &mut View) {
        for node in &mut view.nodes {
            node.watermarks = Some(engine.os.frames.watermarks(node.node));
        }
    }
}

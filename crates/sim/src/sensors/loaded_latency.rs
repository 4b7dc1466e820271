//! Mean latency of nodes' demand reads since the last epoch, from the histograms of the report.

use memtide_core::Time;
use memtide_core::policy::{Sensor, View};

use super::{Sense, SensorSetup};
use crate::engine::Engine;

/// Reads of each node, and the sum of their latencies in ns, up to the last epoch.
#[derive(Default)]
struct LoadedLatency {
    before: Vec<(u64, f64)>,
}

pub(super) fn open(sensor: &Sensor, _: &SensorSetup) -> Option<Box<dyn Sense>> {
    (*sensor == Sensor::LoadedLatency).then(|| Box::new(LoadedLatency::default()) as Box<dyn Sense>)
}

impl Sense for LoadedLatency {
    fn fill(&mut self, engine: &mut Engine<'_>, view: &mut View) {
        self.before.resize(view.nodes.len(), (0, 0.0));
        for (node, before) in view.nodes.iter_mut().zip(&mut self.before) {
            let latencies = engine.samples.of_node(node.node);
            let reads = latencies.0.len();
            let now = (reads, latencies.mean_ns().unwrap_or_default() * reads as f64);
            let new = now.0 - before.0;
            node.loaded_latency = (new > 0).then(|| Time::from_ns((now.1 - before.1) / new as f64));
            *before = now;
        }
    }
}

//! Accesses to the shared cache levels and their misses: a processor's counters of its last level.

use memtide_core::policy::{LlcCounts, Sensor, View};

use super::{Sense, SensorSetup};
use crate::engine::Engine;

struct LlcMisses;

pub(super) fn open(sensor: &Sensor, _: &SensorSetup) -> Option<Box<dyn Sense>> {
    (*sensor == Sensor::LlcMisses).then(|| Box::new(LlcMisses) as Box<dyn Sense>)
}

impl Sense for LlcMisses {
    fn fill(&mut self, engine: &mut Engine<'_>, view: &mut View) {
        let counts = engine.uncore.counts();
        view.llc = Some(LlcCounts { accesses: counts.accesses, misses: counts.misses });
    }
}

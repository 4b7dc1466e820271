//! NUMA hint faults on pages below the fastest tier, as in Linux's memory tiering: the scanner leaves the
//! pages of the fastest tier mapped.

use memtide_core::policy::{Sensor, View};

use super::{Sense, SensorSetup};
use crate::engine::Engine;

/// The faults are events: there is nothing to fill in.
struct SlowTierFaults;

pub(super) fn open(sensor: &Sensor, _: &SensorSetup) -> Option<Box<dyn Sense>> {
    (*sensor == Sensor::SlowTierFaults).then(|| Box::new(SlowTierFaults) as Box<dyn Sense>)
}

impl Sense for SlowTierFaults {
    fn fill(&mut self, _: &mut Engine<'_>, _: &mut View) {}
}

impl Engine<'_> {
    /// Restricts the scanner to nodes below the fastest tier.
    pub(crate) fn scan_slow_tiers(&mut self) {
        let machine = &self.setup.machine;
        let slow = machine.node_ids().map(|node| machine.tier_of(node).index() > 0).collect();
        self.os.scan_only(slow);
    }
}

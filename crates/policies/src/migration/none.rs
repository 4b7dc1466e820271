//! `none`: pages stay where they were placed.

use memtide_core::Time;
use memtide_core::policy::{Delivery, Event, Migration, Needs, Observation, Plan};

use crate::entry::{Info, MigrationEntry};

pub(super) const ENTRY: MigrationEntry = MigrationEntry {
    info: Info {
        name: "none",
        summary: "pages stay where they were placed",
        source: "Linux, Documentation/admin-guide/sysctl/kernel.rst (numa_balancing = 0)",
        figures: false,
        parameters: &[],
    },
    check: |_| Ok(()),
    make: |_, _| Box::new(Stay),
};

struct Stay;

impl Migration for Stay {
    fn needs(&self) -> Needs {
        Needs { hint_faults: false, regions: None, delivery: Delivery::InKernel, epoch: Time::NEVER }
    }

    fn on_events(&mut self, _: &[Event], _: &mut Plan) {}

    fn decide(&mut self, _: &Observation, _: &mut Plan) {}
}

//! `none`: pages stay where they were placed.

use memtide_core::Time;
use memtide_core::policy::{Delivery, Event, Migration, Plan, Sensors, View, Wake};

use crate::entry::{Info, MigrationEntry};

pub(super) const ENTRY: MigrationEntry = MigrationEntry {
    info: Info {
        name: "none",
        summary: "pages stay where they were placed",
        when: "placement is right from the start, or moves would cost more than they bring",
        source: "Linux, Documentation/admin-guide/sysctl/kernel.rst (numa_balancing = 0)",
        figures: false,
        parameters: &[],
    },
    check: |_| Ok(()),
    make: |_, _| Box::new(Stay),
};

pub(super) struct Stay;

impl Migration for Stay {
    fn sensors(&self) -> Sensors {
        Sensors::new(Delivery::InKernel, Time::NEVER)
    }

    fn on_event(&mut self, _: &Event, _: &View, _: &mut Plan) {}

    fn decide(&mut self, _: &View, _: &mut Plan) -> Wake {
        Wake::Never
    }
}

//! `anb`: Linux's automatic NUMA balancing.

use memtide_core::params::Values;
use memtide_core::policy::{
    Delivery, Event, Migration, Outcome, Plan, Reason, Refusal, Sensor, Sensors, View, Wake,
};
use memtide_core::{Machine, Time};

use super::shared::{from_text, scan_period, to_text};
use super::trigger::{FILTER, Trigger};
use crate::entry::{Info, MigrationEntry};

pub(super) const ENTRY: MigrationEntry = MigrationEntry {
    info: Info {
        name: "anb",
        summary: "automatic NUMA balancing: a page goes to the node of the CPUs that access it",
        when: "threads stay on their sockets and each uses data of its own that others touched first",
        source: "Linux, Documentation/admin-guide/sysctl/kernel.rst (numa_balancing = 1), mm/mempolicy.c and \
                 kernel/sched/fair.c; bmpm section 2.2",
        figures: false,
        parameters: &[FILTER],
    },
    check: |_| Ok(()),
    make: |machine, values| Box::new(Anb::new(machine, values)),
};

struct Anb {
    trigger: Trigger,
    epoch: Time,
}

impl Anb {
    fn new(machine: &Machine, values: &Values) -> Anb {
        Anb { trigger: Trigger::new(machine, values), epoch: scan_period(machine) }
    }
}

impl Migration for Anb {
    fn sensors(&self) -> Sensors {
        Sensors::new(Delivery::InKernel, self.epoch).require(Sensor::HintFaults)
    }

    fn on_event(&mut self, event: &Event, _: &View, plan: &mut Plan) {
        match event {
            Event::HintFault(fault) => {
                if let Some(wanted) = self.trigger.on_fault(fault) {
                    plan.push_move(wanted, Reason::Locality);
                }
            }
            Event::Completion(done) if done.outcome == Outcome::Refused(Refusal::Gone) => {
                self.trigger.forget_all(&done.planned.action);
            }
            _ => {}
        }
    }

    fn decide(&mut self, _: &View, _: &mut Plan) -> Wake {
        Wake::Never
    }

    fn state(&self) -> String {
        to_text(&self.trigger.memory())
    }

    fn resume(&mut self, state: &str) -> Result<(), String> {
        self.trigger.remember(from_text(state)?)
    }
}

//! `anb`: Linux's automatic NUMA balancing.

use memtide_core::params::Values;
use memtide_core::policy::{Delivery, Event, Migration, Needs, Observation, Outcome, Plan, Refusal};
use memtide_core::{Machine, Time};

use super::shared::{from_text, scan_period, to_text};
use super::trigger::{FILTER, Trigger};
use crate::entry::{Info, MigrationEntry};

pub(super) const ENTRY: MigrationEntry = MigrationEntry {
    info: Info {
        name: "anb",
        summary: "automatic NUMA balancing: a page goes to the node of the CPUs that access it",
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
    fn needs(&self) -> Needs {
        Needs { hint_faults: true, regions: None, delivery: Delivery::InKernel, epoch: self.epoch }
    }

    fn on_events(&mut self, events: &[Event], plan: &mut Plan) {
        for event in events {
            match event {
                Event::HintFault(fault) => plan.moves.extend(self.trigger.on_fault(fault)),
                Event::Outcome(Outcome { wanted, result: Err(Refusal::Gone), .. }) => {
                    self.trigger.forget(wanted.task, wanted.page);
                }
                Event::Outcome(_) => {}
            }
        }
    }

    fn decide(&mut self, _: &Observation, _: &mut Plan) {}

    fn state(&self) -> String {
        to_text(&self.trigger.memory())
    }

    fn resume(&mut self, state: &str) -> Result<(), String> {
        self.trigger.remember(from_text(state)?)
    }
}

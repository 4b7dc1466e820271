//! NUMA hint faults: the kernel's scanner unmaps pages, and the next access to each reveals its CPU.

use memtide_core::Time;
use memtide_core::policy::{Delivery, Event, HintFault, Sensor, View};

use super::{Sense, SensorSetup};
use crate::engine::Engine;
use crate::os::{Hinted, Touch};

/// The faults are events: there is nothing to fill in.
struct HintFaults;

pub(super) fn open(sensor: &Sensor, _: &SensorSetup) -> Option<Box<dyn Sense>> {
    (*sensor == Sensor::HintFaults).then(|| Box::new(HintFaults) as Box<dyn Sense>)
}

impl Sense for HintFaults {
    fn fill(&mut self, _: &mut Engine<'_>, _: &mut View) {}
}

impl Engine<'_> {
    /// Handles a hint fault of a thread on a CPU. An in-kernel policy gets it at once.
    pub(crate) fn hint_fault(&mut self, cpu: usize, touch: Touch, hinted: Hinted) {
        if !self.sensors.has(&Sensor::HintFaults) && !self.sensors.has(&Sensor::SlowTierFaults) {
            return;
        }
        let Hinted { page, size, node, steps } = hinted;
        let event = Event::HintFault(HintFault {
            time: self.now,
            task: touch.task,
            thread: touch.thread,
            cpu: touch.cpu,
            page,
            size,
            node,
            write: touch.write,
            pass: self.os.spaces[touch.task.index()].scan_pass,
            idle: Some(self.time_since_step(steps)),
        });
        match self.sensors.delivery {
            Delivery::InKernel => self.deliver(cpu, &event),
            Delivery::Deployable => self.sensors.note(event),
        }
    }

    /// Time since the scanner's step that is this number of steps before its last one.
    fn time_since_step(&self, steps: u64) -> Time {
        self.now.since(self.os.scan_time) + self.scan_period() * steps
    }
}

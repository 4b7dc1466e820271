//! NUMA hint faults: the kernel's scanner unmaps pages, and the next access to each reveals its CPU.

use memtide_core::policy::{Delivery, Event, HintFault, Sensor, View};
use memtide_core::{NodeId, PageSize, Vpn};

use super::{Sense, SensorSetup};
use crate::engine::Engine;
use crate::os::Touch;

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
    pub(crate) fn hint_fault(&mut self, cpu: usize, touch: Touch, page: Vpn, size: PageSize, node: NodeId) {
        if !self.sensors.has(&Sensor::HintFaults) {
            return;
        }
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
        });
        match self.sensors.delivery {
            Delivery::InKernel => self.deliver(cpu, &event),
            Delivery::Deployable => self.sensors.note(event),
        }
    }
}

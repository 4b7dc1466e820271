//! Page faults of tasks.

use memtide_core::policy::{Sensor, View};

use super::{Sense, SensorSetup};
use crate::engine::Engine;

struct PageFaults;

pub(super) fn open(sensor: &Sensor, _: &SensorSetup) -> Option<Box<dyn Sense>> {
    (*sensor == Sensor::PageFaults).then(|| Box::new(PageFaults) as Box<dyn Sense>)
}

impl Sense for PageFaults {
    fn fill(&mut self, engine: &mut Engine<'_>, view: &mut View) {
        for task in &mut view.tasks {
            task.page_faults = Some(engine.os.spaces[task.task.index()].faults);
        }
    }
}

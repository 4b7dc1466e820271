//! Starts and ends of tasks.

use memtide_core::TaskId;
use memtide_core::policy::{Event, Sensor, TaskEvent, View};

use super::{Sense, SensorSetup};
use crate::engine::Engine;

/// Starts and ends are events: there is nothing to fill in.
struct TaskLifecycle;

pub(super) fn open(sensor: &Sensor, _: &SensorSetup) -> Option<Box<dyn Sense>> {
    (*sensor == Sensor::TaskLifecycle).then(|| Box::new(TaskLifecycle) as Box<dyn Sense>)
}

impl Sense for TaskLifecycle {
    fn fill(&mut self, _: &mut Engine<'_>, _: &mut View) {}
}

impl Engine<'_> {
    /// Records the start or end of a task.
    pub(crate) fn record_task(&mut self, task: TaskId, started: bool) {
        if self.sensors.has(&Sensor::TaskLifecycle) {
            let time = self.now;
            self.sensors.note(Event::Task(TaskEvent { time, task, started }));
        }
    }
}

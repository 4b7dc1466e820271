//! Applications' messages about their buffers. Sending one takes no time here.

use memtide_core::TaskId;
use memtide_core::policy::{Event, Message, MessageKind, Sensor, View};

use super::{Sense, SensorSetup};
use crate::engine::Engine;

/// Messages are events: there is nothing to fill in.
struct Messages;

pub(super) fn open(sensor: &Sensor, _: &SensorSetup) -> Option<Box<dyn Sense>> {
    (*sensor == Sensor::Messages).then(|| Box::new(Messages) as Box<dyn Sense>)
}

impl Sense for Messages {
    fn fill(&mut self, _: &mut Engine<'_>, _: &mut View) {}
}

impl Engine<'_> {
    /// Records a task's message.
    pub(crate) fn record_message(&mut self, task: TaskId, kind: MessageKind) {
        if self.sensors.has(&Sensor::Messages) {
            let time = self.now;
            self.sensors.note(Event::Message(Message { time, task, kind }));
        }
    }
}

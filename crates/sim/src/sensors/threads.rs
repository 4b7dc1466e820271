//! Threads that have started and not ended.

use memtide_core::policy::{Sensor, ThreadView, View};

use super::{Sense, SensorSetup};
use crate::engine::Engine;
use crate::thread::State;

struct Threads;

pub(super) fn open(sensor: &Sensor, _: &SensorSetup) -> Option<Box<dyn Sense>> {
    (*sensor == Sensor::Threads).then(|| Box::new(Threads) as Box<dyn Sense>)
}

impl Sense for Threads {
    fn fill(&mut self, engine: &mut Engine<'_>, view: &mut View) {
        let alive = engine.threads.iter().filter(|t| !matches!(t.state, State::NotStarted | State::Ended));
        let thread = |t: &crate::thread::Thread| ThreadView {
            thread: t.id,
            task: t.task,
            cpu: Some(t.cpu),
            traffic: None,
        };
        view.threads = alive.map(thread).collect();
        view.threads.sort_by_key(|thread| (thread.task, thread.thread));
    }
}

//! Start and end of watched processes.

use std::io;

use memtide_core::TaskId;
use memtide_core::policy::{Answer, Event, Sensor, TaskEvent, View};

use super::{Sense, SensorSetup, Watched, task};

/// A task starts when its process is first watched, and ends when it is no longer watched.
#[derive(Debug, Default)]
struct TaskLifecycle {
    alive: Vec<TaskId>,
}

pub(super) fn open(sensor: &Sensor, _: &SensorSetup<'_>) -> Option<io::Result<Box<dyn Sense>>> {
    let opened = || Ok(Box::new(TaskLifecycle::default()) as Box<dyn Sense>);
    (*sensor == Sensor::TaskLifecycle).then(opened)
}

impl Sense for TaskLifecycle {
    fn answer(&self) -> Answer {
        Answer::Observed("/proc once an epoch".to_owned())
    }

    fn fill(&mut self, watched: &mut Watched, _: &mut View, events: &mut Vec<Event>) {
        let now: Vec<TaskId> = watched.processes.iter().map(|process| task(process.pid)).collect();
        let before = std::mem::replace(&mut self.alive, now.clone());
        let time = watched.now;
        let ended = before.iter().filter(|task| !now.contains(task)).map(|&task| (task, false));
        let started = now.iter().filter(|task| !before.contains(task)).map(|&task| (task, true));
        events.extend(
            ended.chain(started).map(|(task, started)| Event::Task(TaskEvent { time, task, started })),
        );
    }
}

//! Threads and the CPUs that they last ran on (proc_pid_stat(5)).

use std::io;

use memtide_core::ThreadId;
use memtide_core::policy::{Answer, Event, Sensor, ThreadView, View};
use procfs::process;

use super::{Sense, SensorSetup, Watched, task};
use crate::processes::Process;
use crate::topology::Numbers;

#[derive(Debug)]
struct Threads;

pub(super) fn open(sensor: &Sensor, _: &SensorSetup<'_>) -> Option<io::Result<Box<dyn Sense>>> {
    (*sensor == Sensor::Threads).then(|| Ok(Box::new(Threads) as Box<dyn Sense>))
}

impl Sense for Threads {
    fn answer(&self) -> Answer {
        Answer::Observed("/proc/PID/task".to_owned())
    }

    fn fill(&mut self, watched: &mut Watched, view: &mut View, _: &mut Vec<Event>) {
        let numbers = &watched.numbers;
        view.threads = watched.processes.iter().flat_map(|process| threads(process, numbers)).collect();
        view.threads.sort_by_key(|thread| (thread.task, thread.thread));
    }
}

/// A process's threads; `None` if it has exited.
fn threads(process: &Process, numbers: &Numbers) -> Vec<ThreadView> {
    let threads = process::Process::new(process.pid.as_raw_nonzero().get()).and_then(|found| found.tasks());
    let stats = threads.into_iter().flatten().flatten().filter_map(|thread| thread.stat().ok());
    let view = |stat: process::Stat| {
        let cpu = stat.processor.and_then(|cpu| numbers.cpus.get(usize::try_from(cpu).ok()?).copied());
        let (thread, task) = (ThreadId(stat.pid.cast_unsigned()), task(process.pid));
        ThreadView { thread, task, cpu, traffic: None }
    };
    stats.map(view).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes;

    #[test]
    fn this_thread_is_listed() {
        let me = processes::one(rustix::process::getpid()).expect("this process");
        let numbers = Numbers { nodes: Vec::new(), cpus: vec![memtide_core::CpuId(3); 4096], scan_pages: 0 };
        let found = threads(&me, &numbers);
        let this = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        let thread = found.iter().find(|thread| thread.thread == ThreadId(this)).expect("this thread");
        assert_eq!((thread.task, thread.cpu), (task(me.pid), Some(memtide_core::CpuId(3))));
    }
}

//! NUMA hint faults, emulated as Linux's scanner would raise them. A stock kernel exposes none of its own,
//! and migrates pages itself; so they are inferred from the regions accessed and from where the process runs.

mod runners;
mod scanned;
mod walk;

use std::io;

use memtide_core::policy::{Answer, Event, HintFault, Region, RegionSampling, Sensor, View};
use memtide_core::{TaskId, Time};

use self::runners::SeveralNodes;
use self::walk::{Hints, spread};
use super::{Sense, SensorSetup, Watched, task};
use crate::processes::Process;

/// How hint faults are sampled from regions.
pub(super) const SAMPLING: RegionSampling = RegionSampling {
    sampling: Time::from_ms(50),
    aggregation: Time::from_ms(500),
    regions_max: 300,
    writes: false,
    budget_bp: None,
};

pub(super) fn open(sensor: &Sensor, setup: &SensorSetup<'_>) -> Option<io::Result<Box<dyn Sense>>> {
    let (cpus, scan_pages) = (&setup.numbers.cpus, setup.numbers.scan_pages);
    let opened = || Ok(Box::new(Hints::new(cpus.clone(), scan_pages)) as Box<dyn Sense>);
    (*sensor == Sensor::HintFaults).then(opened)
}

impl Sense for Hints {
    fn answer(&self) -> Answer {
        Answer::Inferred("accessed regions, and the CPUs that the process runs on".to_owned())
    }

    fn watch(&mut self, watched: &mut Watched) {
        let tasks: Vec<TaskId> = watched.processes.iter().map(|process| task(process.pid)).collect();
        self.keep(&tasks);
    }

    fn fill(&mut self, watched: &mut Watched, view: &mut View, events: &mut Vec<Event>) {
        let mut faults: Vec<HintFault> = Vec::new();
        let mut unclear = None;
        for process in &watched.processes {
            let task = task(process.pid);
            let regions: Vec<Region> = view.regions.of_task(task).collect();
            match self.step(process, task, &regions) {
                Ok(found) => faults.extend(found),
                Err(SeveralNodes) => _ = unclear.get_or_insert(process),
            }
        }
        watched.troubles.extend(unclear.map(several_nodes));
        spread(&mut faults, watched.since, watched.now);
        events.extend(faults.into_iter().map(Event::HintFault));
    }
}

fn several_nodes(Process { pid, name, .. }: &Process) -> String {
    let pid = pid.as_raw_nonzero();
    format!(
        "process {pid} ({name}), and perhaps others, runs on CPUs of several nodes: the accessing node is \
         unknown, and its pages stay"
    )
}

//! The system's sensors: one file each.
//!
//! A sensor registers in `ALL`; others are refused. The order is that of filling: a sensor can use the data
//! of those before it.

pub mod access_samples;
pub mod hint_faults;
pub mod node_traffic;
pub mod regions;
pub(crate) mod shared_memory;
mod task_lifecycle;
mod tasks;
mod threads;
mod watermarks;

use std::fmt;
use std::io;
use std::ops::Range;

use memtide_core::policy::{
    Answer, Answers, Delivery, Event, RegionSampling, Sensor, SensorRefused, Sensors, View,
};
use memtide_core::{NodeId, PageSize, TaskId, Time};
use rustix::process::Pid;

use self::regions::Kind;
use self::shared_memory::SharedMemory;
use crate::processes::Process;
use crate::topology::Numbers;

/// An open sensor.
pub(crate) trait Sense: fmt::Debug {
    /// Its current answer; monitors may change at run time.
    fn answer(&self) -> Answer;

    /// How regions are monitored, if this monitors them.
    fn monitoring(&self) -> Option<Monitoring<'_>> {
        None
    }

    /// Replaces the watched processes.
    fn watch(&mut self, _: &mut Watched) {}

    /// Fills in its observations, and adds events.
    fn fill(&mut self, watched: &mut Watched, view: &mut View, events: &mut Vec<Event>);
}

/// How regions are monitored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Monitoring<'s> {
    /// The monitor's name.
    pub name: &'static str,
    /// Why no better monitor is used, if there is one.
    pub why_not_better: Option<&'s str>,
    /// Whether writes are counted separately.
    pub writes: bool,
}

/// The watched processes, and the time of the observation.
#[derive(Debug)]
pub(crate) struct Watched {
    /// By process id.
    pub processes: Vec<Process>,
    /// The system's numbers of the machine's nodes and CPUs.
    pub numbers: Numbers,
    /// Lower bound of this epoch's event times.
    pub since: Time,
    /// The current time.
    pub now: Time,
    /// Errors that were not reported yet.
    pub troubles: Vec<String>,
    /// A sensor lost its state: the processes must be watched again.
    pub lost: bool,
    /// Pages that were moved or split since the last observation.
    pub changed: Vec<Changed>,
    /// Processes whose pages were found not to be as they were observed.
    pub outdated: Vec<Pid>,
    /// Memory that several of them map.
    pub shared: SharedMemory,
}

/// A change of resident base pages of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Changed {
    pub pid: Pid,
    pub pages: Range<u64>,
    /// The machine's number of the node that they are on now; `None`: they have not moved.
    pub node: Option<NodeId>,
    pub size: PageSize,
}

impl Watched {
    /// No processes, on a system with these numbers.
    pub fn new(numbers: Numbers) -> Watched {
        Watched {
            processes: Vec::new(),
            numbers,
            since: Time::ZERO,
            now: Time::ZERO,
            troubles: Vec::new(),
            lost: false,
            changed: Vec::new(),
            outdated: Vec::new(),
            shared: SharedMemory::default(),
        }
    }

    /// The machine's number of a node of the system.
    pub fn number(&self, id: NodeId) -> Option<NodeId> {
        self.numbers.of_node(id)
    }
}

/// A process as a policy sees it.
pub fn task(pid: Pid) -> TaskId {
    TaskId(pid.as_raw_nonzero().get().cast_unsigned())
}

/// Parameters for opening a sensor.
pub(crate) struct SensorSetup<'n> {
    pub numbers: &'n Numbers,
    /// The monitor of regions that the user requests, if any.
    pub monitor: Option<Kind>,
}

/// A sensor's entry: `None` if another one is requested, else the sensor, or why it is refused.
type Open = fn(&Sensor, &SensorSetup<'_>) -> Option<io::Result<Box<dyn Sense>>>;

const ALL: [Open; 7] = [
    access_samples::open,
    regions::open,
    hint_faults::open,
    node_traffic::open,
    threads::open,
    watermarks::open,
    task_lifecycle::open,
];

/// This system's answer for each sensor, without observing anything.
pub fn answers() -> Answers {
    let numbers = Numbers { nodes: Vec::new(), cpus: Vec::new(), scan_pages: 0 };
    let setup = SensorSetup { numbers: &numbers, monitor: None };
    let mut answers = Answers::default();
    for sensor in Sensor::all() {
        let request = Sensors::new(Delivery::Deployable, Time::ZERO).require(sensor);
        let answer = match OpenSensors::new(&request, &setup) {
            Ok(opened) => {
                opened.answers().get(&sensor).expect("a sensor that was asked for is answered").clone()
            }
            Err(refused) => Answer::Refused(refused.why),
        };
        answers.set(&sensor, answer);
    }
    answers
}

fn has_access_samples(open: &[(usize, Sensor, Box<dyn Sense>)]) -> bool {
    open.iter().any(|(_, sensor, _)| matches!(sensor, Sensor::AccessSamples(_)))
}

/// The sampling of regions beside access samples, if a policy asked for those first. Regions need only show
/// which pages there are then: a tenth of them, for a fifth of the budget.
fn beside_samples(regions: RegionSampling) -> RegionSampling {
    let part = |whole: u32, divisor: u32| (whole / divisor).max(1);
    RegionSampling {
        budget_bp: regions.budget_bp.map(|bp| part(bp, 5)),
        regions_max: part(regions.regions_max, 10),
        ..regions
    }
}

/// The sensors that a policy requests.
#[derive(Debug, Default)]
pub(crate) struct OpenSensors(Vec<(Sensor, Box<dyn Sense>)>, Answers);

impl OpenSensors {
    /// Opens the sensors that a policy requests.
    pub fn new(requests: &Sensors, setup: &SensorSetup<'_>) -> Result<OpenSensors, SensorRefused> {
        let requests = match requests.hint_faults() {
            // Hint faults are inferred from regions.
            true => requests.clone().require(Sensor::Regions(hint_faults::SAMPLING)),
            false => requests.clone(),
        };
        let mut open: Vec<(usize, Sensor, Box<dyn Sense>)> = Vec::new();
        let answers = Answers::ask(&requests, |sensor| {
            let granted = match sensor {
                Sensor::Regions(regions) if has_access_samples(&open) => {
                    Sensor::Regions(beside_samples(*regions))
                }
                other => *other,
            };
            let (at, opened) = (0..).zip(ALL).find_map(|(at, entry)| Some((at, entry(&granted, setup)?)))?;
            Some(match opened {
                Ok(opened) => {
                    let answer = opened.answer();
                    open.push((at, *sensor, opened));
                    answer
                }
                Err(error) => Answer::Refused(error.to_string()),
            })
        })?;
        open.sort_by_key(|(at, ..)| *at);
        Ok(OpenSensors(open.into_iter().map(|(_, sensor, opened)| (sensor, opened)).collect(), answers))
    }

    /// Their current answers.
    pub fn answers(&self) -> &Answers {
        &self.1
    }

    /// How regions are monitored; `None` if they are not.
    pub fn monitoring(&self) -> Option<Monitoring<'_>> {
        self.0.iter().find_map(|(_, sensor)| sensor.monitoring())
    }

    /// Replaces the watched processes.
    pub fn watch(&mut self, watched: &mut Watched) {
        self.0.iter_mut().for_each(|(_, sensor)| sensor.watch(watched));
    }

    /// Fills a view whose nodes are already there, and adds the events of this epoch.
    pub fn fill(&mut self, watched: &mut Watched, view: &mut View, events: &mut Vec<Event>) {
        for (asked, sensor) in &mut self.0 {
            sensor.fill(watched, view, events);
            self.1.set(asked, sensor.answer());
        }
        watched.shared.rename(events);
        tasks::fill(watched, view);
        view.answers = self.1.clone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_beside_access_samples_are_a_tenth_for_a_fifth_of_the_budget() {
        let of = |budget_bp, regions_max| {
            let sampling = RegionSampling { budget_bp, regions_max, ..RegionSampling::default() };
            let beside = beside_samples(sampling);
            (beside.budget_bp, beside.regions_max)
        };
        assert_eq!(of(Some(100), 1000), (Some(20), 100));
        assert_eq!(of(Some(3), 3), (Some(1), 1));
        assert_eq!(of(None, 1000), (None, 100));
    }
}

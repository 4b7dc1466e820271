//! A system without hardware: [`DaemonHost`] on core's [`FakeHost`].

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use memtide_core::conformance::{FakeHost, FakePage};
use memtide_core::epoch::Host;
use memtide_core::policy::{
    Answer, Answers, Completion, Event, Outcome, Planned, Refusal, Sensor, SensorRefused, Sensors, View,
};
use memtide_core::{CpuId, NodeId, PageSize, TaskId, Time, Vpn};
use memtide_linux::live::{Monitoring, task};
use memtide_linux::movers::{Present, ProcessMemory};
use memtide_linux::processes::{Process, User};
use memtide_linux::sensors::regions::Kind;
use memtide_linux::topology::{Capacity, Node, Numbers, Processor, System, TopologyError};
use rustix::process::Pid;

use crate::DaemonHost;

/// Reads per epoch of a hot page.
const HOT: u32 = 20;

/// Base pages of each node: 16 MiB.
pub const NODE_PAGES: u64 = 4096;

/// The clock.
#[derive(Clone, Copy, Debug)]
pub enum Clock {
    /// Each epoch of the daemon has this length.
    Epochs(Time),
    /// Time since this instant.
    Since(Instant),
}

/// State that a test sets and reads while the daemon runs.
#[derive(Debug)]
pub struct World {
    pub host: FakeHost,
    pub clock: Clock,
    /// Processes by id; their resident pages are counted in the host.
    processes: BTreeMap<i32, Process>,
    /// The system's numbers of its nodes.
    nodes: Vec<NodeId>,
    hot: BTreeMap<(TaskId, Vpn), u32>,
    /// Troubles for the next epoch.
    pub troubles: Vec<String>,
    /// Number of coming `set_sensors` calls that fail.
    pub sensor_failures: usize,
    /// Sensor names in each call of `set_sensors`.
    pub sensors_set: Vec<Vec<&'static str>>,
    /// The nodes that each request to move the daemon's own memory named.
    pub own_memory: Vec<Vec<NodeId>>,
    /// Processes that users' requests may move.
    pub requested: Vec<Pid>,
    /// Observation time of each epoch.
    pub observed: Vec<Time>,
    dry_run: bool,
    watched: Vec<TaskId>,
    done: Vec<Completion>,
}

impl World {
    pub fn now(&self) -> Time {
        self.host.now()
    }

    /// Starts a process with pages on a node, from page 0x1000 on.
    pub fn start(&mut self, pid: i32, uid: u32, pages: u64, node: NodeId) -> TaskId {
        let process = Process {
            pid: Pid::from_raw(pid).expect("a process id"),
            started_ticks: 1,
            resident_pages: 0,
            name: format!("program{pid}"),
            uid,
            ptrace_user: Some(User { uid, gid: uid }),
            cgroup: "/".to_owned(),
        };
        let task = task(process.pid);
        self.processes.insert(pid, process);
        self.host.start_task(task, &format!("program{pid}"));
        (0..pages).for_each(|at| self.host.map(task, page(at), PageSize::Base, node));
        task
    }

    /// Starts a set-uid program in a process.
    pub fn start_privileged(&mut self, pid: i32) {
        self.processes.get_mut(&pid).expect("a process").ptrace_user = None;
    }

    /// Ends a process.
    pub fn end(&mut self, pid: i32) {
        let process = self.processes.remove(&pid).expect("a process");
        self.hot.retain(|(owner, _), _| *owner != task(process.pid));
        self.host.end_task(task(process.pid));
    }

    /// Makes these pages of a task hot in each epoch from now on.
    pub fn heat(&mut self, task: TaskId, pages: Range<u64>) {
        self.hot.extend(pages.map(|at| ((task, page(at)), HOT)));
    }

    /// Base pages of a task on each of the machine's nodes.
    pub fn footprint(&self, task: TaskId) -> Vec<u64> {
        let mut footprint = vec![0; self.nodes.len()];
        for (_, page) in self.host.pages_of(task) {
            footprint[page.node.index()] += page.size.base_pages();
        }
        footprint
    }

    fn process(&self, process: &Process) -> Process {
        let resident_pages = self.footprint(task(process.pid)).iter().sum();
        Process { resident_pages, ..process.clone() }
    }

    fn host_pages(&self, task: TaskId) -> Vec<(u64, FakePage)> {
        self.host.pages_of(task).map(|(page, found)| (page.0, *found)).collect()
    }

    fn is_movable(&self, of: TaskId) -> bool {
        self.watched.contains(&of) || self.requested.iter().any(|pid| task(*pid) == of)
    }
}

/// The page of a process by index.
pub fn page(at: u64) -> Vpn {
    Vpn(0x1000 + at)
}

/// [`DaemonHost`] on a [`FakeHost`].
#[derive(Debug)]
pub struct FakeSystem {
    pub world: Arc<Mutex<World>>,
    watched: Vec<Process>,
    answers: Answers,
}

/// Locks the world, for a few statements at most.
pub fn lock(world: &Mutex<World>) -> MutexGuard<'_, World> {
    world.lock().expect("no thread has panicked")
}

fn answers(sensors: &Sensors) -> Result<Answers, SensorRefused> {
    Answers::ask(sensors, |sensor| {
        Some(match sensor {
            Sensor::NodeTraffic => Answer::Refused("the test counts no traffic".to_owned()),
            _ => Answer::Observed("set by the test".to_owned()),
        })
    })
}

impl FakeSystem {
    /// A system with these node numbers, before any process starts.
    pub fn new(nodes: &[u8], sensors: &Sensors, dry_run: bool) -> FakeSystem {
        let sizes = vec![NODE_PAGES; nodes.len()];
        let world = World {
            host: FakeHost::new(&sizes, sensors).expect("it refuses no sensor"),
            clock: Clock::Epochs(Time::from_ms(20)),
            processes: BTreeMap::new(),
            nodes: nodes.iter().copied().map(NodeId).collect(),
            hot: BTreeMap::new(),
            troubles: Vec::new(),
            sensor_failures: 0,
            sensors_set: Vec::new(),
            own_memory: Vec::new(),
            requested: Vec::new(),
            observed: Vec::new(),
            dry_run,
            watched: Vec::new(),
            done: Vec::new(),
        };
        let answers = answers(sensors).expect("traffic is not required");
        FakeSystem { world: Arc::new(Mutex::new(world)), watched: Vec::new(), answers }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        lock(&self.world)
    }
}

/// A system with these node numbers, the first two with CPUs, one tier per node.
pub fn system(nodes: &[u8]) -> System {
    let node = |(rank, &id): (usize, &u8)| Node {
        id: NodeId(id),
        cpus: if rank < 2 { vec![CpuId(rank as u16)] } else { Vec::new() },
        memory: Some(Capacity { total_kib: NODE_PAGES * 4, free_kib: NODE_PAGES * 4 }),
        tier: u8::try_from(rank).ok(),
        distances: nodes.iter().map(|&to| (NodeId(to), if to == id { 10 } else { 20 })).collect(),
        firmware: None,
    };
    System { nodes: nodes.iter().enumerate().map(node).collect(), processor: Processor::default() }
}

impl Host for FakeSystem {
    fn now(&self) -> Time {
        self.world().host.now()
    }

    fn observe(&mut self, view: &mut View, events: &mut Vec<Event>) {
        let mut world = self.world();
        let hot: Vec<_> = world.hot.iter().map(|(&key, &reads)| (key, reads)).collect();
        for ((task, page), reads) in hot {
            if let Some(found) = world.host.page(task, page) {
                found.reads = reads;
            }
        }
        let mut all = View::default();
        world.host.observe(&mut all, events);
        let watched = world.watched.clone();
        world.observed.push(all.time);
        drop(world);
        let (regions, answers) = (all.regions, self.answers.clone());
        *view = View { regions: Default::default(), answers, ..all };
        view.tasks.retain(|task| watched.contains(&task.task));
        view.threads.retain(|thread| watched.contains(&thread.task));
        regions.iter().filter(|of| watched.contains(&of.task)).for_each(|region| view.regions.push(region));
    }

    fn act(&mut self, actions: &[Planned]) {
        let mut world = self.world();
        let time = world.host.now();
        let mut begun = Vec::new();
        for planned in actions {
            let why = match planned.action.moves().iter().all(|wanted| world.is_movable(wanted.task)) {
                false => Refusal::Gone,
                true if world.dry_run => Refusal::DryRun,
                true => {
                    begun.push(planned.clone());
                    continue;
                }
            };
            world.done.push(Completion { time, planned: planned.clone(), outcome: Outcome::Refused(why) });
        }
        world.host.act(&begun);
    }

    fn completions(&mut self, done: &mut Vec<Completion>) {
        let mut world = self.world();
        done.append(&mut world.done);
        world.host.completions(done);
    }
}

impl DaemonHost for FakeSystem {
    fn processes(&mut self, least_pages: u64, _: Duration) -> io::Result<Vec<Process>> {
        let world = self.world();
        let all = world.processes.values().map(|process| world.process(process));
        Ok(all.filter(|process| process.resident_pages >= least_pages).collect())
    }

    fn process(&self, pid: Pid) -> Option<Process> {
        let world = self.world();
        world.processes.get(&pid.as_raw_nonzero().get()).map(|process| world.process(process))
    }

    /// Also advances the epoch: the daemon calls this once in each, paused or not.
    fn watch(&mut self, processes: Vec<Process>) {
        let mut world = self.world();
        let passed = match world.clock {
            Clock::Epochs(epoch) => epoch,
            Clock::Since(begun) => Time::from_ns(begun.elapsed().as_nanos() as f64).since(world.host.now()),
        };
        world.host.advance(passed);
        world.watched = processes.iter().map(|process| task(process.pid)).collect();
        drop(world);
        self.watched = processes;
    }

    fn watched(&self) -> &[Process] {
        &self.watched
    }

    fn answers(&self) -> &Answers {
        &self.answers
    }

    fn monitoring(&self) -> Option<Monitoring<'_>> {
        Some(Monitoring { name: "the test", why_not_better: None, writes: false })
    }

    fn node_of(&self, process: &Process, page: Vpn) -> Option<NodeId> {
        self.world().host.page(task(process.pid), page).map(|found| found.node)
    }

    fn memory(&self, process: &Process) -> Box<dyn ProcessMemory> {
        let (world, process) = (Arc::clone(&self.world), process.clone());
        Box::new(FakeMemory { world, process, is_read: false })
    }

    fn system(&self) -> Result<System, TopologyError> {
        let nodes: Vec<u8> = self.world().nodes.iter().map(|node| node.0).collect();
        Ok(system(&nodes))
    }

    fn take_troubles(&mut self) -> Vec<String> {
        std::mem::take(&mut self.world().troubles)
    }

    fn begin_request(&mut self, process: Process) {
        self.world().requested.push(process.pid);
    }

    fn end_request(&mut self, pid: Pid) {
        self.world().requested.retain(|other| *other != pid);
    }

    fn set(&mut self, _: Duration, dry_run: bool) {
        self.world().dry_run = dry_run;
    }

    fn move_own_memory(&mut self, nodes: &[NodeId]) -> io::Result<()> {
        self.world().own_memory.push(nodes.to_vec());
        Ok(())
    }

    fn set_sensors(&mut self, _: Numbers, sensors: &Sensors, _: Option<Kind>) -> Result<(), SensorRefused> {
        self.watched.clear();
        let mut world = self.world();
        world.watched.clear();
        world.sensors_set.push(sensors.iter().map(|request| request.sensor.name()).collect());
        if world.sensor_failures > 0 {
            world.sensor_failures -= 1;
            return Err(SensorRefused { sensor: "regions", why: "the test refuses it".to_owned() });
        }
        drop(world);
        self.answers = answers(sensors)?;
        Ok(())
    }
}

/// A process's memory in the [`FakeHost`].
#[derive(Debug)]
struct FakeMemory {
    world: Arc<Mutex<World>>,
    process: Process,
    is_read: bool,
}

impl FakeMemory {
    fn pages(&self) -> Vec<(u64, FakePage)> {
        lock(&self.world).host_pages(task(self.process.pid))
    }
}

impl ProcessMemory for FakeMemory {
    fn check(&self) -> io::Result<()> {
        let pid = self.process.pid.as_raw_nonzero().get();
        let known = |process: &Process| (process.identity(), process.uid, process.ptrace_user);
        let same = |now: &Process| known(now) == known(&self.process);
        let is_same = lock(&self.world).processes.get(&pid).is_some_and(same);
        is_same.then_some(()).ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "it has ended"))
    }

    fn areas(&mut self) -> io::Result<Option<Vec<Range<u64>>>> {
        let pages = self.pages();
        let ends = |(page, found): &(u64, FakePage)| page + found.size.base_pages();
        let all = pages.first().zip(pages.last()).map(|(first, last)| first.0..ends(last));
        let is_first = !std::mem::replace(&mut self.is_read, true);
        Ok(is_first.then(|| all.into_iter().collect()))
    }

    fn present(&self, area: &Range<u64>, most: u64) -> (Vec<Present>, u64) {
        let end = area.end.min(area.start + most);
        let within = self.pages().into_iter().filter(|(page, _)| (area.start..end).contains(page));
        let present = |(page, found): (u64, FakePage)| Present {
            pages: page..page + found.size.base_pages(),
            is_huge: found.size == PageSize::Huge,
        };
        (within.map(present).collect(), end)
    }

    fn nodes_of(&self, pages: &[u64]) -> io::Result<Vec<Option<NodeId>>> {
        let mut world = lock(&self.world);
        let task = task(self.process.pid);
        let numbers = world.nodes.clone();
        let node = |page: &u64| world.host.page(task, Vpn(*page)).map(|found| numbers[found.node.index()]);
        Ok(pages.iter().map(node).collect())
    }
}

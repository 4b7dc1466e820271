//! The daemon with `relative-heat` on a host of 1,000 processes and 1 TB, of which a quarter is on fast
//! memory: epochs with 20,000 access samples each, as 1 % of a core takes them in half a second.
//!
//! Every process has 1 GiB in eight regions, half of them of huge pages. Nine tenths of the samples are in a
//! hot tenth of its pages. Moves and splits take place at once. The first epochs fill the table of pages that
//! were sampled; it prints how long they took at most, and the memory of this process after them, of which
//! the host is a part.
//!
//! The daemon's epoch is all of it: processes, policy, limits, history. It leaves out what a real host takes
//! to list processes and to find their pages, and it does not rest for the budget as a real host's clock
//! makes it do.
#![allow(missing_docs, reason = "criterion's macros")]

use std::io;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use memtide_core::epoch::Host;
use memtide_core::machine::bundled;
use memtide_core::policy::{
    AccessSample, Answers, Completion, Event, NodeView, Outcome, Planned, Region, Regions, SensorRefused,
    Sensors, TaskView, View,
};
use memtide_core::{CpuId, NodeId, PageSize, TaskId, ThreadId, Time, Vpn};
use memtide_daemon::{ConfigSource, Daemon, DaemonHost, Setup};
use memtide_linux::live::{Monitoring, task};
use memtide_linux::movers::{ProcMemory, ProcessMemory};
use memtide_linux::processes::{Process, resident_pages};
use memtide_linux::sensors::regions::Kind;
use memtide_linux::topology::{Numbers, System, TopologyError};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::process::Pid;
use rustix::time::{ClockId, clock_gettime};

const PROCESSES: i32 = 1000;
const REGIONS: u64 = 8;
const REGION_PAGES: u64 = 1 << 15;
const SAMPLES: usize = 20_000;
const WARM_UP: usize = 60;
const EPOCH: Time = Time::from_ms(500);

/// A process's pages begin at multiples of this.
const START: u64 = 1 << 20;

/// Processes whose pages are sampled, and stay where they are in the view.
struct LargeHost {
    processes: Vec<Process>,
    watched: Vec<Process>,
    tasks: Vec<TaskView>,
    regions: Regions,
    answers: Answers,
    random: Xoshiro256PlusPlus,
    now: Time,
    done: Vec<Completion>,
}

fn node(region: u64) -> NodeId {
    NodeId(u8::from(region >= REGIONS / 4))
}

fn size(region: u64) -> PageSize {
    if region.is_multiple_of(2) { PageSize::Base } else { PageSize::Huge }
}

impl LargeHost {
    fn new() -> LargeHost {
        let processes: Vec<Process> = (1..=PROCESSES).filter_map(Pid::from_raw).map(process).collect();
        let mut regions = Regions::default();
        for process in &processes {
            for region in 0..REGIONS {
                let (task, start) = (task(process.pid), Vpn(START + region * REGION_PAGES));
                let (size, node) = (size(region), node(region));
                let pages = REGION_PAGES / size.base_pages();
                regions.push(Region { task, start, pages, size, node, reads: 0, writes: 0, age: 0 });
            }
        }
        LargeHost {
            tasks: processes.iter().map(task_view).collect(),
            processes,
            watched: Vec::new(),
            regions,
            answers: Answers::default(),
            random: Xoshiro256PlusPlus::seed_from_u64(1),
            now: Time::ZERO,
            done: Vec::new(),
        }
    }

    fn sample(&mut self) -> Event {
        let task = TaskId(1 + self.random.next_u32() % PROCESSES.unsigned_abs());
        let pages = REGIONS * REGION_PAGES;
        // One page of ten is hot.
        let page = match self.random.next_u32() % 10 {
            0 => self.random.next_u64() % pages,
            _ => self.random.next_u64() % (pages / 10) * 10,
        };
        let region = page / REGION_PAGES;
        Event::AccessSample(AccessSample {
            time: self.now,
            task,
            thread: ThreadId(0),
            page: Vpn(START + page),
            size: size(region),
            node: node(region),
            latency: Some(Time::from_ns(if node(region) == NodeId(0) { 110.0 } else { 250.0 })),
            period: 10_000,
            write: false,
        })
    }
}

fn process(pid: Pid) -> Process {
    Process {
        pid,
        started_ticks: 1,
        resident_pages: REGIONS * REGION_PAGES,
        name: "program".to_owned(),
        uid: rustix::process::geteuid().as_raw(),
        ptrace_user: None,
        cgroup: "/".to_owned(),
    }
}

fn task_view(process: &Process) -> TaskView {
    let all = process.resident_pages;
    TaskView {
        task: task(process.pid),
        name: process.name.clone(),
        owner: Some(process.uid),
        priority: None,
        resident_pages: all,
        page_faults: None,
        footprint: vec![all / 4, all / 4 * 3],
        rule: None,
    }
}

impl Host for LargeHost {
    fn now(&self) -> Time {
        self.now
    }

    fn observe(&mut self, view: &mut View, events: &mut Vec<Event>) {
        self.now += EPOCH;
        view.time = self.now;
        let all = self.processes.len() as u64 * REGIONS * REGION_PAGES;
        let node = |node: u8, pages, free_pages| NodeView::new(NodeId(node), pages, free_pages);
        view.nodes = vec![node(0, all / 4, 0), node(1, all, all / 4)];
        view.tasks.clone_from(&self.tasks);
        view.regions = self.regions.clone();
        events.extend((0..SAMPLES).map(|_| self.sample()));
    }

    fn act(&mut self, actions: &[Planned]) {
        let made = |planned: &Planned| Completion {
            time: self.now,
            planned: planned.clone(),
            outcome: Outcome::MADE,
        };
        self.done.extend(actions.iter().map(made));
    }

    fn completions(&mut self, done: &mut Vec<Completion>) {
        done.append(&mut self.done);
    }
}

impl DaemonHost for LargeHost {
    fn processes(&mut self, _: u64, _: Duration) -> io::Result<Vec<Process>> {
        Ok(self.processes.clone())
    }

    fn process(&self, pid: Pid) -> Option<Process> {
        self.processes.iter().find(|process| process.pid == pid).cloned()
    }

    fn watch(&mut self, processes: Vec<Process>) {
        self.watched = processes;
    }

    fn watched(&self) -> &[Process] {
        &self.watched
    }

    fn answers(&self) -> &Answers {
        &self.answers
    }

    fn monitoring(&self) -> Option<Monitoring<'_>> {
        None
    }

    fn node_of(&self, _: &Process, page: Vpn) -> Option<NodeId> {
        Some(node((page.0 - START) / REGION_PAGES))
    }

    fn memory(&self, process: &Process) -> Box<dyn ProcessMemory> {
        Box::new(ProcMemory::new(process.clone()))
    }

    fn system(&self) -> Result<System, TopologyError> {
        System::read()
    }

    fn take_troubles(&mut self) -> Vec<String> {
        Vec::new()
    }

    fn begin_request(&mut self, _: Process) {}

    fn end_request(&mut self, _: Pid) {}

    fn move_own_memory(&mut self, _: &[NodeId]) -> io::Result<()> {
        Ok(())
    }

    fn set(&mut self, _: Duration, _: bool) {}

    fn set_sensors(&mut self, _: Numbers, _: &Sensors, _: Option<Kind>) -> Result<(), SensorRefused> {
        Ok(())
    }
}

fn daemon() -> Daemon<LargeHost> {
    let source = ConfigSource { file: None, dry_run: false };
    let config = source.read().expect("the default configuration");
    let machine = bundled::machine("ddr5-cxl").expect("a bundled machine").expect("a checked machine");
    let policy = memtide_policies::parse("local+relative-heat").expect("a policy").migration(&machine);
    let numbers = Numbers { nodes: vec![NodeId(0), NodeId(1)], cpus: vec![CpuId(0)], scan_pages: 0 };
    let setup = Setup { numbers, machine, policy };
    Daemon::on(LargeHost::new(), setup, source, config, Box::new(|_| ())).expect("a daemon")
}

/// Processor time of this thread, which does not depend on the host's load.
fn processor_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().expect("it is not negative")
}

fn epoch(daemon: &mut Daemon<LargeHost>) -> Duration {
    let begin = processor_time();
    daemon.epoch();
    processor_time() - begin
}

fn large_host(criterion: &mut Criterion) {
    let mut daemon = daemon();
    let longest = (0..WARM_UP).map(|_| epoch(&mut daemon)).max().unwrap_or_default();
    assert_eq!(daemon.host().watched().len(), PROCESSES.unsigned_abs() as usize);
    println!("longest of the first {WARM_UP} epochs: {:.1} ms", longest.as_secs_f64() * 1e3);
    let pages = resident_pages(rustix::process::getpid().as_raw_nonzero().get()).unwrap_or_default();
    println!("resident: {} MiB", pages >> 8);
    criterion.bench_function("epoch of 1,000 processes", |bencher| {
        bencher.iter_custom(|epochs| (0..epochs).map(|_| epoch(&mut daemon)).sum());
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).measurement_time(Duration::from_secs(5));
    targets = large_host
}
criterion_main!(benches);

//! The event loop: cores, memory nodes and timers act in the order of their times.

mod epochs;
mod moves;
mod programs;
mod schedule;
mod traps;

use std::collections::VecDeque;

use memtide_core::machine::{self, Machine};
use memtide_core::policy::{Delivery, Move, Placement};
use memtide_core::{CpuId, NodeId, TaskId, Time};
use memtide_memory::{Cache, Uncore, Waiter};

use self::epochs::Policed;
use self::programs::Running;
use crate::agenda::Agenda;
use crate::core::{Core, Stop};
use crate::monitor::Monitor;
use crate::mover::{COPY, Copy};
use crate::os::Os;
use crate::report::Report;
use crate::samples::Samples;
use crate::thread::Thread;
use crate::{Job, Policy, SimError};

/// How far a core's clock may run ahead of the other actors while it needs nothing that they share.
const AHEAD: Time = Time::from_us(2);

/// A machine at work.
pub(crate) struct Engine<'p> {
    /// Its scale has been carried out.
    pub machine: Machine,
    /// The scale that was.
    pub scale: u32,
    pub seed: u64,
    pub now: Time,
    pub cores: Vec<Core>,
    pub threads: Vec<Thread>,
    pub programs: Vec<Running<'p>>,
    pub os: Os,
    pub uncore: Uncore,
    pub samples: Samples,
    pub daemon: Daemon,
    pub migrated_pages: u64,
    /// Base pages that ended tasks had on each node.
    pub pages_of_ended: Vec<u64>,
    agenda: Agenda,
    placement: Box<dyn Placement>,
    migration: Option<Policed>,
    pub monitor: Option<Monitor>,
    copies: Vec<Copy>,
    free_copies: Vec<usize>,
    /// CPUs that each task's threads have run on.
    task_cpus: Vec<Vec<CpuId>>,
    slice: Time,
    told: Vec<(Waiter, Time)>,
}

/// The kernel thread that moves pages for a policy outside the kernel, one after another.
#[derive(Default)]
pub(crate) struct Daemon {
    queue: VecDeque<(Move, u32)>,
    busy: bool,
    /// Time it has worked.
    pub system: Time,
}

/// Actors that are neither cores nor nodes, in the order of their numbers after those.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Timer {
    Scan,
    Monitor,
    Epoch,
    Sample,
    Daemon,
}

const TIMERS: [Timer; 5] = [Timer::Scan, Timer::Monitor, Timer::Epoch, Timer::Sample, Timer::Daemon];

/// Turns of actors after which the watcher is told: a small part of a second. Samples grow further apart as a run goes on.
const WATCH_TURNS: u32 = 1 << 17;

/// Linux's time slice of a thread that shares its CPU.
const SLICE: Time = Time::from_ms(4);

impl<'p> Engine<'p> {
    pub fn new(
        machine: &Machine,
        jobs: Vec<Job<'p>>,
        policy: Policy,
        seed: u64,
    ) -> Result<Engine<'p>, SimError> {
        let scale = machine.scale;
        let machine = machine.scaled();
        let pages: u64 = machine.nodes.iter().map(memtide_core::machine::Node::pages).sum();
        let lines = pages * (memtide_core::PAGE_BYTES / memtide_core::LINE_BYTES);
        let too_many = |c: &machine::Cache| lines > Cache::line_limit(c.capacity_kib, c.ways);
        if pages >= u64::from(u32::MAX) || machine.caches.iter().any(too_many) {
            return Err(SimError::TooLarge { machine: machine.name });
        }
        let migration = policy.migration.map(|migration| Policed::new(migration, policy.limits, scale));
        let regions = migration.as_ref().and_then(|policed| policed.needs.regions);
        let nodes = machine.nodes.len();
        let mut engine = Engine {
            scale,
            seed,
            now: Time::ZERO,
            cores: (0..machine.cpus()).map(|cpu| Core::new(&machine, CpuId::from(cpu))).collect(),
            threads: Vec::new(),
            programs: Vec::new(),
            os: Os::new(&machine),
            uncore: Uncore::new(&machine),
            samples: Samples::new(nodes),
            daemon: Daemon::default(),
            migrated_pages: 0,
            pages_of_ended: vec![0; nodes],
            agenda: Agenda::new(machine.cpus() + nodes + TIMERS.len()),
            placement: policy.placement,
            migration,
            monitor: regions.map(|needs| Monitor::new(needs, seed)),
            copies: Vec::new(),
            free_copies: Vec::new(),
            task_cpus: Vec::new(),
            slice: Time(SLICE.0 / u64::from(scale)),
            told: Vec::new(),
            machine,
        };
        engine.start_timers();
        for job in jobs {
            engine.load(job)?;
        }
        Ok(engine)
    }

    /// Runs until every thread has ended.
    pub fn run(&mut self, watch: &mut dyn FnMut(Option<f64>) -> bool) -> Result<(), SimError> {
        let mut turns = 0u32;
        while self.programs.iter().any(|program| program.live > 0) {
            let (time, actor) = self.agenda.first();
            self.now = time;
            self.act(actor, watch)?;
            self.refresh_nodes();
            turns = turns.wrapping_add(1);
            if turns.is_multiple_of(WATCH_TURNS) {
                self.tell(watch)?;
            }
        }
        Ok(())
    }

    fn act(&mut self, actor: usize, watch: &mut dyn FnMut(Option<f64>) -> bool) -> Result<(), SimError> {
        if actor < self.cores.len() {
            return self.act_core(actor);
        }
        let actor = actor - self.cores.len();
        if actor < self.machine.nodes.len() {
            return self.act_node(NodeId::from(actor));
        }
        match TIMERS[actor - self.machine.nodes.len()] {
            Timer::Scan => self.scan(),
            Timer::Monitor => self.monitor(),
            Timer::Epoch => self.epoch(),
            Timer::Sample => return self.sample(watch),
            Timer::Daemon => self.run_daemon(),
        }
        Ok(())
    }

    /// What a core has to do now. Misses that come within the uncore's lookahead go with it: that saves turns, and the
    /// order in which cores meet in a cache within such a time means nothing.
    fn act_core(&mut self, cpu: usize) -> Result<(), SimError> {
        let core = &mut self.cores[cpu];
        if core.resume < core.window.next_miss() {
            core.resume = Time::NEVER;
            match core.trap.take() {
                Some(trap) => self.handle(cpu, trap)?,
                None => self.go_on(cpu)?,
            }
        }
        let until = self.now + self.uncore.lookahead();
        while self.cores[cpu].window.next_miss() <= until {
            self.cores[cpu].send_miss(&mut self.uncore);
            if self.cores[cpu].can_go_on() {
                self.go_on(cpu)?;
            }
        }
        self.refresh_core(cpu);
        Ok(())
    }

    fn act_node(&mut self, node: NodeId) -> Result<(), SimError> {
        let mut told = std::mem::take(&mut self.told);
        self.uncore.advance(node, self.now, |waiter, time| told.push((waiter, time)));
        self.samples.latencies(&mut self.uncore);
        for (waiter, time) in told.drain(..) {
            if waiter.0 & COPY != 0 {
                self.line_came((waiter.0 & !COPY) as usize, time);
                continue;
            }
            let cpu = (waiter.0 >> 8) as usize;
            self.cores[cpu].window.resolve(waiter.0 as u8, time);
            if self.cores[cpu].can_go_on() {
                self.go_on(cpu)?;
            }
            self.refresh_core(cpu);
        }
        self.told = told;
        Ok(())
    }

    /// Lets the thread that runs on a CPU go on until something stops it.
    fn go_on(&mut self, cpu: usize) -> Result<(), SimError> {
        let core = &mut self.cores[cpu];
        core.blocked = false;
        let Some(running) = core.running else { return Ok(()) };
        if core.trap.is_some() {
            core.drain(&mut self.threads[running]);
            return Ok(());
        }
        loop {
            let core = &mut self.cores[cpu];
            let thread = &mut self.threads[running];
            let space = &mut self.os.spaces[thread.task.index()];
            match core.take_in(thread, space, &mut self.uncore, self.now + AHEAD) {
                Stop::Blocked => {
                    core.blocked = true;
                    return Ok(());
                }
                Stop::Ahead => {
                    core.pause(thread);
                    return Ok(());
                }
                Stop::UsedUp => {
                    let trap = self.refill(cpu, running)?;
                    let core = &mut self.cores[cpu];
                    if trap.is_some() {
                        core.trap = trap;
                        core.drain(&mut self.threads[running]);
                        return Ok(());
                    }
                    if core.clock.now() > self.now + AHEAD {
                        core.pause(&mut self.threads[running]);
                        return Ok(());
                    }
                }
                Stop::Fault(trap) => {
                    core.trap = Some(trap);
                    core.drain(thread);
                    return Ok(());
                }
            }
        }
    }

    fn refresh_core(&mut self, cpu: usize) {
        self.agenda.set(cpu, self.cores[cpu].next_time());
    }

    fn refresh_nodes(&mut self) {
        let mut touched = self.uncore.take_touched();
        while touched != 0 {
            let node = touched.trailing_zeros() as usize;
            touched &= touched - 1;
            self.agenda.set(self.cores.len() + node, self.uncore.next_event(NodeId::from(node)));
        }
    }

    fn set_timer(&mut self, timer: Timer, time: Time) {
        let number = TIMERS.iter().position(|&t| t == timer).expect("a listed timer");
        self.agenda.set(self.cores.len() + self.machine.nodes.len() + number, time);
    }

    fn start_timers(&mut self) {
        self.set_timer(Timer::Sample, self.samples.next());
        let Some(policed) = &self.migration else { return };
        let (hint_faults, first_epoch) = (policed.needs.hint_faults, policed.needs.epoch);
        if policed.needs.delivery == Delivery::Deployable {
            self.set_timer(Timer::Epoch, first_epoch);
        }
        if hint_faults {
            self.set_timer(Timer::Scan, self.scan_period());
        }
        if let Some(monitor) = &self.monitor {
            self.set_timer(Timer::Monitor, monitor.sampling);
        }
    }

    fn scan_period(&self) -> Time {
        Time::from_ns(self.machine.kernel.numa_scan_period_ms * 1e6)
    }

    /// The hint scanner's step on every task.
    fn scan(&mut self) {
        let pages = (self.machine.kernel.numa_scan_mib << 20) / memtide_core::PAGE_BYTES;
        for task in 0..self.os.spaces.len() {
            self.os.scan(TaskId::from(task), pages);
            self.shoot_down(None);
        }
        self.set_timer(Timer::Scan, self.now + self.scan_period());
    }

    fn sample(&mut self, watch: &mut dyn FnMut(Option<f64>) -> bool) -> Result<(), SimError> {
        self.samples.take(&self.uncore);
        self.set_timer(Timer::Sample, self.samples.next());
        self.tell(watch)?;
        self.check_progress()
    }

    /// Tells whoever watches how far the run is, and ends it if they want that.
    fn tell(&self, watch: &mut dyn FnMut(Option<f64>) -> bool) -> Result<(), SimError> {
        let done = self.programs.iter().map(|p| p.program.progress()).collect::<Option<Vec<f64>>>();
        let done = done.map(|all| all.iter().sum::<f64>() / all.len().max(1) as f64);
        if watch(done) { Ok(()) } else { Err(SimError::Interrupted) }
    }

    /// Whatever has been counted, as a report.
    pub fn report(self) -> Report {
        let moves =
            self.migration.as_ref().map(|policed| policed.governor.recorded().clone()).unwrap_or_default();
        Report::of(&self, &moves)
    }
}

#[cfg(test)]
mod tests;

//! The event loop: cores, memory nodes and timers act in time order.

mod collapse;
mod copy;
mod epochs;
mod idle;
mod mover;
mod programs;
mod quota;
mod schedule;
mod size;
mod tasks;
mod traps;

use memtide_core::epoch::PolicyRunner;
use memtide_core::machine::Machine;
use memtide_core::policy::{Page, Sensor, Sensors};
use memtide_core::{CpuId, LINE_BYTES, NodeId, PAGE_BYTES, Stage, TaskId, Time};
use memtide_memory::{Uncore, Waiter};

use self::copy::COPY;
use self::idle::IdleTurns;
use self::mover::Mover;
use self::programs::Running;
use self::tasks::Tasks;
use crate::agenda::Agenda;
use crate::core::{Core, Stop};
use crate::feed::Load;
use crate::heat::Heat;
use crate::oracle::RegionWork;
use crate::os::{Entry, Os};
use crate::report::Report;
use crate::samples::{NodeSample, ProgramSample, Samples};
use crate::sensors::{AccessSampler, OpenSensors, SensorSetup};
use crate::stages::Stages;
use crate::thread::{Cause, Thread};
use crate::{Policy, SimError};

/// How far a core's clock may run ahead of the other actors while it uses nothing shared.
const AHEAD: Time = Time::from_us(2);

/// A running machine.
pub(crate) struct Engine<'p> {
    pub setup: Setup,
    pub now: Time,
    /// The next time of each actor.
    agenda: Agenda,
    pub cores: Vec<Core>,
    pub threads: Vec<Thread>,
    pub programs: Vec<Running<'p>>,
    pub tasks: Tasks,
    pub os: Os,
    pub uncore: Uncore,
    /// Completed reads, to be delivered to their waiters; empty between two acts.
    completed: Vec<(Waiter, Time)>,
    pub mover: Mover,
    /// The migration policy, if pages migrate.
    pub policy: Option<PolicyRunner>,
    pub sensors: OpenSensors,
    /// The CPU that does the policy's next work, if none is idle.
    worker: usize,
    /// When the policy's work outside of faults is done.
    work_ends: Time,
    pub samples: Samples,
    pub heat: Heat,
    pub access_sampler: Option<AccessSampler>,
    pub stages: Stages,
    pub region: RegionWork,
    idle: IdleTurns,
    /// Whether a thread has made a mark while others of its program ran.
    pub has_open_mark: bool,
}

/// Parameters of a run.
pub(crate) struct Setup {
    /// The machine, reduced.
    pub machine: Machine,
    /// Its slice and its scale before.
    pub slice: u32,
    pub scale: u32,
    pub seed: u64,
    /// Nodes that go offline, and when.
    pub unplugs: Vec<(Time, NodeId)>,
    /// Whether memory is ideal: faults cost nothing unless every run has them.
    pub is_ideal: bool,
}

/// Actors that are neither cores nor nodes, numbered after those.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timer {
    Scan,
    Mark,
    Sensor,
    Epoch,
    Sample,
    Mover,
    Unplug,
    Start,
    Oracle,
}

const TIMERS: [Timer; 9] = [
    Timer::Scan,
    Timer::Mark,
    Timer::Sensor,
    Timer::Epoch,
    Timer::Sample,
    Timer::Mover,
    Timer::Unplug,
    Timer::Start,
    Timer::Oracle,
];

/// Turns of actors between calls of the watcher: a small fraction of a second. Samples become less frequent
/// during a run.
const WATCH_TURNS: u32 = 1 << 17;

impl<'p> Engine<'p> {
    pub fn new(
        machine: &Machine,
        jobs: Vec<Load<'p>>,
        policy: Policy,
        seed: u64,
    ) -> Result<Engine<'p>, SimError> {
        let reduced = machine.reduced();
        size::check(&reduced)?;
        Engine::with(machine, reduced, false, jobs, policy, seed)
    }

    /// A machine with ideal memory, for [bounds](crate::bound()); `relaxed` is what is simulated of the
    /// machine.
    pub fn ideal(
        machine: &Machine,
        relaxed: Machine,
        jobs: Vec<Load<'p>>,
        policy: Policy,
        seed: u64,
    ) -> Result<Engine<'p>, SimError> {
        size::check(&machine.reduced())?;
        Engine::with(machine, relaxed, true, jobs, policy, seed)
    }

    fn with(
        whole: &Machine,
        machine: Machine,
        is_ideal: bool,
        jobs: Vec<Load<'p>>,
        policy: Policy,
        seed: u64,
    ) -> Result<Engine<'p>, SimError> {
        let (slice, scale) = (whole.slice, whole.scale);
        let requests = policy.migration.as_ref().map(|migration| migration.sensors().scaled(scale));
        let sensors = match &requests {
            Some(requests) => OpenSensors::new(requests, &SensorSetup { seed })?,
            None => OpenSensors::none(),
        };
        let nodes = machine.nodes.len();
        let first = jobs.iter().map(|job| job.start).min();
        let marked = jobs.iter().any(|job| Some(job.start) == first && job.feed.has_region());
        let stage = if marked { Stage::Initialisation } else { Stage::Region };
        let mut engine = Engine {
            now: Time::ZERO,
            agenda: Agenda::new(machine.cpus() + nodes + TIMERS.len()),
            cores: (0..machine.cpus()).map(|cpu| Core::new(&machine, CpuId::from(cpu))).collect(),
            threads: Vec::new(),
            programs: Vec::new(),
            tasks: Tasks::new(policy.placement, nodes),
            os: Os::new(&machine, policy.plan),
            uncore: if is_ideal { Uncore::ideal(&machine) } else { Uncore::new(&machine) },
            completed: Vec::new(),
            mover: Mover::new(nodes, requests.as_ref().is_some_and(|requests| requests.copy_on_write)),
            policy: policy.migration.map(|migration| PolicyRunner::new(migration, policy.limits)),
            sensors,
            worker: 0,
            work_ends: Time::ZERO,
            samples: Samples::new(nodes, jobs.len(), stage == Stage::Region),
            heat: Heat::new(nodes, jobs.len()),
            access_sampler: requests.as_ref().and_then(Sensors::access_samples).map(AccessSampler::new),
            stages: Stages::new(stage),
            region: RegionWork::default(),
            idle: IdleTurns::default(),
            has_open_mark: false,
            setup: Setup { machine, slice, scale, seed, unplugs: policy.unplugs, is_ideal },
        };
        if is_ideal {
            engine.cores.iter_mut().for_each(|core| core.window.be_lenient());
        }
        engine.start_timers(requests.as_ref());
        if stage == Stage::Region {
            engine.enter_region();
        }
        for job in jobs {
            engine.load(job)?;
        }
        engine.await_programs();
        Ok(engine)
    }

    /// Runs until every thread has ended.
    pub fn run(&mut self, watch: &mut dyn FnMut(Option<f64>) -> bool) -> Result<(), SimError> {
        let mut turns = 0u32;
        while self.programs.iter().any(|program| program.live > 0 || !program.has_started) {
            let (time, actor) = self.agenda.first();
            self.now = time;
            self.act(actor, watch)?;
            self.refresh_nodes();
            turns = turns.wrapping_add(1);
            if turns.is_multiple_of(WATCH_TURNS) {
                self.report_progress(watch)?;
            }
        }
        Ok(())
    }

    fn act(&mut self, actor: usize, watch: &mut dyn FnMut(Option<f64>) -> bool) -> Result<(), SimError> {
        if actor < self.cores.len() {
            self.idle.act(self.now);
            return self.act_core(actor);
        }
        let actor = actor - self.cores.len();
        if actor < self.setup.machine.nodes.len() {
            self.idle.act(self.now);
            return self.act_node(NodeId::from(actor));
        }
        let timer = TIMERS[actor - self.setup.machine.nodes.len()];
        if matches!(timer, Timer::Scan | Timer::Mark | Timer::Sensor | Timer::Epoch) {
            self.idle.monitor(self.now)?;
        }
        match timer {
            Timer::Scan => self.scan(),
            Timer::Mark => self.mark_entries(),
            Timer::Sensor => self.sample_sensors(),
            Timer::Epoch => self.epoch(),
            Timer::Sample => return self.sample(watch),
            Timer::Mover => self.run_mover(),
            Timer::Unplug => self.unplug(),
            Timer::Start => return self.start_programs(),
            Timer::Oracle => self.follow_region(),
        }
        Ok(())
    }

    /// Performs a core's due action. Misses within the uncore's lookahead are sent together, which saves
    /// turns; the order of cores' accesses to a cache within such a time is arbitrary.
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
            if let Some(sent) = self.cores[cpu].send_miss(&mut self.uncore) {
                self.heat_access(sent.line);
                if sent.waits {
                    self.begin_access_sample(cpu, sent);
                }
            }
            if self.cores[cpu].can_go_on() {
                self.go_on(cpu)?;
            }
        }
        self.refresh_core(cpu);
        Ok(())
    }

    /// Counts a private miss of the region in its program's heat map.
    #[inline]
    fn heat_access(&mut self, line: u64) {
        let Some(at) = self.samples.region_time(self.now) else { return };
        let (task, page, node) = self.os.frames.page_of((line / (PAGE_BYTES / LINE_BYTES)) as u32);
        self.heat.access(self.tasks.program(task), page, node, at);
    }

    fn act_node(&mut self, node: NodeId) -> Result<(), SimError> {
        let mut completed = std::mem::take(&mut self.completed);
        self.uncore.advance(node, self.now, |waiter, time| completed.push((waiter, time)));
        self.samples.latencies(&mut self.uncore);
        for (waiter, time) in completed.drain(..) {
            if waiter.0 & COPY != 0 {
                self.line_arrived((waiter.0 & !COPY) as usize, time);
                continue;
            }
            let cpu = (waiter.0 >> 8) as usize;
            let time = self.end_access_sample(cpu, waiter.0 as u8, time);
            self.cores[cpu].window.resolve(waiter.0 as u8, time);
            if self.cores[cpu].can_go_on() {
                self.go_on(cpu)?;
            }
            self.refresh_core(cpu);
        }
        self.completed = completed;
        Ok(())
    }

    /// Runs the thread of a CPU until something stops it.
    fn go_on(&mut self, cpu: usize) -> Result<(), SimError> {
        let core = &mut self.cores[cpu];
        core.blocked = false;
        let Some(running) = core.running else { return Ok(()) };
        if core.trap.is_some() {
            core.drain(&mut self.threads[running]);
            return Ok(());
        }
        // One that waits for each load is never ahead.
        if core.leave_if_due(&mut self.threads[running]) {
            return Ok(());
        }
        loop {
            let core = &mut self.cores[cpu];
            let thread = &mut self.threads[running];
            let space = &mut self.os.spaces[thread.task.index()];
            let limit = self.now + AHEAD;
            let stop = match thread.records {
                Some(_) => core.replay(thread, space, &mut self.uncore, limit),
                None => core.take_in(thread, space, &mut self.uncore, limit),
            };
            match stop {
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
                    if self.maps_for_free(cpu, running, &trap)? {
                        continue;
                    }
                    let core = &mut self.cores[cpu];
                    let thread = &mut self.threads[running];
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

    pub(crate) fn set_timer(&mut self, timer: Timer, time: Time) {
        let number = TIMERS.iter().position(|&t| t == timer).expect("a listed timer");
        self.agenda.set(self.cores.len() + self.setup.machine.nodes.len() + number, time);
    }

    fn start_timers(&mut self, requests: Option<&Sensors>) {
        self.set_timer(Timer::Sample, self.samples.next(self.now));
        self.setup.unplugs.sort_unstable();
        self.set_timer(Timer::Unplug, self.setup.unplugs.first().map_or(Time::NEVER, |first| first.0));
        let Some(requests) = requests else { return };
        self.set_timer(Timer::Epoch, requests.first_epoch);
        if requests.hint_faults() {
            if !self.sensors.has(&Sensor::HintFaults) {
                self.scan_slow_tiers();
            }
            self.set_timer(Timer::Scan, self.scan_period());
        }
        if let Some(sampling) = self.sensors.tlb_misses() {
            if sampling.planned {
                self.os.mark_only(&[]);
            }
            self.set_timer(Timer::Mark, sampling.marking);
        }
        if let Some(sampling) = self.sensors.sampling() {
            self.set_timer(Timer::Sensor, sampling);
        }
        if self.sensors.has(&Sensor::CacheUtility) {
            self.uncore.monitor_utility();
        }
    }

    /// Takes the next node offline.
    fn unplug(&mut self) {
        let (_, node) = self.setup.unplugs.remove(0);
        self.os.frames.unplug(node);
        self.set_timer(Timer::Unplug, self.setup.unplugs.first().map_or(Time::NEVER, |next| next.0));
    }

    /// Time between two steps of the hint scanner; the first one is this long after the start.
    pub(crate) fn scan_period(&self) -> Time {
        Time::from_ns(self.setup.machine.kernel.numa_scan_period_ms * 1e6)
    }

    /// The hint scanner's step on every task.
    fn scan(&mut self) {
        let pages = self.setup.machine.kernel.numa_scan_pages();
        self.os.scan_step = (self.os.scan_step + 1) % Entry::STEPS;
        self.os.scan_time = self.now;
        for task in 0..self.os.spaces.len() {
            self.os.scan(TaskId::from(task), pages);
            self.shoot_down(None, Cause::Monitoring);
        }
        self.set_timer(Timer::Scan, self.now + self.scan_period());
    }

    /// Marks the page table entries of every task.
    fn mark_entries(&mut self) {
        for task in 0..self.os.spaces.len() {
            self.os.mark(TaskId::from(task));
            self.shoot_down(None, Cause::Monitoring);
        }
        let next = self.sensors.tlb_misses().map_or(Time::NEVER, |sampling| self.now + sampling.marking);
        self.set_timer(Timer::Mark, next);
    }

    /// Marks these pages' entries instead of all from now on, if the policy asked to choose.
    fn count_misses_of(&mut self, pages: &[Page]) {
        if self.sensors.tlb_misses().is_some_and(|sampling| sampling.planned) {
            self.os.mark_only(pages);
            self.mark_entries();
        }
    }

    fn sample(&mut self, watch: &mut dyn FnMut(Option<f64>) -> bool) -> Result<(), SimError> {
        if self.samples.is_within() {
            self.samples.take(NodeSample::of_all(self), ProgramSample::of_all(self));
        }
        self.set_timer(Timer::Sample, self.samples.next(self.now));
        self.report_progress(watch)?;
        self.check_progress()
    }

    /// Samples the region of interest alone.
    pub(crate) fn follow_stage(&mut self, stage: Stage) {
        let (nodes, programs) = (NodeSample::of_all(self), ProgramSample::of_all(self));
        if stage == Stage::Region {
            self.enter_region()
        } else {
            self.leave_region()
        }
        self.samples.follow(stage == Stage::Region, &nodes, &programs, self.now);
        self.set_timer(Timer::Sample, self.samples.next(self.now));
    }

    /// Reports progress to the watcher; fails if the watcher stops the run.
    fn report_progress(&self, watch: &mut dyn FnMut(Option<f64>) -> bool) -> Result<(), SimError> {
        let done = self.programs.iter().map(|p| p.feed.progress()).collect::<Option<Vec<f64>>>();
        let done = done.map(|all| all.iter().sum::<f64>() / all.len().max(1) as f64);
        if watch(done) { Ok(()) } else { Err(SimError::Interrupted) }
    }

    /// The run, which has ended, as a report.
    pub fn report(mut self) -> Report {
        self.collect_completions();
        self.end_stages();
        Report::of(&self)
    }
}

#[cfg(test)]
mod tests;

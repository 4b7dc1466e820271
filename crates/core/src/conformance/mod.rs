//! The conformance suite: one script that every host must pass, with the same outcomes and the same views.
//!
//! [`ConformancePolicy`] follows a [`script`], records its input, and checks it phase by phase. The
//! simulator, the fake host and the live host in the lab each run it; the tests only drive it.

mod fake;
pub mod script;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use fake::{FakeHost, FakePage, FakeTask};

use self::script::{Area, EPOCHS, Moves, PLAN_AT, Phase, Seen, Times};
use crate::ids::TaskId;
use crate::policy::{
    Action, Completion, Delivery, Event, Frame, Migration, Move, Outcome, Plan, Reason, RegionSampling,
    Sensor, Sensors, View, Wake,
};
use crate::units::{PAGE_BYTES, PageSize, Time, VirtAddr, Vpn};

/// Location of an area in the program's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Its first byte; a multiple of 4 KiB.
    pub start: VirtAddr,
    /// Its length in base pages.
    pub pages: u64,
}

/// Locations of the areas.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// [`Area::Hot`], [`Area::Idle`], [`Area::Large`], [`Area::Nowhere`].
    pub areas: [Placed; 4],
}

impl Layout {
    /// Consecutive areas from an address on, with 1 MiB between them.
    pub fn from(start: VirtAddr, large_pages: u64) -> Layout {
        let mut next = start.0;
        let areas = [script::AREA_PAGES, script::AREA_PAGES, large_pages, script::AREA_PAGES];
        let areas = areas.map(|pages| {
            let placed = Placed { start: VirtAddr(next), pages };
            next += pages * PAGE_BYTES + (1 << 20);
            placed
        });
        Layout { areas }
    }

    /// Location of an area.
    pub fn of(&self, area: Area) -> Placed {
        self.areas[area as usize]
    }

    fn contains(&self, area: Area, page: Vpn) -> bool {
        let Placed { start, pages } = self.of(area);
        (start.page().0..start.page().0 + pages).contains(&page.0)
    }
}

/// Record of a run, for the test that drives and checks it.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Progress>);

#[derive(Debug, Default)]
struct Progress {
    epochs: AtomicUsize,
    phases: Mutex<Vec<PhaseLog>>,
}

/// Record of a phase.
#[derive(Clone, Debug, Default)]
struct PhaseLog {
    events: Vec<Event>,
    outcomes: Vec<(Outcome, u64)>,
    views: Vec<View>,
    planned: u64,
}

/// A policy that plans what the script says and records its input.
pub struct ConformancePolicy {
    script: &'static [Phase],
    layout: Layout,
    epoch: Time,
    sampling: RegionSampling,
    task: Option<TaskId>,
    log: Log,
}

impl ConformancePolicy {
    /// A policy for a script, and its log. An epoch must be long enough for the host's sensors; regions are
    /// sampled ten times per aggregation interval, of which an epoch has one.
    pub fn new(script: &'static [Phase], layout: Layout, epoch: Time) -> (ConformancePolicy, Log) {
        let log = Log::default();
        let sampling = RegionSampling {
            sampling: Time(epoch.0 / 10),
            aggregation: epoch,
            regions_max: 300,
            writes: false,
            budget_bp: None,
        };
        (ConformancePolicy { script, layout, epoch, sampling, task: None, log: log.clone() }, log)
    }

    fn plan(&self, phase: &Phase, plan: &mut Plan) {
        let Some(task) = self.task else { return };
        for Moves { area, pages, to } in phase.plan {
            let placed = self.layout.of(*area);
            for at in 0..placed.pages.min(*pages) {
                let page = Vpn(placed.start.page().0 + at);
                let from = if *to == script::SLOW { script::FAST } else { script::SLOW };
                let (size, wish) = (PageSize::Base, Frame::ANY);
                plan.push_move(Move { task, page, size, from, to: *to, wish }, Reason::Hot);
            }
        }
        if phase.quota_ways.is_some() {
            plan.push(Action::CacheQuota(task, phase.quota_ways), Reason::Request);
        }
    }

    fn record(&self, at: usize, record: impl FnOnce(&mut PhaseLog)) {
        let mut logs = self.log.phases();
        logs.resize_with(self.script.len(), PhaseLog::default);
        record(&mut logs[at]);
    }

    /// The current phase. Input after the last phase belongs to the last one.
    fn phase(&self) -> usize {
        self.log.phase().min(self.script.len() - 1)
    }
}

impl Migration for ConformancePolicy {
    fn sensors(&self) -> Sensors {
        Sensors::new(Delivery::Deployable, self.epoch)
            .require(Sensor::Regions(self.sampling))
            .require(Sensor::HintFaults)
            .require(Sensor::Threads)
            .require(Sensor::TaskLifecycle)
    }

    fn on_event(&mut self, event: &Event, _: &View, _: &mut Plan) {
        self.record(self.phase(), |log| match event {
            Event::Completion(Completion { outcome, .. }) => {
                // The frame depends on the host.
                let outcome = if outcome.is_made() { Outcome::MADE } else { *outcome };
                match log.outcomes.iter_mut().find(|(known, _)| *known == outcome) {
                    Some((_, times)) => *times += 1,
                    None => log.outcomes.push((outcome, 1)),
                }
            }
            event => log.events.push(event.clone()),
        });
    }

    fn decide(&mut self, view: &View, plan: &mut Plan) -> Wake {
        let at = self.phase();
        self.task = self.task.or(view.tasks.first().map(|task| task.task));
        if self.log.epoch() == PLAN_AT && self.log.phase() == at {
            self.plan(&self.script[at], plan);
        }
        let planned = plan.actions().len() as u64;
        self.record(at, |log| {
            log.planned += planned;
            log.views.push(view.clone());
        });
        self.log.0.epochs.fetch_add(1, Ordering::Relaxed);
        Wake::After(self.epoch)
    }
}

impl Log {
    /// The current phase, from 0; at least the number of phases once all are over.
    pub fn phase(&self) -> usize {
        self.0.epochs.load(Ordering::Relaxed) / EPOCHS
    }

    /// The next epoch of the phase, from 0.
    pub fn epoch(&self) -> usize {
        self.0.epochs.load(Ordering::Relaxed) % EPOCHS
    }

    fn phases(&self) -> MutexGuard<'_, Vec<PhaseLog>> {
        self.0.phases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that the record matches the script.
    ///
    /// # Errors
    /// Every difference, with its phase.
    pub fn check(&self, script: &[Phase], layout: &Layout) -> Result<(), String> {
        let logs = self.phases();
        let mut views = logs.iter().flat_map(|log| &log.views);
        let Some(task) = views.find_map(|view| Some(view.tasks.first()?.task)) else {
            return Err("no view has a task".to_owned());
        };
        let checked = Checked { task, layout };
        let mut wrong = Vec::new();
        for (at, phase) in script.iter().enumerate() {
            match logs.get(at) {
                Some(log) if !log.views.is_empty() => checked.phase(phase, log, &mut wrong),
                _ => wrong.push(format!("{}: the run ended before", phase.name)),
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
    }
}

/// A log being checked.
struct Checked<'l> {
    /// The script's task.
    task: TaskId,
    layout: &'l Layout,
}

impl Checked<'_> {
    fn phase(&self, phase: &Phase, log: &PhaseLog, wrong: &mut Vec<String>) {
        let came = |outcome: &Outcome| {
            log.outcomes.iter().find(|(known, _)| known == outcome).map_or(0, |(_, times)| *times)
        };
        for (outcome, times) in phase.outcomes {
            let right = match times {
                Times::Exactly(times) => came(outcome) == *times,
                Times::Some => came(outcome) > 0,
                Times::Any => true,
            };
            if !right {
                let came = came(outcome);
                wrong.push(format!("{}: {outcome:?} must come {times:?}, came {came} times", phase.name));
            }
        }
        for (outcome, times) in &log.outcomes {
            if phase.outcomes.iter().all(|(expected, _)| expected != outcome) {
                wrong.push(format!("{}: {outcome:?} came {times} times, must not come", phase.name));
            }
        }
        let completed: u64 = log.outcomes.iter().map(|(_, times)| times).sum();
        if completed != log.planned {
            wrong.push(format!("{}: {} actions, {completed} completions", phase.name, log.planned));
        }
        for seen in phase.seen.iter().filter(|seen| !self.was_seen(seen, log)) {
            let last = log.views.last().map(|view| (&view.nodes, &view.tasks));
            wrong.push(format!("{}: {seen:?} was not seen; the last view has {last:?}", phase.name));
        }
    }

    fn was_seen(&self, seen: &Seen, log: &PhaseLog) -> bool {
        let last = log.views.last().expect("a phase that has views");
        let lifecycle = |wanted: bool| {
            log.events
                .iter()
                .any(|event| matches!(event, Event::Task(of) if of.task == self.task && of.started == wanted))
        };
        match *seen {
            Seen::TaskStarted => lifecycle(true),
            Seen::TaskEnded => lifecycle(false) && last.task(self.task).is_none(),
            Seen::Footprint(area, node) => {
                let pages = self.layout.of(area).pages;
                let has_thread = last.threads.iter().any(|thread| thread.task == self.task);
                let on_node = |view: &View| view.task(self.task)?.footprint.get(node.index()).copied();
                let mut estimates = settled(log).iter().filter_map(on_node);
                has_thread && estimates.any(|on_node| 4 * on_node >= 3 * pages)
            }
            Seen::Read(area) => self.accesses(area, log).any(|accesses| accesses > 0),
            Seen::Unread(area) => {
                let unread = self.accesses(area, log).filter(|accesses| *accesses == 0).count();
                2 * unread > self.accesses(area, log).count()
            }
            Seen::HintFault(area) => log.events.iter().any(|event| {
                matches!(event, Event::HintFault(fault)
                    if fault.task == self.task && self.layout.contains(area, fault.page))
            }),
            Seen::Offline(node) => {
                last.node(node).is_some_and(|view| view.pages == 0 && view.free_pages == 0)
            }
        }
    }

    /// Accesses to the middle of an area, in each later view of a phase with a region there.
    fn accesses(&self, area: Area, log: &PhaseLog) -> impl Iterator<Item = u32> {
        let Placed { start, pages } = self.layout.of(area);
        let middle = Vpn(start.page().0 + pages / 2);
        let regions = settled(log).iter().filter_map(move |view| view.regions.at(self.task, middle));
        regions.map(|region| region.reads + region.writes)
    }
}

/// The later views of a phase.
fn settled(log: &PhaseLog) -> &[View] {
    log.views.get(PLAN_AT..).unwrap_or_default()
}

#[cfg(test)]
mod tests;

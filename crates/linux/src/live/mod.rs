//! A real machine as the epoch loop sees it: processes are watched, and their pages moved.

mod located;

use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use memtide_core::epoch::Host;
use memtide_core::policy::{
    Event, HintFault, Move, Needs, NodeUse, Observation, Refusal, Region, RegionNeeds,
};
use memtide_core::{NodeId, PageSize, TaskId, Time, Vpn};
use rand_core::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use rustix::process::Pid;

use self::located::{Located, runs};
use crate::monitors::{
    self, CLEARED_MAX, Chosen, Found, Hints, Kind, NodeTraffic, SeveralNodes, SoftDirty, spread,
};
use crate::movers::{Mover, nodes_of};
use crate::processes::{self, FORBIDDEN, Process};
use crate::sys::pagemap;
use crate::topology::{Numbers, memory_of};

/// Pages of a region of which it is asked where they lie: at most and at least, and of all regions together, for each takes the kernel
/// thousands of instructions.
const ASKED: u64 = 16;
const ASKED_LEAST: u64 = 2;
const ASKED_IN_ALL: u64 = 512;

/// KiB in a base page.
const PAGE_KIB: u64 = 4;

/// A process is watched once it has lived so long: most end earlier, and to take one in costs more than they do.
const SETTLED: Duration = Duration::from_secs(3);

/// How memory is watched for hint faults.
const FOR_HINTS: RegionNeeds = RegionNeeds {
    sampling: Time::from_ms(50),
    aggregation: Time::from_ms(500),
    regions_max: 300,
    writes: false,
};

/// How often a monitor may fail on end before another one is looked for.
const FAILURES_MAX: u32 = 3;

/// This machine, and the processes that are watched on it.
#[derive(Debug)]
pub struct Live {
    numbers: Numbers,
    monitor: Option<Chosen>,
    /// How often it has failed since it last told something.
    failures: u32,
    /// Whether it has ever told something.
    has_told: bool,
    writes: Option<SoftDirty>,
    hints: Option<Hints>,
    traffic: Option<NodeTraffic>,
    observed: Time,
    mover: Mover,
    watched: Vec<Process>,
    begun: Instant,
    draws: Xoshiro256PlusPlus,
    dry_run: bool,
    /// What went wrong since it was last asked.
    troubles: Vec<String>,
}

/// The task that a process is to a policy.
pub fn task(pid: Pid) -> TaskId {
    TaskId(pid.as_raw_nonzero().get().cast_unsigned())
}

impl Live {
    /// This machine, in whose terms the system has these numbers, watched as a policy needs it, by this monitor or the best there is. With
    /// `dry_run` nothing is moved.
    ///
    /// # Errors
    /// If there is no monitor for what is needed.
    pub fn new(
        numbers: Numbers,
        needs: &Needs,
        wanted: Option<Kind>,
        stall: Duration,
        dry_run: bool,
    ) -> io::Result<Live> {
        let (monitor, writes) = watchers(needs, wanted)?;
        Ok(Live {
            hints: hints(needs, &numbers),
            traffic: NodeTraffic::open().ok(),
            observed: Time::ZERO,
            numbers,
            monitor,
            failures: 0,
            has_told: false,
            writes,
            mover: Mover::new(stall),
            watched: Vec::new(),
            begun: Instant::now(),
            draws: Xoshiro256PlusPlus::seed_from_u64(1),
            dry_run,
            troubles: Vec::new(),
        })
    }

    /// From now on batches may hold a process up for so long, and moves are made unless it is a `dry_run`.
    pub fn set(&mut self, stall: Duration, dry_run: bool) {
        (self.mover, self.dry_run) = (Mover::new(stall), dry_run);
    }

    /// Has memory watched as another policy needs it, by this monitor or the best there is; processes are to be named anew.
    ///
    /// # Errors
    /// If there is no monitor for that. None is left then.
    pub fn set_needs(&mut self, numbers: Numbers, needs: &Needs, wanted: Option<Kind>) -> io::Result<()> {
        self.watched.clear();
        (self.failures, self.has_told) = (0, false);
        self.hints = hints(needs, &numbers);
        self.numbers = numbers;
        // The kernel's means are given back before they are asked for again.
        (self.monitor, self.writes) = (None, None);
        (self.monitor, self.writes) = watchers(needs, wanted)?;
        Ok(())
    }

    /// The processes that are watched.
    pub fn watched(&self) -> &[Process] {
        &self.watched
    }

    /// How memory is watched, if it is, and why not better.
    pub fn monitor(&self) -> Option<(Kind, Option<&str>)> {
        self.monitor.as_ref().map(|chosen| (chosen.kind, chosen.why_not_better.as_deref()))
    }

    /// Whether writes are told apart.
    pub fn tells_writes(&self) -> bool {
        self.writes.is_some()
    }

    /// The node that a page of a process lies on; none if it is not in memory, or on a node that the machine does not have.
    pub fn node_of(&self, process: &Process, page: Vpn) -> Option<NodeId> {
        let nodes = nodes_of(process.pid, &[page.0]).ok()?;
        self.number(nodes.first().copied()??)
    }

    /// What went wrong since the last call.
    pub fn take_troubles(&mut self) -> Vec<String> {
        std::mem::take(&mut self.troubles)
    }

    /// Watches these processes, in the order of their numbers, and no others; those that have just started, later.
    pub fn watch(&mut self, mut processes: Vec<Process>) {
        processes.retain(|process| process.age() >= SETTLED);
        let unchanged =
            processes.iter().map(Process::identity).eq(self.watched.iter().map(Process::identity));
        self.watched = processes;
        if unchanged {
            return;
        }
        if let Some(writes) = &mut self.writes {
            writes.keep(&self.watched);
        }
        if let Some(hints) = &mut self.hints {
            let tasks: Vec<TaskId> = self.watched.iter().map(|process| task(process.pid)).collect();
            hints.keep(&tasks);
        }
        if let Some(Chosen { monitor, .. }) = &mut self.monitor
            && let Err(error) = monitor.watch(&self.watched)
        {
            self.monitor_failed(&error);
        }
    }

    /// Has processes watched anew by the next call; if it has failed again and again, by what can be used then.
    fn monitor_failed(&mut self, error: &io::Error) {
        self.watched.clear();
        let Some(chosen) = &mut self.monitor else { return };
        let before = chosen.kind;
        self.troubles.push(format!("monitor {}: {error}", before.name()));
        self.failures += 1;
        if self.failures < FAILURES_MAX {
            return;
        }
        self.failures = 0;
        match chosen.choose_again(!self.has_told) {
            Ok(()) if chosen.kind == before => {}
            Ok(()) => self.troubles.push(format!("memory is watched by {} from now on", chosen.kind.name())),
            Err(error) => self.troubles.push(format!("memory cannot be watched: {error}")),
        }
    }

    /// How full the machine's nodes are, and what they moved; one whose memory has gone has none.
    fn nodes_use(&self) -> Vec<NodeUse> {
        let traffic = self.traffic.as_ref().map(|counters| counters.read(&self.numbers.nodes));
        let used = (0..).zip(&self.numbers.nodes).map(|(number, id)| {
            let memory = memory_of(*id).unwrap_or_default();
            let pages = |kib: u64| kib / PAGE_KIB;
            NodeUse {
                node: NodeId(number),
                pages: pages(memory.total_kib),
                free_pages: pages(memory.free_kib),
                traffic: traffic.as_ref().and_then(|all| all[usize::from(number)]),
            }
        });
        used.collect()
    }

    /// The machine's number of a node of the system.
    fn number(&self, id: NodeId) -> Option<NodeId> {
        self.numbers.nodes.iter().position(|known| *known == id).map(NodeId::from)
    }

    /// Splits what was found into runs that lie on one node, as far as a page of each of so many parts of a region tells.
    fn locate(
        &mut self,
        process: &Process,
        found: &[Found],
        parts: u64,
        seen: &mut Observation,
    ) -> io::Result<()> {
        let asked: Vec<Vec<u64>> = found.iter().map(|found| self.some_pages(found, parts)).collect();
        let all = asked.concat();
        let nodes = nodes_of(process.pid, &all)?;
        let huge = huge_pages(process.pid);
        let size = |page| if huge(page) { PageSize::Huge } else { PageSize::Base };
        let written = self.written(process, &all);
        let mut located = nodes.iter().zip(&all).zip(written).map(|((id, &page), written)| {
            Some(Located { node: self.number((*id)?)?, size: size(page), written })
        });
        let mut end = 0;
        for (found, asked) in found.iter().zip(&asked) {
            let at: Vec<Option<Located>> = located.by_ref().take(asked.len()).collect();
            for run in runs(found, &at) {
                let Some((start, pages)) = run.whole(end) else { continue };
                let (task, start, Located { node, size, written }) =
                    (task(process.pid), Vpn(start), run.located);
                let (reads, age) = (found.accesses.max(written.into()), found.age);
                let writes = if written { reads } else { 0 };
                seen.push(Region { task, start, pages, size, node, reads, writes, age });
                end = start.0 + pages * size.base_pages();
            }
        }
        Ok(())
    }

    /// What was accessed lately, and where it lies.
    fn look(&mut self, seen: &mut Observation) {
        let Some(Chosen { monitor, .. }) = &mut self.monitor else { return };
        match monitor.read() {
            Ok(all) => {
                (self.failures, self.has_told) = (0, true);
                let regions: usize = all.iter().map(Vec::len).sum();
                let parts = (ASKED_IN_ALL / regions.max(1) as u64).clamp(ASKED_LEAST, ASKED);
                let mut forbidden = None;
                for (process, found) in self.watched.clone().into_iter().zip(all) {
                    let located = self.locate(&process, &found, parts, seen);
                    if located.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
                        forbidden.get_or_insert(process);
                    }
                }
                self.troubles.extend(forbidden.map(|Process { pid, name, .. }| {
                    let pid = pid.as_raw_nonzero();
                    format!("process {pid} ({name}), and perhaps others, may not be looked at: {FORBIDDEN}")
                }));
            }
            Err(error) => self.monitor_failed(&error),
        }
    }

    /// The hint faults that this stands for, later than `since`.
    fn hint_faults(&mut self, seen: &Observation, since: Time) -> Vec<HintFault> {
        let Some(hints) = &mut self.hints else { return Vec::new() };
        let regions: Vec<Region> = seen.iter().collect();
        let mut faults = Vec::new();
        let mut unclear = None;
        for process in &self.watched {
            let task = task(process.pid);
            let (from, to) = (
                regions.partition_point(|region| region.task < task),
                regions.partition_point(|region| region.task <= task),
            );
            match hints.step(process, task, &regions[from..to]) {
                Ok(found) => faults.extend(found),
                Err(SeveralNodes) => _ = unclear.get_or_insert(process),
            }
        }
        self.troubles.extend(unclear.map(|Process { pid, name, .. }| {
            let pid = pid.as_raw_nonzero();
            format!(
                "process {pid} ({name}), and perhaps others, runs on CPUs of several nodes: which of them access a page is not known, and \
                 its pages stay"
            )
        }));
        spread(&mut faults, since, self.observed);
        faults
    }

    /// A process that is too large for its bits to be cleared is not watched in that way.
    fn tell_of_large(&mut self) {
        let by_smaps = self.monitor.as_ref().is_some_and(|chosen| chosen.kind == Kind::Smaps);
        let large = self.watched.iter().find(|process| process.resident_pages > CLEARED_MAX);
        if let Some(process) = large.filter(|_| by_smaps || self.writes.is_some()) {
            let what = if by_smaps { "memory is not watched by smaps" } else { "writes are not watched" };
            self.troubles.push(format!(
                "process {} ({}) has more than {} GiB in memory: its {what}, for that would hold it up",
                process.pid.as_raw_nonzero(),
                process.name,
                CLEARED_MAX >> 18
            ));
        }
    }

    /// Whether each of some pages was written lately; of none, if nobody asks for that.
    fn written(&mut self, process: &Process, pages: &[u64]) -> Vec<bool> {
        let Some(writes) = &mut self.writes else { return vec![false; pages.len()] };
        writes.written(process, pages).unwrap_or_else(|error| {
            self.troubles.push(format!("soft-dirty: {error}"));
            vec![false; pages.len()]
        })
    }

    /// Moves pages of a process, all of one size. A huge page goes whole when its first base page is named; one that is not huge any more
    /// is gone.
    fn carry_out(&mut self, pid: Pid, wanted: &[Move]) -> Vec<Result<(), Refusal>> {
        let named = |wanted: &Move| (wanted.page.0, self.numbers.nodes[wanted.to.index()]);
        if wanted[0].size == PageSize::Base {
            let pages: Vec<(u64, NodeId)> = wanted.iter().map(named).collect();
            return self.mover.move_pages(pid, &pages);
        }
        let huge = huge_pages(pid);
        let there: Vec<bool> = wanted.iter().map(|wanted| huge(wanted.page.0)).collect();
        let pages = wanted.iter().zip(&there).filter(|(_, there)| **there).map(|(wanted, _)| named(wanted));
        let pages: Vec<(u64, NodeId)> = pages.collect();
        let mut moved = self.mover.move_pages(pid, &pages).into_iter();
        let result =
            |there| if there { moved.next().expect("a result for each page") } else { Err(Refusal::Gone) };
        there.into_iter().map(result).collect()
    }

    /// Pages of a region, one drawn from each of so many equal parts.
    fn some_pages(&mut self, found: &Found, parts: u64) -> Vec<u64> {
        let parts = found.pages.min(parts);
        (0..parts)
            .map(|part| {
                let (from, to) = (found.pages * part / parts, found.pages * (part + 1) / parts);
                found.start + from + self.draws.next_u64() % (to - from)
            })
            .collect()
    }
}

/// Tells of a process's base pages whether each is part of a huge one; of none, if its page map may not be read.
fn huge_pages(pid: Pid) -> impl Fn(u64) -> bool {
    let pagemap = File::open(format!("/proc/{}/pagemap", pid.as_raw_nonzero())).ok();
    move |page| pagemap.as_ref().is_some_and(|pagemap| pagemap::is_huge(pagemap, page))
}

/// What watches memory as it is needed.
fn watchers(needs: &Needs, wanted: Option<Kind>) -> io::Result<(Option<Chosen>, Option<SoftDirty>)> {
    let regions = needs.regions.or(needs.hint_faults.then_some(FOR_HINTS));
    let monitor = regions.as_ref().map(|needs| monitors::choose(needs, wanted)).transpose()?;
    let writes = needs.regions.is_some_and(|needs| needs.writes);
    let writes = writes.then(|| SoftDirty::check().map(|()| SoftDirty::default())).transpose()?;
    Ok((monitor, writes))
}

/// What tells of hint faults, if they are needed.
fn hints(needs: &Needs, numbers: &Numbers) -> Option<Hints> {
    needs.hint_faults.then(|| Hints::new(numbers.cpus.clone(), numbers.scan_pages))
}

impl Host for Live {
    fn now(&self) -> Time {
        Time::from_ns(self.begun.elapsed().as_nanos() as f64)
    }

    fn observe(&mut self, _: &Needs, events: &mut Vec<Event>, seen: &mut Observation) {
        seen.nodes_use = self.nodes_use();
        self.tell_of_large();
        self.look(seen);
        let since = events.last().map_or(self.observed, |event| event.time().max(self.observed));
        self.observed = self.now();
        events.extend(self.hint_faults(seen, since).into_iter().map(Event::HintFault));
    }

    fn act(&mut self, wanted: &[Move]) -> Vec<Result<(), Refusal>> {
        let mut results = Vec::with_capacity(wanted.len());
        for run in wanted.chunk_by(|a, b| (a.task, a.size) == (b.task, b.size)) {
            let process = self.watched.iter().find(|process| task(process.pid) == run[0].task);
            let alive = process.filter(|process| {
                processes::one(process.pid).is_some_and(|now| now.identity() == process.identity())
            });
            match alive {
                None => results.extend(run.iter().map(|_| Err(Refusal::Gone))),
                Some(_) if self.dry_run => results.extend(run.iter().map(|_| Err(Refusal::DryRun))),
                Some(process) => results.extend(self.carry_out(process.pid, run)),
            }
        }
        results
    }
}

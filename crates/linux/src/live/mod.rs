//! The real machine as the epoch loop's host: watches processes and moves their pages.

use std::io;
use std::time::{Duration, Instant};

use memtide_core::epoch::Host;
use memtide_core::policy::{
    Action, Answers, Cancellation, Completion, Event, Move, NodeView, Outcome, Page, Planned, Reason,
    Refusal, SensorRefused, Sensors, View,
};
use memtide_core::{NodeId, PageSize, TaskId, Time, Vpn};
use rustix::process::Pid;

use crate::cpu_load::CpuLoad;
use crate::movers::{Moved, Mover, collapse, nodes_of, split};
use crate::own_memory;
use crate::processes::{self, LargeProcesses, Process};
use crate::sensors::regions::Kind;
use crate::sensors::shared_memory::Alias;
use crate::sensors::{Changed, OpenSensors, SensorSetup, Watched};
use crate::sys::pagemap::huge_pages;
use crate::sys::time::thread_time;
use crate::topology::{Numbers, memory_of};
use crate::zones::Zones;

pub use crate::sensors::{Monitoring, task};

/// Base pages passed to the mover at once.
const CHUNK: usize = 1 << 12;

/// What splits or collapses the 2 MiB of a process that begin at a base page.
type Resize = fn(Pid, u64) -> Moved;

/// How base pages of a process are moved.
type MovePages = fn(&mut Mover, Pid, &[(u64, NodeId)]) -> Vec<Moved>;

/// KiB per base page.
const PAGE_KIB: u64 = 4;

/// This machine and its watched processes.
#[derive(Debug)]
pub struct Live {
    sensors: OpenSensors,
    large: LargeProcesses,
    watched: Watched,
    /// Processes whose pages a user's request moves, watched or not.
    requested: Vec<Process>,
    mover: Mover,
    done: Vec<Completion>,
    begun: Instant,
    load: CpuLoad,
    dry_run: bool,
}

impl Live {
    /// The system as this machine, with these numbers, observed as a policy requests; regions by this monitor
    /// or the best available. A batch of moves stalls a process for little longer than `stall`. A `dry_run`
    /// moves nothing.
    ///
    /// # Errors
    /// If a sensor that the policy requires is refused.
    pub fn new(
        numbers: Numbers,
        requests: &Sensors,
        monitor: Option<Kind>,
        stall: Duration,
        dry_run: bool,
    ) -> Result<Live, SensorRefused> {
        let sensors = OpenSensors::new(requests, &SensorSetup { numbers: &numbers, monitor })?;
        let watched = Watched::new(numbers);
        let (requested, done, begun) = (Vec::new(), Vec::new(), Instant::now());
        let (large, load) = (LargeProcesses::default(), CpuLoad::default());
        Ok(Live { sensors, large, watched, requested, mover: Mover::new(stall), done, begun, load, dry_run })
    }

    /// Sets how long a batch may stall a process, and whether moves are made.
    pub fn set(&mut self, stall: Duration, dry_run: bool) {
        (self.mover, self.dry_run) = (Mover::new(stall), dry_run);
    }

    /// Moves this process's heap and stacks to the first of these nodes, by the system's numbers, that has
    /// room. Pages on any of them stay, and all of them in a dry run.
    ///
    /// # Errors
    /// If this process's mappings, or the nodes of their pages, cannot be read.
    pub fn move_own_memory(&mut self, nodes: &[NodeId]) -> io::Result<()> {
        if self.dry_run { Ok(()) } else { own_memory::move_to(nodes, &mut self.mover) }
    }

    /// Observes what another policy requests; the processes must be watched again.
    ///
    /// # Errors
    /// If a sensor that the policy requires is refused. Nothing is observed then.
    pub fn set_sensors(
        &mut self,
        numbers: Numbers,
        requests: &Sensors,
        monitor: Option<Kind>,
    ) -> Result<(), SensorRefused> {
        self.watched.processes.clear();
        // Release kernel resources such as DAMON before they are requested again.
        self.sensors = OpenSensors::default();
        self.sensors = OpenSensors::new(requests, &SensorSetup { numbers: &numbers, monitor })?;
        self.watched.numbers = numbers;
        Ok(())
    }

    /// All processes with at least this many resident base pages, by id, as [`LargeProcesses::read`].
    ///
    /// # Errors
    /// If /proc cannot be read.
    pub fn large_processes(&mut self, least_pages: u64, scan_interval: Duration) -> io::Result<Vec<Process>> {
        self.large.read(least_pages, scan_interval)
    }

    /// The watched processes.
    pub fn watched(&self) -> &[Process] {
        &self.watched.processes
    }

    /// The sensors' current answers.
    pub fn answers(&self) -> &Answers {
        self.sensors.answers()
    }

    /// How regions are monitored; `None` if they are not.
    pub fn monitoring(&self) -> Option<Monitoring<'_>> {
        self.sensors.monitoring()
    }

    /// The node of a page of a process; `None` if it is not resident, or on a node that the machine lacks.
    pub fn node_of(&self, process: &Process, page: Vpn) -> Option<NodeId> {
        let nodes = nodes_of(process.pid, &[page.0]).ok()?;
        self.watched.number(nodes.first().copied()??)
    }

    /// The watched process that a page of another one belongs to, as memory that both map, and its page
    /// there; this process's own page if it shares it with none.
    pub fn owner_of(&self, process: &Process, page: Vpn) -> (Pid, Vpn) {
        let named = self.watched.shared.owner_of(task(process.pid), page.0);
        let owned = named.and_then(|(owner, page)| Some((self.process(owner)?.pid, Vpn(page))));
        owned.unwrap_or((process.pid, page))
    }

    /// Errors since the last call.
    pub fn take_troubles(&mut self) -> Vec<String> {
        std::mem::take(&mut self.watched.troubles)
    }

    /// Replaces the watched processes, sorted by id.
    pub fn watch(&mut self, processes: Vec<Process>) {
        let identities = self.watched.processes.iter().map(Process::identity);
        let unchanged = processes.iter().map(Process::identity).eq(identities);
        self.watched.processes = processes;
        if !unchanged {
            self.sensors.watch(&mut self.watched);
            self.forget_if_lost();
        }
    }

    /// Allows a user's request to move pages of a process until [`end_request`](Live::end_request).
    pub fn begin_request(&mut self, process: Process) {
        self.requested.push(process);
    }

    /// Ends a user's request.
    pub fn end_request(&mut self, pid: Pid) {
        self.requested.retain(|process| process.pid != pid);
    }

    /// Makes the next call of [`watch`](Live::watch) start over if a sensor lost its state.
    fn forget_if_lost(&mut self) {
        if std::mem::take(&mut self.watched.lost) {
            self.watched.processes.clear();
        }
    }

    /// Usage of the machine's nodes; one that is offline has no memory.
    fn node_views(&self) -> Vec<NodeView> {
        // Without the file, every node would count as full, and nothing would move there.
        let zones = Zones::read().unwrap_or_default();
        let nodes = (0..).zip(&self.watched.numbers.nodes).map(|(number, id)| {
            let memory = memory_of(*id).unwrap_or_default();
            let pages = memory.total_kib / PAGE_KIB;
            let free_pages = zones.free_pages(*id).min(pages);
            let per_cpu_pages = zones.free_or_per_cpu_pages(*id).min(pages).saturating_sub(free_pages);
            NodeView { per_cpu_pages, ..NodeView::new(NodeId(number), pages, free_pages) }
        });
        nodes.collect()
    }

    /// The process of a task.
    fn process(&self, id: TaskId) -> Option<&Process> {
        self.watched.processes.iter().chain(&self.requested).find(|process| task(process.pid) == id)
    }

    /// The process of a task, if its pages may be changed; else what to complete actions with.
    fn changeable(&self, task: TaskId) -> Result<Process, Outcome> {
        match self.process(task) {
            None => Err(Outcome::Refused(Refusal::Gone)),
            Some(process) if !is_alive(process) => Err(Outcome::Cancelled(Cancellation::TaskEnded)),
            Some(_) if self.dry_run => Err(Outcome::Refused(Refusal::DryRun)),
            Some(process) => Ok(process.clone()),
        }
    }

    /// Takes an action other than a move.
    fn take_other(&mut self, planned: &Planned) {
        let outcome = match planned.action {
            Action::Split(page) => self.resize(page, PageSize::Base, split),
            Action::Collapse(page) => self.resize(page, PageSize::Huge, collapse),
            _ => Outcome::Refused(Refusal::Unsupported),
        };
        self.complete_all(std::slice::from_ref(planned), outcome);
    }

    /// Splits or collapses 2 MiB of a task, which then have this size.
    fn resize(&mut self, Page { task, page, .. }: Page, size: PageSize, resize: Resize) -> Outcome {
        let process = match self.changeable(task) {
            Ok(process) => process,
            Err(outcome) => return outcome,
        };
        let outcome = resize(process.pid, page.0);
        if outcome.is_ok() {
            let pages = page.0..page.0 + PageSize::Huge.base_pages();
            self.watched.changed.push(Changed { pid: process.pid, pages, node: None, size });
        }
        outcome.into()
    }

    /// Moves pages of a task, all of one size.
    fn move_all(&mut self, task: TaskId, size: PageSize, moves: &[Planned]) {
        let process = match self.changeable(task) {
            Ok(process) => process,
            Err(outcome) => return self.complete_all(moves, outcome),
        };
        let results = self.carry_out(process.pid, size, moves);
        let made = moves.iter().zip(&results).filter(|(_, result)| result.is_ok());
        self.watched.changed.extend(made.map(|(planned, _)| {
            let wanted = expect_move(planned);
            let pages = wanted.head().0..wanted.head().0 + size.base_pages();
            Changed { pid: process.pid, pages, node: Some(wanted.to), size }
        }));
        let is_gone = results.iter().any(|result| matches!(result, Err(Refusal::Gone)));
        if is_gone {
            self.watched.outdated.push(process.pid);
        }
        let ended = is_gone && !is_alive(&process);
        let time = self.now();
        self.done.extend(moves.iter().zip(results).map(|(planned, result)| {
            let outcome = match result {
                Ok(()) => Outcome::MADE,
                Err(Refusal::Gone) if ended => Outcome::Cancelled(Cancellation::TaskEnded),
                Err(why) => Outcome::Refused(why),
            };
            // Built field by field: a clone would be a call for each of tens of thousands of pages.
            let Planned { id, reason, .. } = *planned;
            let planned = Planned { id, action: Action::Move(*expect_move(planned)), reason };
            Completion { time, planned, outcome }
        }));
    }

    /// Completes all of these actions with one outcome.
    fn complete_all(&mut self, actions: &[Planned], outcome: Outcome) {
        let time = self.now();
        self.done.extend(actions.iter().map(|planned| Completion {
            time,
            planned: planned.clone(),
            outcome,
        }));
    }

    /// Moves pages of a process, all of one size, those of shared memory by any process that has them.
    fn carry_out(&mut self, pid: Pid, size: PageSize, moves: &[Planned]) -> Vec<Result<(), Refusal>> {
        let mut results = Vec::with_capacity(moves.len());
        for chunk in moves.chunks(CHUNK) {
            let nodes = &self.watched.numbers.nodes;
            let named = |wanted: &Move| (wanted.page.0, nodes[wanted.to.index()]);
            let pages: Vec<(u64, NodeId)> = chunk.iter().map(expect_move).map(named).collect();
            let mut moved = self.move_present(pid, size, &pages, Mover::move_pages);
            // One user's request does not move pages that are another's, too.
            if chunk.iter().all(|planned| planned.reason != Reason::Request) {
                self.move_shared(pid, size, &pages, &mut moved);
            }
            results.extend(moved);
        }
        results
    }

    /// Moves pages that a process did not move since others have them: by it, and by the others in turn.
    /// Until it is known what new processes share, such pages count as busy.
    fn move_shared(&mut self, pid: Pid, size: PageSize, pages: &[(u64, NodeId)], moved: &mut [Moved]) {
        let owner = task(pid);
        let is_left = |moved: &Moved| matches!(moved, Err(Refusal::NotAllowed | Refusal::Gone));
        let is_shared = |at: &usize| self.watched.shared.is_shared(owner, pages[*at].0);
        let mut left: Vec<usize> =
            (0..pages.len()).filter(|&at| is_left(&moved[at])).filter(is_shared).collect();
        let aliases: Vec<Alias> = self.watched.shared.mapped_with(owner).cloned().collect();
        let own = std::iter::once((pid, None));
        for (pid, alias) in own.chain(aliases.iter().map(|alias| (alias.pid, Some(alias)))) {
            let has = |page| alias.is_none_or(|alias| alias.owned_pages().contains(&page));
            let name = |page| alias.map_or(page, |alias| alias.task_page(page));
            let of: Vec<usize> = left.iter().copied().filter(|&at| has(pages[at].0)).collect();
            let named: Vec<(u64, NodeId)> = of.iter().map(|&at| (name(pages[at].0), pages[at].1)).collect();
            if named.is_empty() {
                continue;
            }
            let results = self.move_present(pid, size, &named, Mover::move_shared_pages);
            of.into_iter().zip(results).for_each(|(at, result)| moved[at] = result);
            left.retain(|&at| moved[at] == Err(Refusal::Gone));
        }
        if !self.watched.shared.knows_all(&self.watched.processes) {
            let refused = moved.iter_mut().filter(|moved| **moved == Err(Refusal::NotAllowed));
            refused.for_each(|moved| *moved = Err(Refusal::Busy));
        }
    }

    /// Moves pages of a process, all of one size. A huge page is moved whole by its first base page; one that
    /// is no longer huge is gone.
    fn move_present(
        &mut self,
        pid: Pid,
        size: PageSize,
        pages: &[(u64, NodeId)],
        by: MovePages,
    ) -> Vec<Moved> {
        if size == PageSize::Base {
            return by(&mut self.mover, pid, pages);
        }
        let huge = huge_pages(pid);
        let there: Vec<bool> = pages.iter().map(|&(page, _)| huge(page)).collect();
        let present: Vec<(u64, NodeId)> =
            pages.iter().zip(&there).filter(|(_, there)| **there).map(|(page, _)| *page).collect();
        let mut moved = by(&mut self.mover, pid, &present).into_iter();
        let result =
            |there| if there { moved.next().expect("a result for each page") } else { Err(Refusal::Gone) };
        there.into_iter().map(result).collect()
    }
}

fn is_alive(process: &Process) -> bool {
    processes::one(process.pid).is_some_and(|now| now.identity() == process.identity())
}

/// The move of an action; `None` for any other action.
fn as_move(planned: &Planned) -> Option<&Move> {
    match &planned.action {
        Action::Move(wanted) => Some(wanted),
        _ => None,
    }
}

/// The move of an action known to be one.
fn expect_move(planned: &Planned) -> &Move {
    as_move(planned).expect("a run of moves")
}

impl Host for Live {
    fn now(&self) -> Time {
        Time::from_ns(self.begun.elapsed().as_nanos() as f64)
    }

    fn processor_time(&self) -> Option<Time> {
        Some(Time::from_ns(thread_time().as_nanos() as f64))
    }

    fn observe(&mut self, view: &mut View, events: &mut Vec<Event>) {
        self.watched.now = self.now();
        view.time = self.watched.now;
        view.nodes = self.node_views();
        view.busy_bp = self.load.busy_bp();
        self.watched.shared.update(&self.watched.processes, self.begun.elapsed());
        self.sensors.fill(&mut self.watched, view, events);
        self.watched.since = self.watched.now;
        self.watched.changed.clear();
        self.watched.outdated.clear();
        self.forget_if_lost();
    }

    fn act(&mut self, actions: &[Planned]) {
        let kind = |planned| as_move(planned).map(|wanted| (wanted.task, wanted.size));
        let mut rest = actions;
        while let Some(first) = rest.first() {
            let of_first = kind(first);
            let alike = rest.iter().take_while(|planned| kind(planned) == of_first).count();
            let (run, after) = rest.split_at(alike);
            match of_first {
                Some((task, size)) => self.move_all(task, size, run),
                None => run.iter().for_each(|planned| self.take_other(planned)),
            }
            rest = after;
        }
        // Events inferred later, such as hint faults, come after these completions.
        self.watched.since = self.now();
    }

    fn completions(&mut self, done: &mut Vec<Completion>) {
        match done.is_empty() {
            // Avoids a copy of tens of thousands of completions.
            true => std::mem::swap(done, &mut self.done),
            false => done.append(&mut self.done),
        }
    }
}

//! Users' requests to move a process's pages between nodes.
//!
//! The daemon steps transfers between epochs, up to 2 MiB at a time, and a transfer has at most one step in
//! flight. Their moves pass the policy's governor, so that one rate bounds both.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use memtide_core::epoch::{Host, Limits, PolicyRunner, Watcher};
use memtide_core::policy::{Completion, Move};
use memtide_core::{ActionId, NodeId};
use memtide_linux::live::Live;
use memtide_linux::movers::{Tally, Transfer};
use memtide_linux::processes::{FORBIDDEN, Process};
use memtide_linux::topology::{Numbers, nodelist};
use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use crate::control::{ClientRequest, Migrate, Reply};
use crate::daemon::{Daemon, may};
use crate::error::DaemonError;
use crate::host::DaemonHost;

/// Maximum concurrent transfers, of which one is root's.
const TRANSFERS_MAX: usize = 8;

/// Interval between progress reports.
const REPORT_INTERVAL: Duration = Duration::from_millis(200);

/// Delay before the next step while moves are held back or in flight.
const RETRY: Duration = Duration::from_millis(20);

/// Maximum time that a step scans for pages to move.
const SKIP_MAX: Duration = Duration::from_millis(20);

/// 1 MB/s in bytes per second.
const MBPS: f64 = 1e6;

/// Progress of a transfer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Share of the process scanned, from 0 to 1.
    pub share: f64,
    /// Pages so far.
    pub tally: Tally,
    /// Time since the start, in seconds.
    pub seconds: f64,
}

/// A transfer limited to its rate.
struct Paced {
    transfer: Transfer,
    /// Moves of its last step without a completion yet.
    in_flight: BTreeSet<ActionId>,
    /// The governor's rate held back moves of the last step.
    held_back: bool,
    rate_mbps: u64,
    begun: Instant,
    /// Time of its next step.
    due: Instant,
    reported: Instant,
}

impl Paced {
    fn new(transfer: Transfer, rate_mbps: u64) -> Paced {
        let now = Instant::now();
        let in_flight = BTreeSet::new();
        Paced { transfer, in_flight, held_back: false, rate_mbps, begun: now, due: now, reported: now }
    }

    fn progress(&self) -> Progress {
        Progress {
            share: self.transfer.share(),
            tally: self.transfer.tally().clone(),
            seconds: self.begun.elapsed().as_secs_f64(),
        }
    }

    /// Requests the next step's moves, unless those of the last one are in flight; false once all is done.
    /// The caller hands the runner's answers to [`record`](Paced::record), then calls [`pace`](Paced::pace).
    fn step(
        &mut self,
        runner: &mut PolicyRunner,
        host: &mut dyn Host,
        watcher: &mut dyn Watcher,
    ) -> io::Result<bool> {
        if !self.in_flight.is_empty() {
            runner.collect(host, watcher);
            return Ok(true);
        }
        let Some(moves) = self.next_moves()? else { return Ok(false) };
        let allowance = runner.governor().allowance_bytes(host.now());
        let (now, later) = moves.split_at(within(&moves, allowance));
        self.transfer.postpone(later);
        self.held_back = !later.is_empty();
        let ids = runner.request(host, watcher, now);
        self.in_flight.extend((ids.start.0..ids.end.0).map(ActionId));
        Ok(true)
    }

    /// The next moves. Memory without pages to move is skipped, for a limited time; `None` once all was
    /// scanned.
    fn next_moves(&mut self) -> io::Result<Option<Vec<Move>>> {
        let until = Instant::now() + SKIP_MAX;
        loop {
            match self.transfer.step()? {
                Some(moves) if moves.is_empty() && Instant::now() < until => {}
                moves => return Ok(moves),
            }
        }
    }

    /// Takes its own completions among those of all transfers.
    fn record(&mut self, answered: &[Completion]) {
        let own = answered.iter().filter(|done| self.in_flight.remove(&done.planned.id));
        let own: Vec<Completion> = own.cloned().collect();
        self.transfer.record(&own);
    }

    /// Sets the time of the next step: when the rate allows the pages moved so far.
    fn pace(&mut self) {
        let moved = self.transfer.tally().moved_pages;
        let bytes = moved as f64 * memtide_core::PAGE_BYTES as f64;
        let paced = self.begun + Duration::from_secs_f64(bytes / (self.rate_mbps as f64 * MBPS));
        let waits = self.held_back || !self.in_flight.is_empty();
        self.due = if waits { paced.max(Instant::now() + RETRY) } else { paced };
    }

    /// Whether a report of progress is due.
    fn reports(&mut self) -> bool {
        let due = self.reported.elapsed() >= REPORT_INTERVAL;
        if due {
            self.reported = Instant::now();
        }
        due
    }
}

/// The number of moves that an allowance covers; the last one may exceed it.
fn within(moves: &[Move], allowance_bytes: Option<u64>) -> usize {
    let Some(mut left) = allowance_bytes else { return moves.len() };
    let fits = |wanted: &&Move| {
        let fits = left > 0;
        left = left.saturating_sub(wanted.size.bytes());
        fits
    };
    moves.iter().take_while(fits).count()
}

/// A transfer requested by a client of the daemon.
struct Client {
    paced: Paced,
    pid: i32,
    uid: u32,
    reply: Sender<Reply>,
}

/// The transfers in progress.
#[derive(Default)]
pub(crate) struct Transfers(VecDeque<Client>);

impl Transfers {
    /// Whether none is in progress.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Admits another transfer of a user, of this process.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn admit(&self, pid: i32, uid: u32) -> Result<(), String> {
        if self.0.iter().any(|other| other.pid == pid) {
            return Err(format!("a request for process {pid} is already running"));
        }
        let of_users = self.0.iter().filter(|other| other.uid != 0).count();
        let is_refused =
            uid != 0 && (of_users >= TRANSFERS_MAX - 1 || self.0.iter().any(|other| other.uid == uid));
        if self.0.len() >= TRANSFERS_MAX || is_refused {
            return Err("too many requests are running; wait for one to end".to_owned());
        }
        Ok(())
    }

    /// Adds an admitted transfer.
    pub fn add(&mut self, transfer: Transfer, rate_mbps: u64, client: &ClientRequest) {
        let pid = transfer.process().pid.as_raw_nonzero().get();
        let paced = Paced::new(transfer, rate_mbps);
        self.0.push_back(Client { paced, pid, uid: client.user.uid, reply: client.reply.clone() });
    }
}

impl<H: DaemonHost> Daemon<H> {
    /// Whether a step of a transfer is due.
    pub(crate) fn step_is_due(&self, now: Instant) -> bool {
        !self.paused && self.transfers.0.iter().any(|client| client.paced.due <= now)
    }

    /// Time of the next step of a transfer, or report; `None` if there is no transfer.
    pub(crate) fn transfer_due(&self) -> Option<Instant> {
        let due = |client: &Client| {
            let report = client.paced.reported + REPORT_INTERVAL;
            if self.paused { report } else { client.paced.due.min(report) }
        };
        self.transfers.0.iter().map(due).min()
    }

    /// Takes a step of each transfer that is due, and reports progress. A transfer whose client has
    /// disconnected ends.
    pub(crate) fn step_transfers(&mut self) {
        for _ in 0..self.transfers.0.len() {
            let Some(mut client) = self.transfers.0.pop_front() else { return };
            match self.step_transfer(&mut client) {
                None => self.transfers.0.push_back(client),
                Some(reply) => {
                    self.host.end_request(client.paced.transfer.process().pid);
                    // The client may have disconnected.
                    let _ = client.reply.send(reply);
                }
            }
        }
    }

    /// Returns the last reply if it is over.
    fn step_transfer(&mut self, client: &mut Client) -> Option<Reply> {
        let Client { paced, pid, reply, .. } = client;
        if !self.paused && paced.due <= Instant::now() {
            match paced.step(&mut self.runner, &mut self.host, &mut self.watcher) {
                Ok(true) => {
                    let answered = self.runner.take_answered();
                    self.transfers.0.iter_mut().for_each(|other| other.paced.record(&answered));
                    paced.record(&answered);
                    paced.pace();
                }
                Ok(false) => return Some(Reply::Done(value(&paced.progress()))),
                Err(error) => return Some(Reply::Refused(format!("process {pid}: {error}"))),
            }
        }
        let reported = !paced.reports() || reply.send(Reply::Progress(value(&paced.progress()))).is_ok();
        (!reported).then(|| Reply::Refused("the client disconnected".to_owned()))
    }
}

fn value(progress: &Progress) -> serde_json::Value {
    serde_json::to_value(progress).expect("numbers and strings")
}

/// The process that a user's request names.
///
/// # Errors
/// If there is none, or the user may not access it; the message does not say which.
pub(crate) fn process_of(
    host: &impl DaemonHost,
    pid: i32,
    may_access: impl Fn(&Process) -> bool,
) -> Result<Process, String> {
    let process = (pid > 0).then(|| Pid::from_raw(pid)).flatten().and_then(|pid| host.process(pid));
    process.filter(may_access).ok_or_else(|| format!("process {pid} does not exist or is not yours"))
}

/// The transfer for a request. `nodes` are the system's numbers of the machine's nodes.
///
/// # Errors
/// What is wrong with the request, or why the process's memory cannot be read.
pub(crate) fn transfer(
    host: &impl DaemonHost,
    process: Process,
    request: &Migrate,
    nodes: &[NodeId],
) -> Result<Transfer, DaemonError> {
    let (from, to) = self::nodes(request, nodes)?;
    let number = |id: NodeId| nodes.iter().position(|known| *known == id).map(NodeId::from);
    let numbers = |ids: Vec<NodeId>| ids.into_iter().filter_map(number).collect();
    let pid = request.pid;
    let memory = host.memory(&process);
    Transfer::new(process, memory, nodes.to_vec(), numbers(from), numbers(to)).map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::PermissionDenied => format!("{error}; {FORBIDDEN}"),
            _ => error.to_string(),
        };
        DaemonError::Process { pid, why }
    })
}

/// A request's source and target nodes, on a system with these nodes.
///
/// # Errors
/// What is wrong with the request.
pub fn nodes(request: &Migrate, nodes: &[NodeId]) -> Result<(Vec<NodeId>, Vec<NodeId>), DaemonError> {
    let there: Vec<u16> = nodes.iter().map(|node| node.0.into()).collect();
    let named = |field: &'static str, list: &str| -> Result<Vec<NodeId>, DaemonError> {
        let numbers = nodelist::numbers(list, &there).map_err(|why| DaemonError::NodeList { field, why })?;
        Ok(numbers.into_iter().map(|number| NodeId::from(usize::from(number))).collect())
    };
    let (from, to) = (named("from", &request.from)?, named("to", &request.to)?);
    if let Some(both) = from.iter().find(|node| to.contains(node)) {
        return Err(DaemonError::SameNode(*both));
    }
    if request.max_rate_mbps == 0 {
        return Err(DaemonError::NoRate);
    }
    Ok((from, to))
}

/// Moves pages without a daemon while `report`, called every 200 ms, returns true. A batch of moves stalls
/// the process for little longer than `stall`. `nodes` are the system's nodes.
///
/// # Errors
/// What is wrong with the request; or why it ended early, and its progress at that time.
pub fn run(
    request: &Migrate,
    uid: u32,
    nodes: &[NodeId],
    stall: Duration,
    mut report: impl FnMut(&Progress) -> bool,
) -> Result<Progress, (Progress, Box<DaemonError>)> {
    let early = |error| (Progress::default(), Box::new(error));
    let numbers = Numbers { nodes: nodes.to_vec(), cpus: Vec::new(), scan_pages: 0 };
    let policy = memtide_policies::no_migration();
    let mut live = Live::new(numbers, &policy.sensors(), None, stall, false).map_err(|e| early(e.into()))?;
    // The kernel checks the other ptrace(2) conditions.
    let process = process_of(&live, request.pid, |found| may(uid, found.uid))
        .map_err(|why| early(DaemonError::NoProcess(why)))?;
    live.begin_request(process.clone());
    // Limited by its own rate alone.
    let mut runner = PolicyRunner::new(policy, Limits::default());
    let mut paced =
        Paced::new(transfer(&live, process, request, nodes).map_err(early)?, request.max_rate_mbps);
    loop {
        match paced.step(&mut runner, &mut live, &mut ()) {
            Ok(true) => {
                paced.record(&runner.take_answered());
                paced.pace();
            }
            Ok(false) => return Ok(paced.progress()),
            Err(error) => {
                let why = error.to_string();
                return Err((paced.progress(), Box::new(DaemonError::Process { pid: request.pid, why })));
            }
        }
        loop {
            if paced.reports() && !report(&paced.progress()) {
                return Err((paced.progress(), Box::new(DaemonError::Stopped)));
            }
            let left = paced.due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            thread::sleep(left.min(REPORT_INTERVAL));
        }
    }
}

//! Moving what a process has on some nodes, for those who ask for it.

use std::io;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use memtide_core::NodeId;
use memtide_linux::movers::{Tally, Transfer};
use memtide_linux::processes::{self, FORBIDDEN, Process};
use memtide_linux::topology::nodelist;
use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use crate::control::{Migrate, Reply};
use crate::error::DaemonError;

/// Transfers at a time.
const TRANSFERS_MAX: usize = 8;

/// How often it is told how far it is.
const REPORT_INTERVAL: Duration = Duration::from_millis(200);

/// Bytes a second of 1 MB/s.
const MBPS: f64 = 1e6;

/// How far a transfer is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// How much was looked at, from 0 to 1.
    pub share: f64,
    /// What was done.
    pub tally: Tally,
    /// How long it has taken.
    pub seconds: f64,
}

/// The transfers under way, by process and by who asked.
#[derive(Clone, Debug, Default)]
pub struct Transfers(Arc<Mutex<Vec<(i32, u32)>>>);

impl Transfers {
    /// Moves pages in a thread of its own, as long as somebody takes the replies.
    ///
    /// # Errors
    /// Why it does not, for whoever asks.
    pub fn start(
        &self,
        transfer: Transfer,
        asked: &Migrate,
        uid: u32,
        reply: Sender<Reply>,
    ) -> Result<(), String> {
        let (pid, rate) = (asked.pid, asked.max_rate_mbps);
        self.admit(pid, uid)?;
        let under_way = self.clone();
        let started = thread::Builder::new().spawn(move || {
            let report = |progress: &Progress| reply.send(Reply::Progress(value(progress))).is_ok();
            let done = match run(transfer, rate, report) {
                Ok(progress) => Reply::Done(value(&progress)),
                Err((_, why)) => Reply::Refused(format!("process {pid}: {why}")),
            };
            under_way.release(pid);
            // Whoever asked may have gone.
            let _ = reply.send(done);
        });
        started.map(|_| ()).map_err(|error| {
            self.release(pid);
            error.to_string()
        })
    }

    fn admit(&self, pid: i32, uid: u32) -> Result<(), String> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.iter().any(|&(other, _)| other == pid) {
            return Err(format!("pages of process {pid} are being moved already"));
        }
        if all.len() >= TRANSFERS_MAX || (uid != 0 && all.iter().any(|&(_, other)| other == uid)) {
            return Err("too many are being moved already; wait for one to end".to_owned());
        }
        all.push((pid, uid));
        Ok(())
    }

    fn release(&self, pid: i32) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|&(other, _)| other != pid);
    }
}

fn value(progress: &Progress) -> serde_json::Value {
    serde_json::to_value(progress).expect("numbers under words")
}

/// The process that a user asks about.
///
/// # Errors
/// If there is none, or it is another user's: whoever asks is not told which.
pub fn process_of(pid: i32, uid: u32) -> Result<Process, String> {
    let process = (pid > 0).then(|| Pid::from_raw(pid)).flatten().and_then(processes::one);
    let process = process.filter(|process| uid == 0 || uid == process.uid);
    process.ok_or_else(|| format!("process {pid} is not there, or not yours"))
}

/// A transfer as it is asked for, on a system with these nodes.
///
/// # Errors
/// What is wrong with the request, or why the process cannot be touched.
pub fn transfer(
    process: Process,
    asked: &Migrate,
    nodes: &[NodeId],
    stall: Duration,
) -> Result<Transfer, DaemonError> {
    let (from, to) = self::nodes(asked, nodes)?;
    let pid = asked.pid;
    Transfer::new(process, from, to, stall).map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::PermissionDenied => format!("{error}; {FORBIDDEN}"),
            _ => error.to_string(),
        };
        DaemonError::Process { pid, why }
    })
}

/// The nodes that pages are to leave, and those that they are to go to, on a system with these nodes.
///
/// # Errors
/// What is wrong with the request.
pub fn nodes(asked: &Migrate, nodes: &[NodeId]) -> Result<(Vec<NodeId>, Vec<NodeId>), DaemonError> {
    let there: Vec<u16> = nodes.iter().map(|node| node.0.into()).collect();
    let named = |field: &'static str, list: &str| -> Result<Vec<NodeId>, DaemonError> {
        let numbers = nodelist::numbers(list, &there).map_err(|why| DaemonError::NodeList { field, why })?;
        Ok(numbers.into_iter().map(|number| NodeId::from(usize::from(number))).collect())
    };
    let (from, to) = (named("from", &asked.from)?, named("to", &asked.to)?);
    if let Some(both) = from.iter().find(|node| to.contains(node)) {
        return Err(DaemonError::SameNode(*both));
    }
    if asked.max_rate_mbps == 0 {
        return Err(DaemonError::NoRate);
    }
    Ok((from, to))
}

/// Moves pages at a rate as long as `report`, called every 200 ms, returns true.
///
/// # Errors
/// Why it ended early, and how far it was.
pub fn run(
    mut transfer: Transfer,
    rate_mbps: u64,
    mut report: impl FnMut(&Progress) -> bool,
) -> Result<Progress, (Progress, io::Error)> {
    let begun = Instant::now();
    let (mut bytes, mut reported) = (0, begun);
    let progress = |transfer: &Transfer| Progress {
        share: transfer.share(),
        tally: transfer.tally().clone(),
        seconds: begun.elapsed().as_secs_f64(),
    };
    loop {
        match transfer.step() {
            Ok(Some(moved)) => bytes += moved,
            Ok(None) => return Ok(progress(&transfer)),
            Err(error) => return Err((progress(&transfer), error)),
        }
        let due = begun + Duration::from_secs_f64(bytes as f64 / (rate_mbps as f64 * MBPS));
        loop {
            if reported.elapsed() >= REPORT_INTERVAL {
                reported = Instant::now();
                if !report(&progress(&transfer)) {
                    return Err((progress(&transfer), io::ErrorKind::Interrupted.into()));
                }
            }
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            thread::sleep(left.min(REPORT_INTERVAL));
        }
    }
}

//! The daemon's status replies.

use std::collections::BTreeMap;

use memtide_core::policy::Answer;
use serde::{Deserialize, Serialize};

/// Reply to `memtide status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The daemon's process id.
    pub pid: i32,
    /// Its configuration file; `None` for defaults.
    pub config: Option<String>,
    /// The migration policy.
    pub policy: String,
    /// The monitor, if memory is monitored.
    pub monitor: Option<String>,
    /// Why no better monitor is used, if there is one.
    pub why_not_better: Option<String>,
    /// Whether writes are counted separately.
    pub tells_writes: bool,
    /// The answer for each sensor that the policy requests: observed, inferred or refused, and why.
    #[serde(default)]
    pub sensors: Vec<(String, Answer)>,
    /// Whether migration is paused.
    pub paused: bool,
    /// Whether moves are only logged.
    pub dry_run: bool,
    /// Number of epochs.
    pub epochs: u64,
    /// Time since the daemon's start, in seconds.
    pub uptime_s: f64,
    /// Processor time of the daemon since then, in seconds, if it is known.
    #[serde(default)]
    pub processor_s: Option<f64>,
    /// The journal's file, if it is being written.
    pub journal: Option<String>,
    /// The nodes.
    pub nodes: Vec<NodeStatus>,
    /// Base pages moved, by source and target node.
    pub moved: Vec<(String, String, u64)>,
    /// Moves that were not made, by reason.
    pub refused: BTreeMap<String, u64>,
    /// The last moves, newest first, of the processes that the client may see.
    #[serde(default)]
    pub recent: Vec<RecentMoves>,
    /// Recent errors, oldest first; for root and the daemon's own user.
    pub troubles: Vec<Trouble>,
    /// The watched processes that the client may see.
    pub processes: Vec<WatchedProcess>,
}

/// A node in the last epoch; before the first one, its current state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Name.
    pub name: String,
    /// Tier, 0 the fastest.
    #[serde(default)]
    pub tier: usize,
    /// Total and free memory, in MiB.
    pub memory: Option<(u64, u64)>,
    /// Reads and writes in the last epoch, in MB/s, if counted.
    pub traffic_mbps: Option<(f64, f64)>,
    /// Share of the sampled accesses of the last epochs, in percent, if any were sampled.
    #[serde(default)]
    pub accesses_percent: Option<f64>,
}

/// Moves of an epoch with the same process, nodes, reason and outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecentMoves {
    /// Process id.
    pub pid: u32,
    /// Its program's name.
    pub name: String,
    /// Source node.
    pub from: String,
    /// Target node.
    pub to: String,
    /// The reason.
    pub reason: String,
    /// Why they were not made, if they were not.
    pub refused: Option<String>,
    /// Base pages.
    pub pages: u64,
    /// Time since the last of them, in seconds.
    pub seconds_ago: f64,
}

/// An error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trouble {
    /// Time since its last occurrence, in seconds.
    pub seconds_ago: f64,
    /// The message.
    pub what: String,
}

/// A watched process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WatchedProcess {
    /// Process id.
    pub pid: i32,
    /// Program name.
    pub name: String,
    /// User.
    pub uid: u32,
    /// Resident size in MiB.
    pub resident_mib: u64,
    /// Base pages moved.
    pub moved_pages: u64,
    /// Base pages on each node, from a sample of pages per region in the last epoch; `None` before it is
    /// observed.
    pub pages: Option<Vec<u64>>,
    /// Share of its sampled accesses on each node, in percent, if any were sampled.
    #[serde(default)]
    pub accesses_percent: Option<Vec<f64>>,
}

/// Reply to `memtide why`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Why {
    /// The page's node.
    pub node: Option<String>,
    /// The process that it belongs to, if that is another one that maps the same memory.
    pub owner: Option<i32>,
    /// Its region when last observed: first address, base pages, reads, writes, age.
    pub region: Option<(u64, u64, u32, u32, u32)>,
    /// The last decision about it.
    pub last: Option<Last>,
}

/// A decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Last {
    /// Source node.
    pub from: String,
    /// Target node.
    pub to: String,
    /// The reason.
    pub reason: String,
    /// Why it was not made, if it was not.
    pub refused: Option<String>,
    /// Time since the decision, in seconds.
    pub seconds_ago: f64,
}

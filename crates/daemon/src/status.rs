//! What the daemon tells of itself.

use std::collections::BTreeMap;

use memtide_core::policy::Answer;
use serde::{Deserialize, Serialize};

/// `memtide status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The daemon's process.
    pub pid: i32,
    /// Its configuration, unless it has defaults.
    pub config: Option<String>,
    /// The migration policy.
    pub policy: String,
    /// How memory is watched, if it is.
    pub monitor: Option<String>,
    /// Why not by a better monitor, if there is one.
    pub why_not_better: Option<String>,
    /// Whether writes are told apart.
    pub tells_writes: bool,
    /// How each sensor that the policy asked for is answered: observed, inferred or refused, and why.
    #[serde(default)]
    pub sensors: Vec<(String, Answer)>,
    /// Whether nothing is to move for now.
    pub paused: bool,
    /// Whether nothing is moved, only told.
    pub dry_run: bool,
    /// Epochs so far.
    pub epochs: u64,
    /// Since the daemon began.
    pub uptime_s: f64,
    /// The journal's file, if there is one that goes on.
    pub journal: Option<String>,
    /// The nodes.
    pub nodes: Vec<NodeStatus>,
    /// Base pages moved, by the nodes they went from and to.
    pub moved: Vec<(String, String, u64)>,
    /// Moves that were not made, by reason.
    pub refused: BTreeMap<String, u64>,
    /// What went wrong lately, oldest first; told to root and the daemon's own user.
    pub troubles: Vec<Trouble>,
    /// The processes that are watched and that the asker may see.
    pub processes: Vec<WatchedProcess>,
}

/// A node, as the last epoch saw it; before the first one, as it is now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// What it has and what of it is free, in MiB.
    pub memory: Option<(u64, u64)>,
    /// What was read from it and written to it in the last epoch, in MB/s, where something counts it.
    pub traffic_mbps: Option<(f64, f64)>,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trouble {
    /// How long ago, the last time.
    pub seconds_ago: f64,
    /// What.
    pub what: String,
}

/// A process that is watched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchedProcess {
    /// Its number.
    pub pid: i32,
    /// Its name.
    pub name: String,
    /// Its user.
    pub uid: u32,
    /// What it has in memory.
    pub resident_mib: u64,
    /// Base pages of it that were moved.
    pub moved_pages: u64,
    /// Base pages on each node, by the regions of the last epoch, of which a few pages each are looked up; none before it is seen.
    pub pages: Option<Vec<u64>>,
}

/// `memtide why`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Why {
    /// Where the page lies.
    pub node: Option<String>,
    /// Its region when it was last seen: first address, base pages, reads, writes, age.
    pub region: Option<(u64, u64, u32, u32, u32)>,
    /// The last decision about it.
    pub last: Option<Last>,
}

/// A decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Last {
    /// Where it lay.
    pub from: String,
    /// Where it was to go.
    pub to: String,
    /// Why.
    pub reason: String,
    /// Why it did not, if it did not.
    pub refused: Option<String>,
    /// How long ago.
    pub seconds_ago: f64,
}

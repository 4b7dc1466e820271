//! Migration: what a policy needs to see, the events it gets, the moves it plans and what became of them.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::observation::Observation;
use crate::ids::{CpuId, NodeId, TaskId, ThreadId};
use crate::units::{PageSize, Time, Vpn};

/// Moves pages after they were placed. It is given the machine when it is made.
pub trait Migration: Send {
    /// What it needs to see. Asked once, before the first epoch.
    fn needs(&self) -> Needs;

    /// Takes events in and adds the moves they call for. The events of one slice are concurrent: none of them could
    /// see what another one led to.
    fn on_events(&mut self, events: &[Event], plan: &mut Plan);

    /// Adds the moves that an epoch's observation calls for.
    fn decide(&mut self, seen: &Observation, plan: &mut Plan);

    /// What it remembers, as text for [`resume`](Migration::resume); empty if it remembers nothing.
    fn state(&self) -> String {
        String::new()
    }

    /// Takes up what one of the same name and parameters, made for the same machine, remembered. From then on both decide alike.
    ///
    /// # Errors
    /// Why the text is no such state.
    fn resume(&mut self, state: &str) -> Result<(), String> {
        if state.is_empty() { Ok(()) } else { Err("this policy remembers nothing".to_owned()) }
    }
}

/// What a migration policy needs to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// NUMA hint faults: pages are unmapped now and then, so that the next access to each tells who made it. How fast
    /// is the machine's affair ([`Kernel`](crate::machine::Kernel)'s scan period and size).
    pub hint_faults: bool,
    /// Access counts by region, if any.
    pub regions: Option<RegionNeeds>,
    /// When events reach the policy.
    pub delivery: Delivery,
    /// Time between two decisions.
    pub epoch: Time,
}

/// How access counts by region are to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionNeeds {
    /// Time between two samples of a region.
    pub sampling: Time,
    /// Time over which samples are summed up; at least `sampling`, at most the epoch.
    pub aggregation: Time,
    /// Regions that there may be at most.
    pub regions_max: u32,
    /// Whether writes are to be told apart; if not, a host need not pay for that, and they may come out as 0.
    pub writes: bool,
}

/// When events reach a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// One at a time in the fault itself, and its moves are made before the thread goes on: for a policy that is part
    /// of the kernel.
    InKernel,
    /// Batched and late, once an epoch, as a process outside the kernel gets them.
    Deployable,
}

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A thread accessed a page that the scanner had unmapped.
    HintFault(HintFault),
    /// What became of a move.
    Outcome(Outcome),
}

impl Event {
    /// When it happened.
    pub fn time(&self) -> Time {
        match self {
            Event::HintFault(fault) => fault.time,
            Event::Outcome(outcome) => outcome.time,
        }
    }
}

/// An access to a page that the scanner had unmapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HintFault {
    /// When.
    pub time: Time,
    /// Whose page it is.
    pub task: TaskId,
    /// Who accessed it.
    pub thread: ThreadId,
    /// On which CPU.
    pub cpu: CpuId,
    /// The page; the first base page of a huge one.
    pub page: Vpn,
    /// Its size.
    pub size: PageSize,
    /// Where it lies.
    pub node: NodeId,
    /// A store if true, else a load.
    pub write: bool,
    /// How often the scanner has gone through the whole of the task's memory so far (Linux's `numa_scan_seq`).
    pub pass: u32,
}

/// What a policy wants done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Pages to move, most wanted first.
    pub moves: Vec<Move>,
}

/// A page to be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Move {
    /// Whose page it is.
    pub task: TaskId,
    /// The page; the first base page of a huge one.
    pub page: Vpn,
    /// Its size.
    pub size: PageSize,
    /// Where it lies, as far as the policy knows.
    pub from: NodeId,
    /// Where it is to go.
    pub to: NodeId,
    /// Why.
    pub reason: Reason,
}

/// Why a page is to be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// CPUs of the other node access it.
    Locality,
    /// It is accessed often, and lies on slow memory.
    Hot,
    /// It is not accessed, and lies on fast memory.
    Cold,
    /// It is accessed less than another page that is to have its place.
    MakeRoom,
    /// Somebody asked for it.
    Request,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Locality => "locality",
            Reason::Hot => "hot",
            Reason::Cold => "cold",
            Reason::MakeRoom => "make-room",
            Reason::Request => "request",
        })
    }
}

/// What became of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// When that was known.
    pub time: Time,
    /// The move.
    pub wanted: Move,
    /// Whether it was made, or why not.
    pub result: Result<(), Refusal>,
}

/// Why a move was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Refusal {
    /// The plan has named the page before.
    Duplicate,
    /// The page is there already.
    AlreadyThere,
    /// The bytes a second that may move are used up.
    RateLimited,
    /// The moves that an epoch may have are used up.
    OverCap,
    /// The node has no free memory above its watermark.
    NoRoom,
    /// There is no such page any more.
    Gone,
    /// The page is pinned or is being moved.
    Busy,
    /// The task may not have pages there.
    NotAllowed,
    /// It moved the other way a short time ago.
    Cooling,
    /// Nothing is to be moved, only told.
    DryRun,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Duplicate => "duplicate",
            Refusal::AlreadyThere => "already-there",
            Refusal::RateLimited => "rate-limited",
            Refusal::OverCap => "over-cap",
            Refusal::NoRoom => "no-room",
            Refusal::Gone => "gone",
            Refusal::Busy => "busy",
            Refusal::NotAllowed => "not-allowed",
            Refusal::Cooling => "cooling",
            Refusal::DryRun => "dry-run",
        })
    }
}

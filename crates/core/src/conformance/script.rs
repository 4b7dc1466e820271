//! The script: a program and a plan for each phase, and the outcome required of every host.
//!
//! ```text
//! epoch of a phase   0                 PLAN_AT                      EPOCHS - 1
//! program            steps, then reads of the hot area until the phase ends
//! policy                               plans                        checks what came
//! ```
//!
//! The policy counts epochs; the program follows by time (in the simulator) or is driven by the test that
//! runs the epochs.

use std::num::NonZeroU16;

use crate::ids::NodeId;
use crate::policy::{Cancellation, Outcome, Refusal};

/// Epochs of a phase.
pub const EPOCHS: usize = 10;

/// The epoch of a phase in which the policy plans.
pub const PLAN_AT: usize = 5;

/// Base pages of the small areas.
pub const AREA_PAGES: u64 = 1024;

/// The initial node of the program's pages.
pub const FAST: NodeId = NodeId(0);

/// The target node; it has fewer free pages than [`Area::Large`].
pub const SLOW: NodeId = NodeId(1);

/// A mapping of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    /// Read repeatedly.
    Hot,
    /// Written once.
    Idle,
    /// Larger than the free memory of [`SLOW`], smaller than that of [`FAST`].
    Large,
    /// Never mapped.
    Nowhere,
}

/// Step of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Maps an area and writes each of its pages once; they are placed on [`FAST`].
    Fill(Area),
    /// Unmaps an area.
    Unmap(Area),
    /// The test takes [`SLOW`] offline.
    UnplugSlow,
    /// Ends, in the epoch of the plan, after the plan is made and before it is performed.
    EndUnderway,
}

/// What the policy plans: moves of the first pages of an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moves {
    /// The area.
    pub area: Area,
    /// Number of base pages, from the first; all of them if the area has fewer.
    pub pages: u64,
    /// Target node.
    pub to: NodeId,
}

/// How often an outcome must occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// Exactly this often.
    Exactly(u64),
    /// At least once.
    Some,
    /// Any number of times, including none.
    Any,
}

/// A phase.
#[derive(Clone, Copy, Debug)]
pub struct Phase {
    /// Its name.
    pub name: &'static str,
    /// The program's steps at its start.
    pub steps: &'static [Step],
    /// The policy's plan.
    pub plan: &'static [Moves],
    /// Ways of the last-level cache that the policy plans for the task, too.
    pub quota_ways: Option<NonZeroU16>,
    /// All outcomes of the plan.
    pub outcomes: &'static [(Outcome, Times)],
    /// Required observations at the end of the phase.
    pub seen: &'static [Seen],
}

/// A required observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The task's start was an event.
    TaskStarted,
    /// The task's end was an event, and the view no longer contains the task.
    TaskEnded,
    /// The last view has the task's thread, and a later view has at least this area's pages on this node. A
    /// quarter may be missing: hosts estimate from samples, drawn again for each view.
    Footprint(Area, NodeId),
    /// At least one later view shows reads of the area's regions.
    Read(Area),
    /// Most later views show neither reads nor writes of the area's regions: a sampled region may span two
    /// areas.
    Unread(Area),
    /// A hint fault reported an access to the area.
    HintFault(Area),
    /// The node has no memory.
    Offline(NodeId),
}

const fn all(area: Area, to: NodeId) -> Moves {
    Moves { area, pages: u64::MAX, to }
}

/// The script, the same for every host.
pub const SCRIPT: &[Phase] = &[
    Phase {
        name: "pages are placed, and the task is seen",
        steps: &[Step::Fill(Area::Hot), Step::Fill(Area::Idle)],
        plan: &[],
        quota_ways: None,
        outcomes: &[],
        seen: &[Seen::TaskStarted, Seen::Footprint(Area::Idle, FAST)],
    },
    Phase {
        name: "samples and hint faults tell the hot area from the idle one",
        steps: &[],
        plan: &[],
        quota_ways: None,
        outcomes: &[],
        seen: &[Seen::Read(Area::Hot), Seen::Unread(Area::Idle), Seen::HintFault(Area::Hot)],
    },
    Phase {
        name: "moves are made",
        steps: &[],
        plan: &[all(Area::Idle, SLOW)],
        quota_ways: None,
        outcomes: &[(Outcome::MADE, Times::Exactly(AREA_PAGES))],
        seen: &[Seen::Footprint(Area::Idle, SLOW)],
    },
    Phase {
        name: "what is there already is refused",
        steps: &[],
        plan: &[all(Area::Idle, SLOW)],
        quota_ways: None,
        outcomes: &[(Outcome::Refused(Refusal::AlreadyThere), Times::Exactly(AREA_PAGES))],
        seen: &[],
    },
    Phase {
        name: "what is not mapped is gone",
        steps: &[],
        plan: &[all(Area::Nowhere, SLOW)],
        quota_ways: None,
        outcomes: &[(Outcome::Refused(Refusal::Gone), Times::Exactly(AREA_PAGES))],
        seen: &[],
    },
    Phase {
        name: "a page that is named twice moves once",
        steps: &[],
        plan: &[
            Moves { area: Area::Idle, pages: 8, to: FAST },
            Moves { area: Area::Idle, pages: 8, to: FAST },
        ],
        quota_ways: None,
        outcomes: &[
            (Outcome::MADE, Times::Exactly(8)),
            (Outcome::Refused(Refusal::Duplicate), Times::Exactly(8)),
        ],
        seen: &[],
    },
    Phase {
        name: "a full node refuses what is too much",
        steps: &[Step::Fill(Area::Large)],
        plan: &[all(Area::Large, SLOW)],
        quota_ways: None,
        outcomes: &[(Outcome::MADE, Times::Some), (Outcome::Refused(Refusal::NoRoom), Times::Some)],
        seen: &[],
    },
    Phase {
        name: "unmapped pages leave their node, and the rest comes back",
        steps: &[Step::Unmap(Area::Large)],
        plan: &[all(Area::Idle, FAST)],
        quota_ways: None,
        outcomes: &[
            (Outcome::MADE, Times::Exactly(AREA_PAGES - 8)),
            (Outcome::Refused(Refusal::AlreadyThere), Times::Exactly(8)),
        ],
        seen: &[Seen::Footprint(Area::Idle, FAST)],
    },
    Phase {
        name: "a cache quota is set, or the host has none",
        steps: &[],
        plan: &[],
        quota_ways: NonZeroU16::new(1),
        outcomes: &[(Outcome::MADE, Times::Any), (Outcome::Refused(Refusal::Unsupported), Times::Any)],
        seen: &[Seen::Footprint(Area::Idle, FAST)],
    },
    Phase {
        name: "a task that ends cancels its moves",
        steps: &[Step::EndUnderway],
        plan: &[all(Area::Idle, SLOW)],
        quota_ways: None,
        outcomes: &[(Outcome::Cancelled(Cancellation::TaskEnded), Times::Some), (Outcome::MADE, Times::Any)],
        seen: &[Seen::TaskEnded],
    },
];

/// The script for unplugging a node, run separately with its own task.
pub const UNPLUG: &[Phase] = &[
    Phase {
        name: "pages are placed",
        steps: &[Step::Fill(Area::Hot), Step::Fill(Area::Idle)],
        plan: &[],
        quota_ways: None,
        outcomes: &[],
        seen: &[Seen::Footprint(Area::Idle, FAST)],
    },
    Phase {
        name: "a node that is offline takes no pages",
        steps: &[Step::UnplugSlow],
        plan: &[all(Area::Idle, SLOW)],
        quota_ways: None,
        outcomes: &[(Outcome::Refused(Refusal::NodeOffline), Times::Exactly(AREA_PAGES))],
        seen: &[Seen::Offline(SLOW), Seen::Footprint(Area::Idle, FAST)],
    },
];

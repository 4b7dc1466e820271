//! The script: a program and a plan for each phase, and what must come of it on every host.
//!
//! ```text
//! epoch of a phase   0                 PLAN_AT                      EPOCHS - 1
//! program            steps, then reads of the hot area until the phase ends
//! policy                               plans                        checks what came
//! ```
//!
//! The policy counts epochs; the program keeps pace by time (in the simulator) or is driven by the test that
//! runs the epochs.

use crate::ids::NodeId;
use crate::policy::{Cancellation, Outcome, Refusal};

/// Epochs of a phase.
pub const EPOCHS: usize = 10;

/// The epoch of a phase in which the policy plans.
pub const PLAN_AT: usize = 5;

/// Base pages of the small areas.
pub const AREA_PAGES: u64 = 1024;

/// The node that the program's pages are on at first.
pub const FAST: NodeId = NodeId(0);

/// The node that they are moved to; it has less room than [`Area::Large`] has pages.
pub const SLOW: NodeId = NodeId(1);

/// A mapping of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    /// Read again and again.
    Hot,
    /// Written once.
    Idle,
    /// Larger than the free memory of [`SLOW`], smaller than that of [`FAST`].
    Large,
    /// Never mapped.
    Nowhere,
}

/// What the program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Maps an area and writes each of its pages once; they come to be on [`FAST`].
    Fill(Area),
    /// Unmaps an area.
    Unmap(Area),
    /// Whoever runs the script takes [`SLOW`] offline.
    UnplugSlow,
    /// Ends, in the epoch of the plan, after the plan was made and before it can be carried out.
    EndUnderway,
}

/// What the policy plans: moves of the first pages of an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moves {
    /// The area.
    pub area: Area,
    /// Its first base pages; all of them if the area has fewer.
    pub pages: u64,
    /// Where they are to go.
    pub to: NodeId,
}

/// How often an outcome must come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// This often.
    Exactly(u64),
    /// At least once.
    Some,
    /// Any number of times, none included.
    Any,
}

/// A phase.
#[derive(Clone, Copy, Debug)]
pub struct Phase {
    /// What it is about.
    pub name: &'static str,
    /// What the program does when it begins.
    pub steps: &'static [Step],
    /// What the policy plans.
    pub plan: &'static [Moves],
    /// All outcomes that come of the plan.
    pub outcomes: &'static [(Outcome, Times)],
    /// What else must be seen, at the end of the phase.
    pub seen: &'static [Seen],
}

/// What must be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The task's start was an event.
    TaskStarted,
    /// The task's end was an event, and the view has no such task any more.
    TaskEnded,
    /// The last view has the task's thread, and one of the later views this area's pages or more on this
    /// node. A quarter may be missing: hosts estimate, from samples drawn again for each view.
    Footprint(Area, NodeId),
    /// The area's regions were read in this phase, by one of the later views or more.
    Read(Area),
    /// The area's regions were neither read nor written, by most of the later views: a sampled region may
    /// span two areas.
    Unread(Area),
    /// A hint fault reported an access to the area.
    HintFault(Area),
    /// The node has no memory.
    Offline(NodeId),
}

const fn all(area: Area, to: NodeId) -> Moves {
    Moves { area, pages: u64::MAX, to }
}

/// The script. Every host must come to the same.
pub const SCRIPT: &[Phase] = &[
    Phase {
        name: "pages are placed, and the task is seen",
        steps: &[Step::Fill(Area::Hot), Step::Fill(Area::Idle)],
        plan: &[],
        outcomes: &[],
        seen: &[Seen::TaskStarted, Seen::Footprint(Area::Idle, FAST)],
    },
    Phase {
        name: "samples and hint faults tell the hot area from the idle one",
        steps: &[],
        plan: &[],
        outcomes: &[],
        seen: &[Seen::Read(Area::Hot), Seen::Unread(Area::Idle), Seen::HintFault(Area::Hot)],
    },
    Phase {
        name: "moves are made",
        steps: &[],
        plan: &[all(Area::Idle, SLOW)],
        outcomes: &[(Outcome::MADE, Times::Exactly(AREA_PAGES))],
        seen: &[Seen::Footprint(Area::Idle, SLOW)],
    },
    Phase {
        name: "what is there already is refused",
        steps: &[],
        plan: &[all(Area::Idle, SLOW)],
        outcomes: &[(Outcome::Refused(Refusal::AlreadyThere), Times::Exactly(AREA_PAGES))],
        seen: &[],
    },
    Phase {
        name: "what is not mapped is gone",
        steps: &[],
        plan: &[all(Area::Nowhere, SLOW)],
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
        outcomes: &[(Outcome::MADE, Times::Some), (Outcome::Refused(Refusal::NoRoom), Times::Some)],
        seen: &[],
    },
    Phase {
        name: "unmapped pages leave their node, and the rest comes back",
        steps: &[Step::Unmap(Area::Large)],
        plan: &[all(Area::Idle, FAST)],
        outcomes: &[
            (Outcome::MADE, Times::Exactly(AREA_PAGES - 8)),
            (Outcome::Refused(Refusal::AlreadyThere), Times::Exactly(8)),
        ],
        seen: &[Seen::Footprint(Area::Idle, FAST)],
    },
    Phase {
        name: "a task that ends cancels its moves",
        steps: &[Step::EndUnderway],
        plan: &[all(Area::Idle, SLOW)],
        outcomes: &[(Outcome::Cancelled(Cancellation::TaskEnded), Times::Some), (Outcome::MADE, Times::Any)],
        seen: &[Seen::TaskEnded],
    },
];

/// The script for a node that is unplugged; a run of its own, with a task of its own.
pub const UNPLUG: &[Phase] = &[
    Phase {
        name: "pages are placed",
        steps: &[Step::Fill(Area::Hot), Step::Fill(Area::Idle)],
        plan: &[],
        outcomes: &[],
        seen: &[Seen::Footprint(Area::Idle, FAST)],
    },
    Phase {
        name: "a node that is offline takes no pages",
        steps: &[Step::UnplugSlow],
        plan: &[all(Area::Idle, SLOW)],
        outcomes: &[(Outcome::Refused(Refusal::NodeOffline), Times::Exactly(AREA_PAGES))],
        seen: &[Seen::Offline(SLOW), Seen::Footprint(Area::Idle, FAST)],
    },
];

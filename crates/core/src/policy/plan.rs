//! Plans: the actions that a policy wants, and what becomes of them.
//!
//! An action gets an id when it enters the plan. It is refused by the governor or the host, or it begins;
//! what began is made or cancelled. Each action has exactly one [`Completion`], now or epochs later, and only
//! completions count.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::rule::Rule;
use crate::ids::{ActionId, NodeId, TaskId};
use crate::units::{PageSize, Time, Vpn};

/// What a policy wants done, most wanted first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    first: ActionId,
    actions: Vec<Planned>,
    /// Most actions.
    limit: usize,
    /// Actions beyond the limit.
    dropped: u64,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan::new(ActionId::default())
    }
}

/// An action of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Planned {
    /// Tells it from all other actions of a run.
    pub id: ActionId,
    /// What to do.
    pub action: Action,
    /// Why.
    pub reason: Reason,
}

impl Plan {
    /// An empty plan whose first action gets this id.
    pub fn new(first: ActionId) -> Plan {
        Plan::with_limit(first, usize::MAX)
    }

    /// An empty plan that counts actions beyond a limit instead of storing them.
    pub fn with_limit(first: ActionId, limit: usize) -> Plan {
        Plan { first, actions: Vec::new(), limit, dropped: 0 }
    }

    /// Adds an action after all others; gives the id that its completion will have.
    pub fn push(&mut self, action: Action, reason: Reason) -> ActionId {
        let id = self.next_id();
        if self.actions.len() < self.limit {
            self.actions.push(Planned { id, action, reason });
        } else {
            self.dropped += 1;
        }
        id
    }

    /// Adds a move of a page.
    pub fn push_move(&mut self, wanted: Move, reason: Reason) -> ActionId {
        self.push(Action::Move(wanted), reason)
    }

    /// The actions, in order.
    pub fn actions(&self) -> &[Planned] {
        &self.actions
    }

    /// Number of actions beyond the limit.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The moves among them.
    pub fn moves(&self) -> impl Iterator<Item = &Move> {
        self.actions.iter().filter_map(|planned| match &planned.action {
            Action::Move(wanted) => Some(wanted),
            _ => None,
        })
    }

    /// The id that the next action will get.
    pub fn next_id(&self) -> ActionId {
        ActionId(self.first.0 + self.actions.len() as u64 + self.dropped)
    }
}

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// A page goes to another node, or with a wish to another frame of its node.
    Move(Move),
    /// Two pages of one size change places. Both move or neither does; the second goes where the first is,
    /// and the first where the second is.
    Exchange(Box<[Move; 2]>),
    /// A huge page becomes base pages, on the node where it is.
    Split(Page),
    /// Base pages become the huge page that begins here. All must be on one node: to bring them together
    /// takes moves, which are counted.
    Collapse(Page),
    /// The task's threads stop until it is thawed.
    Freeze(TaskId),
    /// The task's threads go on.
    Thaw(TaskId),
    /// The task's pages are placed by another rule from now on.
    SetRule(TaskId, Box<Rule>),
    /// Nothing moves the page until it is unpinned, or its task is in no view. The governor keeps pins, on
    /// every host alike.
    Pin(Page),
    /// The page may move again.
    Unpin(Page),
}

impl Action {
    /// The moves that it makes: one, two or none.
    pub fn moves(&self) -> &[Move] {
        match self {
            Action::Move(wanted) => std::slice::from_ref(wanted),
            Action::Exchange(pair) => &pair[..],
            _ => &[],
        }
    }
}

/// A page of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Page {
    /// Whose it is.
    pub task: TaskId,
    /// The page; the first base page of a huge one.
    pub page: Vpn,
    /// Its size.
    pub size: PageSize,
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
    /// The node that it is on, as far as the policy knows.
    pub from: NodeId,
    /// The node that it is to go to.
    pub to: NodeId,
    /// What its frame there is to be like, if possible.
    #[serde(default, skip_serializing_if = "Frame::is_any")]
    pub wish: Frame,
}

impl Move {
    /// The first base page of the page that it names.
    pub fn head(&self) -> Vpn {
        Vpn(self.page.0 - self.page.0 % self.size.base_pages())
    }
}

/// Where a frame is in its node: its cache colour and its bank, each if it matters or is known (memos section
/// 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Frame {
    /// Page colour in the last-level cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub colour: Option<u16>,
    /// Bank, numbered through the node's channels and ranks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bank: Option<u16>,
}

impl Frame {
    /// Any frame will do.
    pub const ANY: Frame = Frame { colour: None, bank: None };

    /// Whether any frame will do.
    pub fn is_any(&self) -> bool {
        *self == Frame::ANY
    }

    /// Whether it is known to be what was wished for.
    pub fn satisfies(&self, wish: &Frame) -> bool {
        (wish.colour.is_none() || self.colour == wish.colour)
            && (wish.bank.is_none() || self.bank == wish.bank)
    }
}

/// Why a policy wants an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// CPUs of the other node access the page.
    Locality,
    /// It is accessed often, and on slow memory.
    Hot,
    /// It is not accessed, and on fast memory.
    Cold,
    /// It is accessed less than another page that needs its place.
    MakeRoom,
    /// A node's bandwidth or latency limits the program.
    Bandwidth,
    /// A user or an application asked for it.
    Request,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Locality => "locality",
            Reason::Hot => "hot",
            Reason::Cold => "cold",
            Reason::MakeRoom => "make-room",
            Reason::Bandwidth => "bandwidth",
            Reason::Request => "request",
        })
    }
}

/// What became of an action, and when that was known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Completion {
    /// When that was known.
    pub time: Time,
    /// The action. Its moves are from where the pages were, if the host knows that better than the policy did.
    pub planned: Planned,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It was made; of a move, the frame that the page got, as far as the host knows it.
    Made(Frame),
    /// It did not begin.
    Refused(Refusal),
    /// It began, and could not be finished; everything is as before.
    Cancelled(Cancellation),
}

impl Outcome {
    /// It was made, in a frame of which nothing is known.
    pub const MADE: Outcome = Outcome::Made(Frame::ANY);

    /// Whether it was made.
    pub fn is_made(&self) -> bool {
        matches!(self, Outcome::Made(_))
    }
}

impl From<Result<(), Refusal>> for Outcome {
    fn from(result: Result<(), Refusal>) -> Outcome {
        result.map_or_else(Outcome::Refused, |()| Outcome::MADE)
    }
}

/// Why an action that had begun was not finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cancellation {
    /// The page was unmapped or swapped out meanwhile.
    Unmapped,
    /// The task ended meanwhile.
    TaskEnded,
    /// The node went offline meanwhile.
    NodeOffline,
}

impl fmt::Display for Cancellation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cancellation::Unmapped => "unmapped",
            Cancellation::TaskEnded => "task-ended",
            Cancellation::NodeOffline => "node-offline",
        })
    }
}

/// Why an action did not begin.
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
    /// The page is being moved, or the kernel holds it.
    Busy,
    /// The task may not have pages there.
    NotAllowed,
    /// It moved the other way a short time ago.
    Cooling,
    /// A dry run moves nothing.
    DryRun,
    /// The policy has pinned the page.
    Pinned,
    /// The node is offline.
    NodeOffline,
    /// This host cannot do that.
    Unsupported,
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
            Refusal::Pinned => "pinned",
            Refusal::NodeOffline => "node-offline",
            Refusal::Unsupported => "unsupported",
        })
    }
}

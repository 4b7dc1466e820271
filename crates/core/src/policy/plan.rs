//! Plans: the actions that a policy requests, and their outcomes.
//!
//! An action gets an id when it enters the plan. The governor or the host refuses it, or it begins; an action
//! that began is made or cancelled. Each action has exactly one [`Completion`], now or epochs later, and only
//! completions count.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU16;

use serde::{Deserialize, Serialize};

use super::rule::Rule;
use crate::ids::{ActionId, NodeId, TaskId};
use crate::units::{PageSize, Time, Vpn};

/// A policy's requested actions, by decreasing priority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    first: ActionId,
    actions: Vec<Planned>,
    /// Maximum number of actions.
    limit: usize,
    /// Actions beyond the limit.
    dropped: u64,
    /// Whether the policy asks to decide now.
    decides: bool,
    work: Time,
    /// Pages whose TLB misses are counted from now on; `None` leaves them as they are.
    counted: Option<Vec<Page>>,
    /// Base pages that stay because this node is full.
    left: BTreeMap<NodeId, u64>,
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
    /// Its id, unique in a run.
    pub id: ActionId,
    /// The action.
    pub action: Action,
    /// The reason.
    pub reason: Reason,
}

impl Plan {
    /// An empty plan whose first action gets this id.
    pub fn new(first: ActionId) -> Plan {
        Plan::with_limit(first, usize::MAX)
    }

    /// An empty plan that stores at most `limit` actions and counts the others.
    pub fn with_limit(first: ActionId, limit: usize) -> Plan {
        Plan {
            first,
            actions: Vec::new(),
            limit,
            dropped: 0,
            decides: false,
            work: Time::ZERO,
            counted: None,
            left: BTreeMap::new(),
        }
    }

    /// Appends an action; returns the id of its completion.
    pub fn push(&mut self, action: Action, reason: Reason) -> ActionId {
        let id = self.next_id();
        if self.actions.len() < self.limit {
            self.actions.push(Planned { id, action, reason });
        } else {
            self.dropped += 1;
        }
        id
    }

    /// Appends a move of a page.
    pub fn push_move(&mut self, wanted: Move, reason: Reason) -> ActionId {
        self.push(Action::Move(wanted), reason)
    }

    /// Takes back all but the first `len` actions, as if they had never been requested.
    pub fn truncate(&mut self, len: usize) {
        if len < self.actions.len() {
            self.actions.truncate(len);
            self.dropped = 0;
        }
    }

    /// Asks for [`decide`](super::Migration::decide) now instead of at the time last returned. For events
    /// of an in-kernel policy: it wakes its kernel thread. Elsewhere `decide` follows the events anyway.
    pub fn decide_now(&mut self) {
        self.decides = true;
    }

    /// Whether it asks to decide now.
    pub fn decides_now(&self) -> bool {
        self.decides
    }

    /// The actions, in order.
    pub fn actions(&self) -> &[Planned] {
        &self.actions
    }

    /// Number of actions beyond the limit.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Charges CPU time of the policy's own work, such as a sort. The simulator, where a policy's code takes
    /// no simulated time, makes a CPU spend it; on a live host the work itself takes its time.
    pub fn spend(&mut self, time: Time) {
        self.work += time;
    }

    /// The CPU time charged.
    pub fn work(&self) -> Time {
        self.work
    }

    /// Counts the TLB misses of these pages from now on, and of no others: the host marks them at once, and
    /// again after each marking interval. For
    /// [`TlbMissSampling::planned`](super::TlbMissSampling::planned).
    pub fn count(&mut self, pages: Vec<Page>) {
        self.counted = Some(pages);
    }

    /// The pages whose TLB misses are counted from now on, if the plan changes them.
    pub fn counted(&self) -> Option<&[Page]> {
        self.counted.as_deref()
    }

    /// Reports base pages that were to move to a node, and stay because it has no free memory. For the
    /// user: a page that is not in the plan has no completion, and so no [`Refusal`].
    pub fn leave(&mut self, full: NodeId, pages: u64) {
        if pages > 0 {
            *self.left.entry(full).or_default() += pages;
        }
    }

    /// Base pages that stay because a node has no free memory, by that node.
    pub fn left(&self) -> &BTreeMap<NodeId, u64> {
        &self.left
    }

    /// The moves among the actions.
    pub fn moves(&self) -> impl Iterator<Item = &Move> {
        self.actions.iter().filter_map(|planned| match &planned.action {
            Action::Move(wanted) => Some(wanted),
            _ => None,
        })
    }

    /// The id of the next action.
    pub fn next_id(&self) -> ActionId {
        ActionId(self.first.0 + self.actions.len() as u64 + self.dropped)
    }
}

/// An action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Moves a page to another node, or with a wish to another frame of its node.
    Move(Move),
    /// Exchanges two pages of equal size. Both move or neither does; each goes to the other's node.
    Exchange(Box<[Move; 2]>),
    /// Splits a huge page into base pages, on its node.
    Split(Page),
    /// Collapses base pages into the huge page that begins here, on their node. They are
    /// [`Gone`](Refusal::Gone) unless all are on one node: gathering them takes moves, which are counted.
    Collapse(Page),
    /// Stops the task's threads until it is thawed.
    Freeze(TaskId),
    /// Resumes the task's threads.
    Thaw(TaskId),
    /// Places the task's pages by another rule from now on.
    SetRule(TaskId, Box<Rule>),
    /// Excludes the page from moves until it is unpinned, or its task is in no view. The governor keeps pins,
    /// so they work on every host.
    Pin(Page),
    /// Allows moves of the page again.
    Unpin(Page),
    /// Number of ways of the last-level cache that the task may fill, of each cache that its threads have
    /// used. They are its own: tasks without a quota share the ways that are left, and with none left their
    /// lines pass the cache. `None` removes the quota.
    ///
    /// [`Refusal::NoRoom`] if the quotas of a cache would exceed its associativity: reduce others first.
    CacheQuota(TaskId, Option<NonZeroU16>),
}

impl Action {
    /// Its moves: one, two or none.
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
    /// Its task.
    pub task: TaskId,
    /// The page; the first base page of a huge one.
    pub page: Vpn,
    /// Its size.
    pub size: PageSize,
}

/// A move of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Move {
    /// The page's task.
    pub task: TaskId,
    /// The page; the first base page of a huge one.
    pub page: Vpn,
    /// Its size.
    pub size: PageSize,
    /// The page's node, as far as the policy knows.
    pub from: NodeId,
    /// The target node.
    pub to: NodeId,
    /// The preferred frame on the target node.
    #[serde(default, skip_serializing_if = "Frame::is_any")]
    pub wish: Frame,
}

impl Move {
    /// The first base page of the page.
    pub fn head(&self) -> Vpn {
        Vpn(self.page.0 - self.page.0 % self.size.base_pages())
    }
}

/// A frame's place in its node: its cache colour and its bank, `None` if irrelevant or unknown (memos section
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
    /// Any frame.
    pub const ANY: Frame = Frame { colour: None, bank: None };

    /// Whether it is any frame.
    pub fn is_any(&self) -> bool {
        *self == Frame::ANY
    }

    /// Whether it is known to match a wish.
    pub fn satisfies(&self, wish: &Frame) -> bool {
        (wish.colour.is_none() || self.colour == wish.colour)
            && (wish.bank.is_none() || self.bank == wish.bank)
    }
}

/// Why a policy requests an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// CPUs of the other node access the page.
    Locality,
    /// It is accessed often, on slow memory.
    Hot,
    /// It is not accessed, on fast memory.
    Cold,
    /// It is accessed less than another page that needs its memory.
    MakeRoom,
    /// A node's bandwidth or latency limits the program.
    Bandwidth,
    /// A user or an application requested it.
    Request,
    /// It left fast memory for want of room, and there is room again.
    Return,
    /// It shares a bank or a part of the last-level cache with pages that it should not share it with.
    Interference,
    /// Ways of the last-level cache bring more hits to this task than to others.
    CacheUtility,
    /// A part of the huge page is accessed much more than the rest.
    Uneven,
    /// Accesses to its base pages miss the TLB.
    TlbMisses,
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
            Reason::Return => "return",
            Reason::Interference => "interference",
            Reason::CacheUtility => "cache-utility",
            Reason::Uneven => "uneven",
            Reason::TlbMisses => "tlb-misses",
        })
    }
}

/// An action's outcome and its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Completion {
    /// Time of the outcome.
    pub time: Time,
    /// The action. Its moves start from the pages' actual nodes, where the host knows better than the policy.
    pub planned: Planned,
    /// The outcome.
    pub outcome: Outcome,
}

/// Outcome of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It was made; for a move with the page's new frame, as far as the host knows it.
    Made(Frame),
    /// It did not begin.
    Refused(Refusal),
    /// It began but could not be completed; everything is as before.
    Cancelled(Cancellation),
}

impl Outcome {
    /// It was made, in an unknown frame.
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

/// Why an action that had begun was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cancellation {
    /// The page was unmapped or swapped out.
    Unmapped,
    /// The task ended.
    TaskEnded,
    /// The node went offline.
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

/// Why an action was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Refusal {
    /// The plan already names the page.
    Duplicate,
    /// The page is already there.
    AlreadyThere,
    /// The migration rate limit is reached.
    RateLimited,
    /// The epoch's limit of moves is reached.
    OverCap,
    /// The node has no free memory above its watermark.
    NoRoom,
    /// The page no longer exists.
    Gone,
    /// The page is being moved, or is in use by the kernel.
    Busy,
    /// The task must not have pages there.
    NotAllowed,
    /// It moved recently: cooldown.
    Cooling,
    /// Dry run: nothing moves.
    DryRun,
    /// The policy has pinned the page.
    Pinned,
    /// The node is offline.
    NodeOffline,
    /// The host does not support it.
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

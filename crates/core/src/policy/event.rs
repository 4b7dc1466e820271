//! Events: what happens to pages and tasks between two decisions.

use serde::{Deserialize, Serialize};

use super::plan::Completion;
use crate::ids::{CpuId, NodeId, TaskId, ThreadId};
use crate::units::{PageSize, Time, Vpn};

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// A thread accessed a page that the NUMA scanner had unmapped.
    HintFault(HintFault),
    /// A sampled access that missed all caches.
    AccessSample(AccessSample),
    /// An application sent a message about its memory.
    Message(Message),
    /// A task started or ended.
    Task(TaskEvent),
    /// What became of an action of a plan.
    Completion(Completion),
}

impl Event {
    /// When it happened.
    pub fn time(&self) -> Time {
        match self {
            Event::HintFault(fault) => fault.time,
            Event::AccessSample(sample) => sample.time,
            Event::Message(message) => message.time,
            Event::Task(task) => task.time,
            Event::Completion(completion) => completion.time,
        }
    }
}

/// An access to a page that the NUMA scanner had unmapped.
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
    /// The node that it is on.
    pub node: NodeId,
    /// A store if true, else a load.
    pub write: bool,
    /// Complete passes of the scanner over the task's memory so far (Linux's `numa_scan_seq`).
    pub pass: u32,
}

/// A sampled access that missed all caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessSample {
    /// When.
    pub time: Time,
    /// Whose page it is.
    pub task: TaskId,
    /// Who accessed it.
    pub thread: ThreadId,
    /// The base page, inside a huge one too.
    pub page: Vpn,
    /// The size of the page that is mapped there.
    pub size: PageSize,
    /// The node that served it.
    pub node: NodeId,
    /// How long the access took.
    pub latency: Time,
    /// A store if true, else a load.
    pub write: bool,
}

/// A message of an application about one of its buffers (pms section 4: register, request lock, release).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// When it came.
    pub time: Time,
    /// Who says it.
    pub task: TaskId,
    /// What.
    pub kind: MessageKind,
    /// First base page of the buffer.
    pub start: Vpn,
    /// Its length in base pages.
    pub pages: u64,
}

/// What an application wants with a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MessageKind {
    /// It may be migrated from now on.
    Register,
    /// It is to be in local memory, and to stay there.
    Lock,
    /// It may leave local memory again.
    Release,
    /// It is not to be migrated any more.
    Unregister,
}

/// A task starts or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskEvent {
    /// When.
    pub time: Time,
    /// Which.
    pub task: TaskId,
    /// It started if true, else it ended.
    pub started: bool,
}

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
    /// A thread's access missed the TLB, and its page table entry was marked.
    TlbMiss(TlbMiss),
    /// A sampled access that missed all caches.
    AccessSample(AccessSample),
    /// An application sent a message about its memory.
    Message(Message),
    /// A task started or ended.
    Task(TaskEvent),
    /// An action completed.
    Completion(Completion),
}

impl Event {
    /// Its time.
    pub fn time(&self) -> Time {
        match self {
            Event::HintFault(fault) => fault.time,
            Event::TlbMiss(miss) => miss.time,
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
    /// Time of the access.
    pub time: Time,
    /// The page's task.
    pub task: TaskId,
    /// The accessing thread.
    pub thread: ThreadId,
    /// Its CPU.
    pub cpu: CpuId,
    /// The page; the first base page of a huge one.
    pub page: Vpn,
    /// Its size.
    pub size: PageSize,
    /// The page's node.
    pub node: NodeId,
    /// A store if true, else a load.
    pub write: bool,
    /// Complete passes of the scanner over the task's memory so far (Linux's `numa_scan_seq`).
    pub pass: u32,
    /// Time since the scanner unmapped the page (Linux's `numa_hint_fault_latency`); `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<Time>,
}

/// A TLB miss on a marked page table entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlbMiss {
    /// Time of the access.
    pub time: Time,
    /// The page's task.
    pub task: TaskId,
    /// The accessing thread.
    pub thread: ThreadId,
    /// The page; the first base page of a huge one.
    pub page: Vpn,
    /// Its size.
    pub size: PageSize,
    /// The page's node.
    pub node: NodeId,
    /// A store if true, else a load.
    pub write: bool,
}

/// A sampled access that missed all caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessSample {
    /// Time of the access.
    pub time: Time,
    /// The page's task.
    pub task: TaskId,
    /// The accessing thread.
    pub thread: ThreadId,
    /// The base page, also within a huge page.
    pub page: Vpn,
    /// Size of the page mapped there.
    pub size: PageSize,
    /// The node that served the access.
    pub node: NodeId,
    /// Duration of the access.
    pub latency: Time,
    /// A store if true, else a load.
    pub write: bool,
}

/// An application's message about one of its buffers (pms section 4: register, request lock, release).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// Time of arrival.
    pub time: Time,
    /// The sending task.
    pub task: TaskId,
    /// The request.
    pub kind: MessageKind,
    /// First base page of the buffer.
    pub start: Vpn,
    /// Its length in base pages.
    pub pages: u64,
}

/// An application's request about a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MessageKind {
    /// The buffer may be migrated.
    Register,
    /// Move it to local memory and keep it there.
    Lock,
    /// It may leave local memory again.
    Release,
    /// It must not be migrated any more.
    Unregister,
}

/// A task starts or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskEvent {
    /// Time of the event.
    pub time: Time,
    /// The task.
    pub task: TaskId,
    /// It started if true, else it ended.
    pub started: bool,
}

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
    /// Duration of the access; `None` if the host does not measure it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Time>,
    /// Accesses that it stands for: the period in which it was taken, at least 1.
    pub period: u32,
    /// A store if true, else a load.
    pub write: bool,
}

/// An application's message about its memory (pms section 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// Time of arrival.
    pub time: Time,
    /// The sending task.
    pub task: TaskId,
    /// What it says.
    pub kind: MessageKind,
}

/// What an application says. A buffer is known by its first page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum MessageKind {
    /// It takes part; the first of its messages (`pmm_init`).
    Register {
        /// Its service level, from 1 to [`PRIORITY_MAX`]: pages of lower ones leave local memory first.
        priority: u8,
    },
    /// A buffer may be migrated (`pmm_send_buffer`).
    Send {
        /// Its first base page.
        start: Vpn,
        /// Its length in base pages.
        pages: u64,
    },
    /// A buffer is about to be freed: it is forgotten where it is (`pmm_release_buffer`).
    Release {
        /// Its first base page.
        start: Vpn,
    },
    /// A buffer must come to local memory and stay there (`pmm_request_pages_lock`).
    Lock {
        /// Its first base page.
        start: Vpn,
    },
    /// The application is about to end (`pmm_cleanup`).
    Cleanup,
}

/// The highest service level of an application (pms section 4.2).
pub const PRIORITY_MAX: u8 = 5;

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

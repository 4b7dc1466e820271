//! Threads: what they execute next and where their time went.

use memtide_core::policy::RuleState;
use memtide_core::{Access, Batch, CpuId, TaskId, ThreadId, Time};
use serde::Serialize;

/// A thread of a program.
pub(crate) struct Thread {
    pub id: ThreadId,
    pub task: TaskId,
    /// Which program of the run it belongs to, and its number there.
    pub program: usize,
    pub number: ThreadId,
    pub cpu: CpuId,
    pub state: State,
    pub batch: Batch,
    /// Next access of the batch.
    pub cursor: usize,
    /// Batches in a row that brought neither accesses nor work.
    pub empty_batches: u32,
    /// Bytes of that access that are done: it crosses a line.
    pub done_bytes: u16,
    /// The next access's instructions have been counted.
    pub dispatched: bool,
    /// When it last gave its CPU up, or was started.
    pub left_at: Time,
    pub placement: RuleState,
    pub spent: Spent,
    pub counts: ThreadCounts,
}

/// What a thread is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// No other thread has started it yet.
    Unborn,
    /// Runs, or could if its CPU were free.
    Runnable,
    /// Waits for the others at a barrier.
    AtBarrier,
    Ended,
}

/// Where a thread's time went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    pub user: Time,
    pub system: Time,
    pub stall: Time,
    pub idle: Time,
}

/// What a thread did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct ThreadCounts {
    pub instructions: u64,
    pub accesses: u64,
    pub tlb_misses: u64,
}

impl Thread {
    #[inline]
    pub fn next_access(&self) -> Option<Access> {
        self.batch.accesses.get(self.cursor).copied()
    }
}

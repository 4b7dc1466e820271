//! Threads: their next accesses and their time.

use std::sync::Arc;

use memtide_core::policy::RuleState;
use memtide_core::{Access, Batch, CpuId, TaskId, ThreadId, Time};
use memtide_front::Chunk;
use serde::Serialize;

/// A thread of a program.
pub(crate) struct Thread {
    pub id: ThreadId,
    pub task: TaskId,
    /// Its program in the run, and its number there.
    pub program: usize,
    pub number: ThreadId,
    pub cpu: CpuId,
    pub state: State,
    pub batch: Batch,
    /// The thread's records, if they are replayed instead of accesses.
    pub records: Option<Cursor>,
    /// Next access of the batch.
    pub cursor: usize,
    /// Consecutive batches without accesses and work.
    pub empty_batches: u32,
    /// Bytes of that access that are already done, if it crosses lines.
    pub done_bytes: u16,
    /// Whether the next access's instructions have been counted.
    pub dispatched: bool,
    /// When it last gave up its CPU, or was started.
    pub left_at: Time,
    pub placement: RuleState,
    pub spent: Spent,
    pub counts: ThreadCounts,
}

/// A place in a chunk of records.
#[derive(Default)]
pub(crate) struct Cursor {
    pub chunk: Arc<Chunk>,
    /// Next record.
    pub next: usize,
    /// Next spilled line.
    pub next_spilled: usize,
}

/// State of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Not started yet by another thread.
    NotStarted,
    /// Running, or ready to run.
    Runnable,
    /// Waiting for the others at a barrier.
    AtBarrier,
    Ended,
}

/// Breakdown of a thread's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    pub user: Time,
    pub system: KernelTime,
    pub stall: Time,
    pub idle: Time,
}

/// What a thread is in the kernel for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// First touches of pages.
    Fault,
    /// Pages written to swap and read back.
    Swap,
    /// Pages that the program unmaps.
    Unmap,
    /// Moves of pages, and waits for pages that are being moved.
    Migration,
    /// Hint faults, marked TLB misses, the scanner, and the policy's own work.
    Monitoring,
}

/// Time in the kernel, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KernelTime(pub [Time; 5]);

impl KernelTime {
    pub fn add(&mut self, cause: Cause, time: Time) {
        self.0[cause as usize] += time;
    }

    pub fn of(&self, cause: Cause) -> Time {
        self.0[cause as usize]
    }

    pub fn total(&self) -> Time {
        self.0.iter().fold(Time::ZERO, |sum, &time| sum + time)
    }
}

/// Counters of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct ThreadCounts {
    pub instructions: u64,
    pub accesses: u64,
    pub tlb_misses: u64,
    /// Lines that its CPU's private caches read from the shared levels for it, and that they wrote there.
    pub read_lines: u64,
    pub written_lines: u64,
}

impl Thread {
    #[inline]
    pub fn next_access(&self) -> Option<Access> {
        self.batch.accesses.get(self.cursor).copied()
    }
}

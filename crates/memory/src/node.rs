//! The interface of memory nodes to the simulator, the lab and `probe`, for any model.

use memtide_core::Time;

use crate::counters::{BankCounters, Counters};

/// A request for one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Line number in the node: the address within the node divided by the line size.
    pub line: u64,
    /// Whether it is a write. Writes are posted: their completion is not reported, except with
    /// [`REPORT_ACCEPTED`].
    pub write: bool,
    /// Identifies a read's completion.
    pub id: u64,
}

/// Bit of a write's `id`: its requester holds a buffer until the node has accepted the write (DRAM: into the
/// controller's write queue), which is reported as its completion.
pub const REPORT_ACCEPTED: u64 = 1 << 63;

/// Completion of a read, or acceptance of a write with [`REPORT_ACCEPTED`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The request's `id`.
    pub id: u64,
    /// Arrival time of its data, or of the acknowledgement.
    pub at: Time,
}

/// A memory node.
///
/// Requests are pushed in approximate order of arrival; a node reorders those that it has not processed yet.
/// Completions are in no particular order: each is reported as soon as it is certain, often before its time.
pub trait MemoryNode {
    /// Pushes a request that arrives at `at`, or at the node's current time if that is later.
    fn push(&mut self, at: Time, request: Request);

    /// Latest time of the next [`advance`](MemoryNode::advance) for completions to be reported before their
    /// time; [`Time::NEVER`] if idle.
    fn next_event(&self) -> Time;

    /// Processes events up to and including `until`; appends the completions that became certain to
    /// `done`.
    fn advance(&mut self, until: Time, done: &mut Vec<Completion>);

    /// Counters; refreshes are counted up to `at`.
    fn counters(&self, at: Time) -> Counters;

    /// Counters of each bank, by channel; none of nodes without banks.
    fn bank_counters(&self) -> Vec<Vec<BankCounters>> {
        Vec::new()
    }
}

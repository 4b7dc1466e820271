//! What the simulator, the lab and `probe` see of a memory node, however it is modelled.

use memtide_core::{Bandwidth, Time};

use crate::counters::Counters;

/// A request for one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Line of the node: its address in the node divided by the line size.
    pub line: u64,
    /// Whether it writes. Writes are posted: their completion is not reported.
    pub write: bool,
    /// What a read's completion is known by.
    pub id: u64,
}

/// A read's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The request's `id`.
    pub id: u64,
    /// When its data is there.
    pub at: Time,
}

/// A memory node.
///
/// Requests are pushed in about the order of their arrival; a node orders those that it has not worked on
/// yet. Completions come in no particular order, each as soon as it is certain and hence often before its
/// time.
pub trait MemoryNode {
    /// A request arrives at `at`, or as soon as the node can still take it if it has already been advanced
    /// further.
    fn push(&mut self, at: Time, request: Request);

    /// When the node should be advanced next, at the latest, for completions to be reported before their time;
    /// [`Time::NEVER`] if nothing is under way.
    fn next_event(&self) -> Time;

    /// Works up to and including `until`, and adds the reads that became certain to `done`.
    fn advance(&mut self, until: Time, done: &mut Vec<Completion>);

    /// What it has done, up to `at` as far as refreshes go.
    fn counters(&self, at: Time) -> Counters;

    /// Data rate that its buses, or a fixed node's reads, cannot exceed.
    fn peak(&self) -> Bandwidth;
}

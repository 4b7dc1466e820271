//! What a workload is: parallel phases with a barrier after each, their items dealt out to threads in static
//! blocks.

use std::ops::Range;

use crate::array::Space;
use crate::error::WorkloadError;
use crate::info::Info;
use crate::memory::Memory;
use crate::params::Settings;

/// Items of work that threads do in parallel. All threads wait for each other at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase<S> {
    /// What is done.
    pub step: S,
    /// How many items there are.
    pub items: usize,
    /// Items that one thread does in a row: blocks are multiples of it.
    pub group: usize,
}

impl<S> Phase<S> {
    /// A phase whose items are independent.
    pub fn new(step: S, items: usize) -> Phase<S> {
        Phase { step, items, group: 1 }
    }

    /// A phase of `groups` independent groups of `group` items each, which one thread does in order.
    pub fn grouped(step: S, groups: usize, group: usize) -> Phase<S> {
        Phase { step, items: groups * group, group }
    }

    /// The items of one of `threads` threads.
    pub fn share(&self, thread: usize, threads: usize) -> Range<usize> {
        let groups = self.items / self.group;
        let range = block(groups, thread, threads);
        range.start * self.group..range.end * self.group
    }
}

/// The `part`th of `parts` nearly equal consecutive blocks of `0..items`.
pub fn block(items: usize, part: usize, parts: usize) -> Range<usize> {
    items * part / parts..items * (part + 1) / parts
}

/// An algorithm, or anything else that threads do in phases.
///
/// Within a phase no thread may read what another one writes: then what a thread does is independent of how
/// fast the others run. An item makes some thousand accesses at most, but for very large footprints.
pub trait Workload: Send + Sync + Sized + 'static {
    /// Distinguishes phases.
    type Step: Copy + Send + Sync;
    /// What a thread keeps from item to item in its registers and on its stack.
    type Local: Send;

    /// How many threads there are.
    fn threads(&self) -> usize;

    /// Everything there is to do, in order.
    fn phases(&self) -> Vec<Phase<Self::Step>>;

    /// A thread's registers as it starts.
    fn local(&self, thread: usize) -> Self::Local;

    /// What a thread does at a phase's beginning.
    fn begin<M: Memory>(&self, _m: &mut M, _step: Self::Step, _local: &mut Self::Local) {}

    /// Does one item.
    fn run<M: Memory>(&self, m: &mut M, step: Self::Step, item: usize, local: &mut Self::Local);

    /// What a thread does after its last item of a phase.
    fn finish<M: Memory>(&self, _m: &mut M, _step: Self::Step, _local: &mut Self::Local) {}

    /// A number that sums up what was computed: the same traced and native.
    fn result(&self) -> f64;
}

/// A workload that the registry makes by name.
pub trait Algorithm: Workload {
    /// Its name, what it is for and its parameters.
    const INFO: Info;

    /// Lays out the arrays.
    ///
    /// # Errors
    /// If the settings do not fit together or the host has not the memory.
    fn new(settings: &Settings, seed: u64, space: &mut Space) -> Result<Self, WorkloadError>;
}

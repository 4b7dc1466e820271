//! Workloads: parallel phases with a barrier after each, whose items are assigned to threads in static
//! blocks.

use std::ops::Range;

use memtide_core::{Mark, Stage};

use crate::array::Space;
use crate::error::WorkloadError;
use crate::info::Info;
use crate::memory::Memory;
use crate::params::Settings;

/// Parallel items of work. All threads wait for each other at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase<S> {
    /// The step.
    pub step: S,
    /// Number of items.
    pub items: usize,
    /// Consecutive items that one thread runs: blocks are multiples of it.
    pub group: usize,
}

impl<S> Phase<S> {
    /// A phase whose items are independent.
    pub fn new(step: S, items: usize) -> Phase<S> {
        Phase { step, items, group: 1 }
    }

    /// A phase of `groups` independent groups of `group` items each, which one thread runs in order.
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
/// Within a phase no thread may read what another one writes: a thread's work is independent of the speed of
/// others. An item makes at most some thousand accesses, except for very large footprints.
pub trait Workload: Send + Sync + Sized + 'static {
    /// Distinguishes phases.
    type Step: Copy + Send + Sync;
    /// A thread's registers and stack, kept between items.
    type Local: Send;

    /// Number of threads.
    fn threads(&self) -> usize;

    /// All phases, in order.
    fn phases(&self) -> Vec<Phase<Self::Step>>;

    /// What the program does in a phase, by its number and step. Marks are made where it changes.
    fn stage(&self, phase: usize, step: Self::Step) -> Stage;

    /// A thread's initial registers.
    fn local(&self, thread: usize) -> Self::Local;

    /// A thread's work at the start of a phase.
    fn begin<M: Memory>(&self, _m: &mut M, _step: Self::Step, _local: &mut Self::Local) {}

    /// Runs one item.
    fn run<M: Memory>(&self, m: &mut M, step: Self::Step, item: usize, local: &mut Self::Local);

    /// A thread's work after its last item of a phase.
    fn finish<M: Memory>(&self, _m: &mut M, _step: Self::Step, _local: &mut Self::Local) {}

    /// A checksum of the result: equal when traced and native.
    fn result(&self) -> f64;
}

/// A part of a program that all threads begin together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<S> {
    /// A phase, and the barrier at its end.
    Phase(Phase<S>),
    /// A mark that thread 0 makes while the others wait at a barrier, so that no thread's work counts on the
    /// wrong side of it.
    Mark(Mark),
}

impl<S: Copy> Part<S> {
    /// The phases of a workload, with a mark wherever the stage changes; none if all are of its region.
    pub fn of<W: Workload<Step = S>>(workload: &W) -> Vec<Part<S>> {
        let mut parts = Vec::new();
        let phases = workload.phases();
        let whole = phases.first().is_some_and(|first| workload.stage(0, first.step) == Stage::Region);
        let mut stage = if whole { Stage::Region } else { Stage::Initialisation };
        for (number, phase) in phases.into_iter().enumerate() {
            let next = workload.stage(number, phase.step);
            let mark = match next {
                Stage::Region => Mark::Begin,
                Stage::WarmUp => Mark::WarmUp,
                Stage::Initialisation | Stage::Outside => Mark::End,
            };
            if stage.after(mark) != stage {
                stage = stage.after(mark);
                parts.push(Part::Mark(mark));
            }
            parts.push(Part::Phase(phase));
        }
        parts
    }
}

/// A workload registered by name.
pub trait Algorithm: Workload {
    /// Its name, description and parameters.
    const INFO: Info;

    /// Lays out the arrays.
    ///
    /// # Errors
    /// If the settings do not fit together or the host has too little memory.
    fn new(settings: &Settings, seed: u64, space: &mut Space) -> Result<Self, WorkloadError>;
}

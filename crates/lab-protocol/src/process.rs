//! Processes of the guest, as identified by the clock plugin.

use serde::{Deserialize, Serialize};

use crate::Counts;

/// A process, identified by its address space.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Guest-physical address of its page table.
    pub root: u64,
    /// Name of its executable, cut to [`crate::counters::NAME_BYTES`] bytes; empty if unknown, as of a
    /// process that was forked and has not called `execve`.
    pub name: String,
    /// Its owner.
    pub who: Who,
    /// Events while its address space was active: its own instructions, system calls and faults, and
    /// interrupts and kernel threads in between. A write-back counts for the process that evicted the line.
    pub counts: Counts,
}

/// Owner of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Who {
    /// An address space in which only the kernel ran.
    Kernel,
    /// The lab's agent.
    Agent,
    /// The program or its descendant.
    Program,
}

/// Per-process deltas between two times, without idle processes.
pub fn between(before: &[Process], after: &[Process]) -> Vec<Process> {
    let did = after.iter().enumerate().map(|(number, after)| {
        let counts = match before.get(number) {
            Some(before) => after.counts.since(&before.counts),
            None => after.counts.clone(),
        };
        Process { counts, ..after.clone() }
    });
    did.filter(|process| process.counts.instructions > 0).collect()
}

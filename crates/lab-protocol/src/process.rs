//! Processes of the guest, as the clock plugin tells them apart.

use serde::{Deserialize, Serialize};

use crate::Counts;

/// A process, which is known by its address space.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Guest-physical address of its page table.
    pub root: u64,
    /// Name of the file that it runs, as far as [`crate::counters::NAME_BYTES`] bytes go; empty if it is not known, as of a
    /// process that was forked and has started no program.
    pub name: String,
    /// Whose it is.
    pub who: Who,
    /// What happened while its address space was in use: its own instructions, system calls and faults, and the interrupts and
    /// kernel threads that came upon it. A line that is written back counts for the process that displaced it.
    pub counts: Counts,
}

/// Whose a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Who {
    /// An address space in which nothing but the kernel ran.
    Kernel,
    /// The lab's agent.
    Agent,
    /// The program, or a process that it started.
    Program,
}

/// What the processes did from one time to a later one; those that did nothing are left out.
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

//! What the lab's clock plugin tells, as a JSON file.

use serde::{Deserialize, Serialize};

use super::{Counts, Timeline};

/// What the plugin has measured so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Whether the guest's clock follows the model.
    pub hook: bool,
    /// Why not.
    pub why: Option<String>,
    /// Regions of interest so far, in order.
    pub regions: Vec<Region>,
}

/// A region of interest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Region {
    /// Time on the guest's clock from the program's start to the region's, in ns.
    pub start_ns: f64,
    /// Time on the guest's clock, in ns.
    pub guest_ns: f64,
    /// Processor time of the host that it took, in ns: the one figure that differs from run to run.
    pub host_cpu_ns: u64,
    /// The sum over all processes.
    pub total: Counts,
    /// Processes that ran, in the order in which they were first seen.
    pub processes: Vec<Process>,
    /// Traffic over time.
    pub timeline: Timeline,
}

/// A process, which is known by its address space.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Guest-physical address of its page table.
    pub root: u64,
    /// Name of the file that it runs, as far as [`super::live::NAME_BYTES`] bytes go; empty if it is not known, as of a
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

impl Region {
    /// Instructions of the program and the processes that it started, outside the kernel.
    pub fn program_instructions(&self) -> u64 {
        let own = self.processes.iter().filter(|process| process.who == Who::Program);
        own.map(|process| process.counts.user_instructions).sum()
    }

    /// All other instructions: the kernel's, on the program's behalf or not, and those of other processes.
    pub fn outside_instructions(&self) -> u64 {
        self.total.instructions - self.program_instructions()
    }
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

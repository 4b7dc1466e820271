//! What the agent is to do.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::json::{self, ProtocolError};
use crate::version::AGENT_PROTOCOL;

/// What the agent is to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// Files of the kernel that are written before the program starts, in order.
    pub writes: Vec<Write>,
    /// Memory that programs map, made a device before the program starts.
    pub shared: Vec<Shared>,
    /// CXL memory that is made nodes before the program starts, in the order of its windows.
    pub expanders: Vec<Expander>,
    /// Memory policy that the program starts with; the kernel's default if `None`.
    pub policy: Option<MemoryPolicy>,
    /// What is run to its end before the program starts.
    pub preparation: Option<Preparation>,
    /// Files of the lab's own that are bound to one node's memory.
    pub tmpfs_bind: Option<TmpfsBind>,
    /// What runs beside the program, from before its start to its end.
    pub companion: Option<Companion>,
    /// Seed for fragmenting free memory before the program starts; memory is as after booting if `None`.
    pub fragment_memory: Option<u64>,
    /// What to run.
    pub program: Program,
    /// What of the run is of interest.
    pub region: RegionOfInterest,
    /// Run the program on the console, with job control, instead of on the output ports.
    pub interactive: bool,
}

/// A text that is written to a file, as `echo TEXT > FILE` does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Write {
    /// The file, such as `/proc/sys/kernel/numa_balancing`.
    pub file: PathBuf,
    /// What is written.
    pub text: String,
}

/// Programs that are run to their end, one after the other; each must succeed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preparation {
    /// What is run.
    pub programs: Vec<Program>,
    /// The folder with their files, which is removed then: the guest's files are in its memory.
    pub folder: PathBuf,
}

/// A folder whose files go to the memory of one node: the guest's files are in its memory, and the lab's own would take it from the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TmpfsBind {
    /// The folder, with files alone.
    pub folder: PathBuf,
    /// The node, by the guest's number.
    pub node: usize,
}

/// A program that runs beside another one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Companion {
    /// What is run.
    pub program: Program,
    /// A file that is there once it is at work.
    pub ready: PathBuf,
}

/// Memory that the kernel leaves alone and that programs map: `/dev/memtide/NAME`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shared {
    /// The node's name.
    pub name: String,
    /// Where it begins in physical memory.
    pub start: u64,
}

/// A CXL memory expander, whose serial number is its place among all, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expander {
    /// The node's name.
    pub name: String,
    /// Where its window begins in physical memory.
    pub start: u64,
    /// Its length in bytes, and its memory's.
    pub bytes: u64,
    /// The number that the kernel should give the node.
    pub node: usize,
}

/// A memory policy, as `set_mempolicy(2)` takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryPolicy {
    /// `MPOL_*` of the kernel's `linux/mempolicy.h`: 3 interleave, 6 weighted interleave.
    pub mode: u32,
    /// A bit a node.
    pub nodes: u64,
}

/// A program to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Its file in the guest.
    pub file: PathBuf,
    /// Its arguments, its name first.
    pub arguments: Vec<String>,
    /// Its environment.
    pub environment: Vec<(String, String)>,
    /// The folder it starts in.
    pub folder: PathBuf,
}

/// What of a run is of interest: what is modelled and measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RegionOfInterest {
    /// From the program's start to its end.
    #[default]
    Program,
    /// What lies between the marks that the program makes.
    Marks,
}

impl Task {
    /// What the lab writes.
    pub fn to_json(&self) -> Vec<u8> {
        json::encode(AGENT_PROTOCOL, self)
    }

    /// What the agent reads.
    ///
    /// # Errors
    /// If it is of another version, or no task.
    pub fn from_json(text: &[u8]) -> Result<Task, ProtocolError> {
        json::decode("task", AGENT_PROTOCOL, text)
    }
}

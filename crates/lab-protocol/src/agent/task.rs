//! The agent's task.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::json::{self, ProtocolError};
use crate::version::AGENT_PROTOCOL;

/// The agent's task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// Kernel files to write before the program starts, in order.
    pub writes: Vec<Write>,
    /// Shared memory to make a device of before the program starts.
    pub shared: Vec<Shared>,
    /// CXL memory to make nodes of before the program starts, in the order of its windows.
    pub expanders: Vec<Expander>,
    /// Memory policy of the program at its start; `None`: the kernel's default.
    pub policy: Option<MemoryPolicy>,
    /// Programs to run before the program starts.
    pub preparation: Option<Preparation>,
    /// The lab's own files to bind to one node.
    pub tmpfs_bind: Option<TmpfsBind>,
    /// A program to run in the background until the program ends.
    pub companion: Option<Companion>,
    /// Seed for fragmenting free memory before the program starts; `None`: leave memory as after boot.
    pub fragment_memory: Option<u64>,
    /// The program.
    pub program: Program,
    /// Region of interest.
    pub region: RegionOfInterest,
    /// Run the program on the console, with job control, instead of on the output ports.
    pub interactive: bool,
}

/// A write to a file, like `echo TEXT > FILE`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Write {
    /// The file, such as `/proc/sys/kernel/numa_balancing`.
    pub file: PathBuf,
    /// The text.
    pub text: String,
}

/// Programs to run in sequence; each must succeed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preparation {
    /// What is run.
    pub programs: Vec<Program>,
    /// Folder of their files, removed afterwards: the guest's files are in memory.
    pub folder: PathBuf,
}

/// A folder whose files are bound to one node: the guest's files are in memory, and the lab's own would use
/// the program's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TmpfsBind {
    /// The folder, with files only.
    pub folder: PathBuf,
    /// The node's number in the guest.
    pub node: usize,
}

/// A background program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Companion {
    /// What is run.
    pub program: Program,
    /// A file that exists once it is ready.
    pub ready: PathBuf,
}

/// Memory not managed by the kernel, which programs map: `/dev/memtide/NAME`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shared {
    /// The node's name.
    pub name: String,
    /// Its physical start address.
    pub start: u64,
}

/// A CXL memory expander. Serial numbers follow the order, from 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expander {
    /// The node's name.
    pub name: String,
    /// Physical start address of its window.
    pub start: u64,
    /// Length of the window and of its memory, in bytes.
    pub bytes: u64,
    /// The expected node number in the guest.
    pub node: usize,
}

/// A memory policy for `set_mempolicy(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryPolicy {
    /// `MPOL_*` of the kernel's `linux/mempolicy.h`: 3 interleave, 6 weighted interleave.
    pub mode: u32,
    /// Mask of nodes, one bit per node.
    pub nodes: u64,
}

/// A program to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Path of its executable in the guest.
    pub file: PathBuf,
    /// Its arguments, its name first.
    pub arguments: Vec<String>,
    /// Its environment.
    pub environment: Vec<(String, String)>,
    /// Its working folder.
    pub folder: PathBuf,
}

/// Region of interest: the part of a run that is modelled and measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RegionOfInterest {
    /// From the program's start to its end.
    #[default]
    Program,
    /// Between the program's own marks.
    Marks,
}

impl Task {
    /// Serialises the task.
    pub fn to_json(&self) -> Vec<u8> {
        json::encode(AGENT_PROTOCOL, self)
    }

    /// Parses a task.
    ///
    /// # Errors
    /// If it has another version or is not a task.
    pub fn from_json(text: &[u8]) -> Result<Task, ProtocolError> {
        json::decode("task", AGENT_PROTOCOL, text)
    }
}

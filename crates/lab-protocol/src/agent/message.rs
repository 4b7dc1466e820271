//! Messages from the agent to the lab.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::json::{self, ProtocolError};
use crate::version::AGENT_PROTOCOL;

/// A message of the agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Message {
    /// The guest has booted.
    Hello(Hello),
    /// The task failed, for this reason.
    Refused(String),
    /// The program has ended.
    Ended(Box<Ending>),
}

/// The guest at the agent's start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// Release of its kernel.
    pub kernel: String,
    /// ACPI proximity domain of each of its nodes: the node's number in the virtual machine.
    pub domains: Vec<u32>,
}

/// Result of a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ending {
    /// Its exit status; 128 + N if signal N ended it.
    pub status: u8,
    /// The signal that ended it.
    pub signal: Option<u8>,
    /// Run time on the guest's clock, in ns.
    pub guest_ns: u64,
    /// Bytes written to the output port.
    pub out_bytes: u64,
    /// Bytes written to the error port.
    pub err_bytes: u64,
    /// Kernel counters.
    pub counters: KernelCounters,
    /// Memory in use over time.
    pub samples: Vec<Sample>,
}

/// Kernel counters over the program's run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelCounters {
    /// Deltas of `/proc/vmstat` counters by name, if not zero.
    pub events: BTreeMap<String, u64>,
    /// By node.
    pub nodes: Vec<KernelNodeCounters>,
}

/// A node's counters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelNodeCounters {
    /// Memory managed by the kernel, in KiB.
    pub total_kib: u64,
    /// Allocations served from it: `numa_hit` plus `numa_miss`. A huge page counts as one.
    pub allocations: u64,
}

/// A sample of memory use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Time since the program's start, in ns.
    pub guest_ns: u64,
    /// Anonymous and shared memory on each node, in KiB.
    pub nodes_kib: Vec<u64>,
}

impl KernelCounters {
    /// A counter of `/proc/vmstat`; 0 if absent.
    pub fn event(&self, name: &str) -> u64 {
        self.events.get(name).copied().unwrap_or(0)
    }
}

impl Message {
    /// Serialises the message as one line without a line end.
    pub fn to_json(&self) -> Vec<u8> {
        json::encode(AGENT_PROTOCOL, self)
    }

    /// Parses a message.
    ///
    /// # Errors
    /// If it has another version or is not a message of the agent.
    pub fn from_json(text: &[u8]) -> Result<Message, ProtocolError> {
        json::decode("message of the agent", AGENT_PROTOCOL, text)
    }
}

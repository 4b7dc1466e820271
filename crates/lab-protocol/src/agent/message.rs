//! What the agent tells the lab.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::json::{self, ProtocolError};
use crate::version::AGENT_PROTOCOL;

/// A message of the agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Message {
    /// The guest is up.
    Hello(Hello),
    /// The task cannot be carried out, for this reason.
    Refused(String),
    /// The program has ended.
    Ended(Box<Ending>),
}

/// The guest as it is when the agent starts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// Release of its kernel.
    pub kernel: String,
    /// The ACPI proximity domain of each of its nodes, which is the node's number in the virtual machine.
    pub domains: Vec<u32>,
}

/// How a program ended, and what happened meanwhile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ending {
    /// Its exit status; 128 + N if signal N ended it.
    pub status: u8,
    /// The signal that ended it.
    pub signal: Option<u8>,
    /// From just before its start to its end on the guest's clock, in ns.
    pub guest_ns: u64,
    /// Bytes that went to the output port.
    pub out_bytes: u64,
    /// Bytes that went to the error port.
    pub err_bytes: u64,
    /// What the kernel counted.
    pub counters: KernelCounters,
    /// Memory in use over time.
    pub samples: Vec<Sample>,
}

/// What the kernel counted from the program's start to its end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelCounters {
    /// KernelCounters of `/proc/vmstat` that rose, by their name there.
    pub events: BTreeMap<String, u64>,
    /// By node.
    pub nodes: Vec<KernelNodeCounters>,
}

/// A node's counters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelNodeCounters {
    /// Memory that the kernel manages there, in KiB.
    pub total_kib: u64,
    /// Allocations served from it: `numa_hit` and `numa_miss`. One of a huge page counts as one.
    pub allocations: u64,
}

/// Memory in use at some time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Time since the program's start, in ns.
    pub guest_ns: u64,
    /// Anonymous and shared memory on each node, in KiB.
    pub nodes_kib: Vec<u64>,
}

impl KernelCounters {
    /// How often an event of `/proc/vmstat` happened.
    pub fn event(&self, name: &str) -> u64 {
        self.events.get(name).copied().unwrap_or(0)
    }
}

impl Message {
    /// What the agent writes: one line, without its end.
    pub fn to_json(&self) -> Vec<u8> {
        json::encode(AGENT_PROTOCOL, self)
    }

    /// What the lab reads.
    ///
    /// # Errors
    /// If it is of another version, or no message of the agent.
    pub fn from_json(text: &[u8]) -> Result<Message, ProtocolError> {
        json::decode("message of the agent", AGENT_PROTOCOL, text)
    }
}

//! What the lab tells its clock plugin, as a JSON file.

use std::path::PathBuf;

use memtide_core::{InitiatorId, NodeId};
use serde::{Deserialize, Serialize};

use crate::json::{self, ProtocolError};
use crate::version::CLOCK_PROTOCOL;

/// Guest-physical memory of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// The node.
    pub node: NodeId,
    /// First byte, a multiple of 2 MiB.
    pub start: u64,
    /// Length in bytes, a multiple of 2 MiB.
    pub bytes: u64,
}

/// What the clock plugin is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Machine file of the machine to model, prepared: scale carried out, all nodes fixed.
    pub machine: String,
    /// The initiator of each virtual CPU.
    pub vcpu_initiators: Vec<InitiatorId>,
    /// Which guest-physical memory is which node's.
    pub memory: Vec<Range>,
    /// Each virtual CPU has a thread of the host: the guest's clock is the host's, and the model only counts.
    pub parallel: bool,
    /// Count each instruction, not blocks of them: an access to memory that QEMU serves as a device cuts a block short.
    pub by_instruction: bool,
    /// Time of an instruction while the model is off, in ps.
    pub boot_ps: u64,
    /// File that results are written to.
    pub results: PathBuf,
    /// File of at least [`crate::counters::bytes`] bytes that the guest has as a device's memory.
    pub counters: PathBuf,
    /// The number that the guest gives each node.
    pub guest_nodes: Vec<u64>,
}

impl Config {
    /// What the lab writes.
    pub fn to_json(&self) -> Vec<u8> {
        json::encode(CLOCK_PROTOCOL, self)
    }

    /// What the plugin reads.
    ///
    /// # Errors
    /// If it is of another version, or no configuration of the clock plugin.
    pub fn from_json(text: &[u8]) -> Result<Config, ProtocolError> {
        json::decode("configuration of the clock plugin", CLOCK_PROTOCOL, text)
    }
}

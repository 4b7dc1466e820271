//! Configuration of the clock plugin, as a JSON file.

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

/// Configuration of the clock plugin.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Machine file of the modelled machine, prepared: scaled, all nodes fixed.
    pub machine: String,
    /// The initiator of each virtual CPU.
    pub vcpu_initiators: Vec<InitiatorId>,
    /// Guest-physical memory of the nodes.
    pub memory: Vec<Range>,
    /// One host thread per virtual CPU: the guest uses the host's clock, and the model only counts.
    pub parallel: bool,
    /// Count instructions, not blocks: an access to memory that QEMU emulates as a device ends a block early.
    pub by_instruction: bool,
    /// Time per instruction while the model is off, in ps.
    pub boot_ps: u64,
    /// File for the results.
    pub results: PathBuf,
    /// File of [`crate::samples::device_bytes`] bytes, all zero, which is a device's memory in the guest.
    pub counters: PathBuf,
    /// Number of each node in the guest.
    pub guest_nodes: Vec<u64>,
}

impl Config {
    /// Serialises the configuration.
    pub fn to_json(&self) -> Vec<u8> {
        json::encode(CLOCK_PROTOCOL, self)
    }

    /// Parses a configuration.
    ///
    /// # Errors
    /// If it has another version or is not a configuration of the clock plugin.
    pub fn from_json(text: &[u8]) -> Result<Config, ProtocolError> {
        json::decode("configuration of the clock plugin", CLOCK_PROTOCOL, text)
    }
}

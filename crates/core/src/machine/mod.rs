//! Machines as data: what a machine file says, checked, with the topology that follows from it.

pub mod bundled;
mod check;
mod dram;
mod field_error;
mod kernel;
mod node;
mod performance;
mod plausible;
mod processor;
mod scale;
mod topology;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use check::check_name;
pub use dram::{Arbitration, Coordinate, Dram, MapField, PagePolicy, Refresh};
pub use kernel::Kernel;
pub use node::{Energy, Fixed, Link, LoadPoint, Node};
pub use processor::{Cache, Core, Initiator, Prefetcher, Tlb};
pub use topology::{Hop, Topology};

use field_error::FieldError;

use crate::FileError;
use crate::ids::{CpuId, InitiatorId, NodeId, TierId};

/// A machine: everything that the model of it knows. Made from a machine file by [`Machine::parse`].
///
/// Figures keep the file's units, which are part of their names. Private caches, latencies and bandwidths are
/// those of the real machine; capacities are too, until [`Machine::scaled`] divides them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Short name, as given on a command line.
    pub name: String,
    /// One line on what it is.
    pub summary: String,
    /// Divides capacities, shared caches, TLB reach and time constants of the kernel, together; at least 1.
    #[serde(default = "one")]
    pub scale: u32,
    /// Where figures come from: `default` and, for any dotted path of the file (such as `node.dram.fixed`), the
    /// source that holds for all below it. A source starting with `assumed` says why.
    pub sources: BTreeMap<String, String>,
    /// Paths of the figures that were fitted to a measurement of the whole machine; two at most.
    #[serde(default)]
    pub calibrated: Vec<String>,
    /// The cores, all alike.
    pub core: Core,
    /// Cache levels, from the one next to the core outwards; none for a bare memory device.
    #[serde(default, rename = "cache")]
    pub caches: Vec<Cache>,
    /// TLB levels, from the one next to the core outwards; none means that translation is free.
    #[serde(default, rename = "tlb")]
    pub tlbs: Vec<Tlb>,
    /// The stream prefetcher beside the first shared cache, if there is one.
    #[serde(default)]
    pub prefetcher: Option<Prefetcher>,
    /// What the operating system's work costs and how often it does it.
    #[serde(default)]
    pub kernel: Kernel,
    /// Groups of CPUs, such as sockets.
    #[serde(rename = "initiator")]
    pub initiators: Vec<Initiator>,
    /// Memory nodes.
    #[serde(rename = "node")]
    pub nodes: Vec<Node>,
    /// Links between initiators, or between an initiator and a node that is not beside one.
    #[serde(default, rename = "link")]
    pub links: Vec<Link>,
    /// How initiators reach nodes; follows from the links.
    #[serde(skip)]
    pub topology: Topology,
}

fn one() -> u32 {
    1
}

/// A dotted path with the names that older files have for a node's tables replaced by today's.
fn current_path(path: &str) -> String {
    let mut parts: Vec<&str> = path.split('.').collect();
    if let ["node", _, table, ..] = parts.as_mut_slice() {
        *table = match *table {
            "timed" => "dram",
            "given" => "fixed",
            today => today,
        };
    }
    parts.join(".")
}

impl Machine {
    /// Most bytes of a machine file: a hundred times as many as the largest bundled one has.
    pub const FILE_BYTES_MAX: usize = 1 << 20;

    /// Reads and checks a machine file's text. `file` is its name, for messages.
    ///
    /// # Errors
    /// With file, line, field and what is allowed, if the text is not TOML, has an unknown or missing field,
    /// or a figure that no machine can have.
    pub fn parse(file: &str, text: &str) -> Result<Machine, FileError> {
        if text.len() > Machine::FILE_BYTES_MAX {
            let message = format!("longer than {} bytes: not a machine file", Machine::FILE_BYTES_MAX);
            return Err(FileError { file: file.to_owned(), line: 1, field: String::new(), message });
        }
        let mut machine: Machine = toml::from_str(text).map_err(|e| FileError::of_toml(file, text, &e))?;
        let sources = machine.sources.into_iter();
        machine.sources = sources.map(|(path, source)| (current_path(&path), source)).collect();
        machine.calibrated.iter_mut().for_each(|path| *path = current_path(path));
        machine.complete().map_err(|error| error.within(file, text))
    }

    /// Checks a machine that was made as a value, and fills in its [`topology`](Machine::topology).
    ///
    /// # Errors
    /// As [`Machine::parse`]; `file` and the line are those of the machine's own file, [`Machine::to_toml`].
    pub fn checked(self, file: &str) -> Result<Machine, FileError> {
        let text = self.to_toml();
        self.complete().map_err(|error| error.within(file, &text))
    }

    /// What is allowed in this machine's file but most likely not meant, such as a bandwidth in GB/s where MB/s are expected:
    /// each with the value, and what is plausible. `file` and `text` are those that the machine was made from.
    pub fn warnings(&self, file: &str, text: &str) -> Vec<FileError> {
        plausible::doubts(self).into_iter().map(|doubt| doubt.within(file, text)).collect()
    }

    fn complete(mut self) -> Result<Machine, FieldError> {
        check::check(&self)?;
        self.topology = Topology::of(&self)?;
        Ok(self)
    }

    /// The machine file that gives this machine.
    ///
    /// # Panics
    /// Never: all that a machine holds can be written as TOML.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a machine can be written as TOML")
    }

    /// CPUs of all initiators.
    pub fn cpus(&self) -> usize {
        self.initiators.iter().map(|i| usize::from(i.cpus)).sum()
    }

    /// The initiator that a CPU belongs to; the CPU is taken modulo those there are.
    pub fn initiator_of(&self, cpu: CpuId) -> InitiatorId {
        let mut left = cpu.index() % self.cpus();
        for (index, initiator) in self.initiators.iter().enumerate() {
            match left.checked_sub(usize::from(initiator.cpus)) {
                None => return InitiatorId::from(index),
                Some(rest) => left = rest,
            }
        }
        unreachable!("the CPU was taken modulo the number of CPUs")
    }

    /// All nodes' ids, in order.
    pub fn node_ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes.len()).map(NodeId::from)
    }

    /// Number of tiers: they are numbered from 0 without a gap.
    pub fn tiers(&self) -> usize {
        self.nodes.iter().map(|n| usize::from(n.tier) + 1).max().unwrap_or(0)
    }

    /// The tier of a node.
    pub fn tier_of(&self, node: NodeId) -> TierId {
        TierId(self.nodes[node.index()].tier)
    }

    /// The nodes of a tier, in order.
    pub fn nodes_in(&self, tier: TierId) -> impl Iterator<Item = NodeId> + '_ {
        self.node_ids().filter(move |&n| self.tier_of(n) == tier)
    }

    /// Where a figure comes from: the source given for the longest prefix of its dotted path.
    pub fn source_of(&self, path: &str) -> &str {
        let mut prefix = path;
        loop {
            if let Some(source) = self.sources.get(prefix) {
                return source;
            }
            match prefix.rfind('.') {
                Some(dot) => prefix = &prefix[..dot],
                None => return self.sources.get("default").map_or("", String::as_str),
            }
        }
    }
}

#[cfg(test)]
mod tests;

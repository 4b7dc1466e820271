//! Machines as data: the content of a machine file, checked, and its topology.

mod address_map;
pub mod bundled;
mod check;
mod check_dram;
pub mod device;
mod dram;
mod field_error;
mod kernel;
mod node;
mod performance;
mod plausible;
mod processor;
mod proportions;
mod scale;
mod setting;
mod slice;
mod topology;
mod unit;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use address_map::{Coordinate, MapField, MapHash};
pub use check::check_name;
pub use dram::{Arbitration, Dram, PagePolicy, Refresh, Subarrays};
pub use kernel::Kernel;
pub use node::{Energy, Fixed, Link, LoadPoint, Node};
pub use processor::{Cache, Core, Initiator, Prefetcher, Tlb};
pub use setting::{Figure, Setting};
pub use topology::{Hop, Topology};
pub use unit::unit_of;

use device::Expanded;
use field_error::FieldError;

use crate::FileError;
use crate::ids::{CpuId, InitiatorId, NodeId, TierId};

/// A machine: all data of its model. Created from a machine file by [`Machine::parse`].
///
/// Figures keep the file's units, which are part of their names. They are those of the whole machine until
/// [`Machine::reduced`] applies its `slice` and its `scale`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Short name for the command line.
    pub name: String,
    /// One-line description.
    pub summary: String,
    /// Divisor of cores, channels, links, shared caches and capacities together ([`Machine::sliced`]); 1 to
    /// 1024, a divisor of the CPUs of each initiator.
    #[serde(default = "one")]
    pub slice: u32,
    /// Divisor of capacities, caches, TLB reach and the kernel's time constants together; at least 1.
    #[serde(default = "one")]
    pub scale: u32,
    /// Largest measured deviation of a policy's ratio to `local` from that at half and a quarter of the
    /// file's slice and scale, in per cent; `None` until measured (`docs/reductions.md`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reduction_deviation_percent: Option<f64>,
    /// Sources of figures: `default`, and for any dotted path of the file (such as `node.dram.fixed`) the
    /// source of everything below it. A source that starts with `assumed` says why.
    pub sources: BTreeMap<String, String>,
    /// Paths of the figures fitted to a measurement of the whole machine; at most two.
    #[serde(default)]
    pub calibrated: Vec<String>,
    /// The cores, all equal.
    pub core: Core,
    /// Cache levels, nearest to the core first; empty for a bare memory device.
    #[serde(default, rename = "cache")]
    pub caches: Vec<Cache>,
    /// TLB levels, nearest to the core first; if empty, translation is free.
    #[serde(default, rename = "tlb")]
    pub tlbs: Vec<Tlb>,
    /// The stream prefetcher in front of the first shared cache, if any.
    #[serde(default)]
    pub prefetcher: Option<Prefetcher>,
    /// Costs and periods of the operating system.
    #[serde(default)]
    pub kernel: Kernel,
    /// Groups of CPUs, such as sockets.
    #[serde(rename = "initiator")]
    pub initiators: Vec<Initiator>,
    /// Memory nodes.
    #[serde(rename = "node")]
    pub nodes: Vec<Node>,
    /// Links between initiators, or between an initiator and a node not attached to one.
    #[serde(default, rename = "link")]
    pub links: Vec<Link>,
    /// Routes from initiators to nodes; derived from the links.
    #[serde(skip)]
    pub topology: Topology,
}

fn one() -> u32 {
    1
}

/// A dotted path with the current names of a node's tables, which older files call differently.
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
    /// Maximum size of a machine file in bytes: a hundred times the largest bundled one.
    pub const FILE_BYTES_MAX: usize = 1 << 20;

    /// Parses and checks a machine file. `file` is its name for messages.
    ///
    /// # Errors
    /// If the text is not TOML, has an unknown or missing field, or an impossible figure: file, line, field
    /// and what is allowed.
    pub fn parse(file: &str, text: &str) -> Result<Machine, FileError> {
        if text.len() > Machine::FILE_BYTES_MAX {
            let message = format!("longer than {} bytes: not a machine file", Machine::FILE_BYTES_MAX);
            return Err(FileError { file: file.to_owned(), line: 1, field: String::new(), message });
        }
        if text.trim().is_empty() {
            let message = "an empty file: not a machine file".to_owned();
            return Err(FileError { file: file.to_owned(), line: 1, field: String::new(), message });
        }
        let expanded = Expanded::of(file, text)?;
        let read = toml::from_str(&expanded.text);
        let mut machine: Machine =
            read.map_err(|error| expanded.in_file(FileError::of_toml(file, &expanded.text, &error)))?;
        let sources = machine.sources.into_iter();
        machine.sources = sources.map(|(path, source)| (current_path(&path), source)).collect();
        for (path, source) in &expanded.sources {
            machine.sources.entry(path.clone()).or_insert_with(|| source.clone());
        }
        machine.calibrated.iter_mut().for_each(|path| *path = current_path(path));
        machine.complete().map_err(|error| expanded.in_file(error.within(file, &expanded.text)))
    }

    /// Checks a machine created as a value, and computes its [`topology`](Machine::topology).
    ///
    /// # Errors
    /// As [`Machine::parse`]; `file` and the line refer to [`Machine::to_toml`].
    pub fn checked(self, file: &str) -> Result<Machine, FileError> {
        let text = self.to_toml();
        self.complete().map_err(|error| error.within(file, &text))
    }

    /// Warnings about allowed but implausible figures, such as a bandwidth in GB/s instead of MB/s, each with
    /// its value and the plausible range, and those of [`Machine::reduction_warnings`]. `file` and `text` are
    /// the machine file's name and content.
    pub fn warnings(&self, file: &str, text: &str) -> Vec<FileError> {
        // The text of a machine that was parsed can be expanded.
        let Ok(expanded) = Expanded::of(file, text) else { return Vec::new() };
        let doubts = plausible::doubts(self).into_iter().chain(proportions::disproportions(self));
        doubts.map(|doubt| expanded.in_file(doubt.within(file, &expanded.text))).collect()
    }

    fn complete(mut self) -> Result<Machine, FieldError> {
        check::check(&self)?;
        self.topology = Topology::of(&self)?;
        Ok(self)
    }

    /// The machine file of this machine.
    ///
    /// # Panics
    /// Never: everything in a machine is valid TOML.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a machine can be written as TOML")
    }

    /// This machine without the deviation measured at its file's slice and scale.
    pub fn without_deviation(mut self) -> Machine {
        self.reduction_deviation_percent = None;
        self.sources.remove("reduction_deviation_percent");
        self
    }

    /// Number of CPUs of all initiators.
    pub fn cpus(&self) -> usize {
        self.initiators.iter().map(|i| usize::from(i.cpus)).sum()
    }

    /// The initiator of a CPU, taken modulo the number of CPUs.
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

    /// Ids of all nodes, in order.
    pub fn node_ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes.len()).map(NodeId::from)
    }

    /// Number of tiers, numbered from 0 without gaps.
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

    /// The source of a figure: that of the longest prefix of its dotted path.
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
mod reduction_tests;
#[cfg(test)]
mod tests;

//! Memory nodes and links.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use super::dram::Dram;
use crate::units::{LINE_BYTES, PAGE_BYTES};

/// A memory node: *dram* (a memory device, whose latency and bandwidth emerge from its timings) or *fixed*
/// (latency and bandwidth from a datasheet or a measurement). Older machine files call these `timed` and
/// `given`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Name, referred to by links.
    pub name: String,
    /// Tier: 0 is the fastest.
    pub tier: u8,
    /// Capacity in MiB.
    pub capacity_mib: u64,
    /// The initiator that it is attached to; `None` for a node behind a link.
    #[serde(default)]
    pub initiator: Option<String>,
    /// Whether ordinary allocations leave it alone: only migration brings pages there (pms section 3.2).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub isolated: bool,
    /// A device modelled command by command.
    #[serde(default, alias = "timed")]
    pub dram: Option<Dram>,
    /// Figures of the whole node.
    #[serde(default, alias = "given")]
    pub fixed: Option<Fixed>,
    /// Energy of its device.
    #[serde(default)]
    pub energy: Energy,
    /// Write endurance of a cell; `None` for memory without wear.
    #[serde(default)]
    pub endurance_writes: Option<f64>,
    /// Equal slices of a machine that share the device, of which this machine is one: [`Machine::sliced`]
    /// sets it where a slice gets less than a whole channel. Capacity, the bandwidths of a fixed node and
    /// standby power are this slice's share; the timings of a dram node are the device's.
    ///
    /// [`Machine::sliced`]: super::Machine::sliced
    #[serde(default = "unshared", skip_serializing_if = "is_unshared")]
    pub sharing_slices: u16,
}

pub(super) fn unshared() -> u16 {
    1
}

fn is_unshared(slices: &u16) -> bool {
    *slices == 1
}

/// A node described by its figures.
///
/// Latencies are load-to-use, as measured by a pointer chase on the attached initiator: they include the path
/// through the caches, but not links.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fixed {
    /// Idle latency of a read, in ns.
    pub read_latency_ns: f64,
    /// Time from a write's arrival until it is in the medium, in ns. Writes are posted, so it delays later
    /// accesses only through bandwidth. Default: the read latency.
    #[serde(default)]
    pub write_latency_ns: Option<f64>,
    /// Bandwidth of reads alone, in MB/s. Reads and writes share the node's service time.
    pub read_bandwidth_mbps: f64,
    /// Bandwidth of writes alone, in MB/s. May exceed that of reads, for instance if writes are posted and
    /// reads depend on each other. Default: that of reads.
    #[serde(default)]
    pub write_bandwidth_mbps: Option<f64>,
    /// Measured loaded-latency curve: read latency at increasing shares of the read bandwidth. If empty,
    /// reads queue first come, first served.
    #[serde(default)]
    pub loaded: Vec<LoadPoint>,
}

/// A point of a loaded-latency curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadPoint {
    /// Share of the read bandwidth in use, 0 to 1.
    pub load: f64,
    /// Mean read latency at that load, in ns.
    pub latency_ns: f64,
}

/// Energy of a memory device. All zero: unknown, and reported as such.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Energy {
    /// Per line read, in nJ.
    pub read_nj: f64,
    /// Per line written, in nJ.
    pub write_nj: f64,
    /// Per row opened and closed, in nJ (dram nodes).
    pub activate_nj: f64,
    /// Per refresh of a rank, in nJ (dram nodes).
    pub refresh_nj: f64,
    /// Standby power of the whole node, in mW.
    pub standby_mw: f64,
}

/// A link with equal properties in both directions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Its two ends: names of initiators or nodes.
    #[serde(deserialize_with = "two_ends")]
    pub between: [String; 2],
    /// Latency added to a read, both directions together, in ns.
    pub latency_ns: f64,
    /// Payload bandwidth per direction, in MB/s.
    pub bandwidth_mbps: f64,
    /// Equal slices of a machine that share the link; `bandwidth_mbps` is the share of one of them.
    #[serde(default = "unshared", skip_serializing_if = "is_unshared")]
    pub sharing_slices: u16,
}

/// Rejects lists of other lengths: an array would take the first two and ignore the others.
fn two_ends<'de, D: Deserializer<'de>>(from: D) -> Result<[String; 2], D::Error> {
    Vec::<String>::deserialize(from)?.try_into().map_err(|ends: Vec<String>| {
        let entries = if ends.len() == 1 { "entry" } else { "entries" };
        D::Error::custom(format!("has {} {entries}; a link is between two", ends.len()))
    })
}

impl Node {
    /// Capacity in lines.
    pub fn lines(&self) -> u64 {
        (self.capacity_mib << 20) / LINE_BYTES
    }

    /// Capacity in base pages.
    pub fn pages(&self) -> u64 {
        (self.capacity_mib << 20) / PAGE_BYTES
    }
}

//! Memory nodes and links.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use super::dram::Dram;
use crate::units::{LINE_BYTES, PAGE_BYTES};

/// A memory node: *dram* (a memory device from whose timings latency and bandwidth emerge) or *fixed*
/// (latency and bandwidth are figures of a datasheet or a measurement). Older machine files call these
/// `timed` and `given`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Name, for links to refer to.
    pub name: String,
    /// Tier: 0 is the fastest.
    pub tier: u8,
    /// Capacity in MiB.
    pub capacity_mib: u64,
    /// The initiator it is beside; none for a node that is reached by a link alone.
    #[serde(default)]
    pub initiator: Option<String>,
    /// A device whose commands are timed one by one.
    #[serde(default, alias = "timed")]
    pub dram: Option<Dram>,
    /// Figures of the node as a whole.
    #[serde(default, alias = "given")]
    pub fixed: Option<Fixed>,
    /// Energy of its device.
    #[serde(default)]
    pub energy: Energy,
    /// Writes that a cell endures; none for memory that does not wear.
    #[serde(default)]
    pub endurance_writes: Option<f64>,
}

/// A node described by its figures.
///
/// Latencies are load-to-use, as a pointer chase on the initiator beside it sees them: the way through the
/// caches is in them, links are not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fixed {
    /// Idle latency of a read, in ns.
    pub read_latency_ns: f64,
    /// Time from a write's arrival until it is in the medium, in ns; writes are posted, so that it delays later
    /// accesses only through bandwidth. Default: the read latency.
    #[serde(default)]
    pub write_latency_ns: Option<f64>,
    /// Bandwidth of reads alone, in MB/s. Reads and writes share the node's time.
    pub read_bandwidth_mbps: f64,
    /// Bandwidth of writes alone, in MB/s. It may be above that of reads, as where writes are posted and
    /// reads wait for one another. Default: that of reads.
    #[serde(default)]
    pub write_bandwidth_mbps: Option<f64>,
    /// Measured loaded latency: read latency at rising shares of the read bandwidth. Without it, reads queue
    /// first come, first served.
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

/// Energy of a memory device. All zero: not known, and reported so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Energy {
    /// Of reading a line, in nJ.
    pub read_nj: f64,
    /// Of writing a line, in nJ.
    pub write_nj: f64,
    /// Of opening and closing a row, in nJ (dram nodes).
    pub activate_nj: f64,
    /// Of refreshing a rank once, in nJ (dram nodes).
    pub refresh_nj: f64,
    /// Standby power of the whole node, in mW.
    pub standby_mw: f64,
}

/// A link, alike in both directions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Its two ends: names of initiators or nodes.
    #[serde(deserialize_with = "two_ends")]
    pub between: [String; 2],
    /// What it adds to a read's latency (both ways together), in ns.
    pub latency_ns: f64,
    /// Payload that it carries in each direction, in MB/s.
    pub bandwidth_mbps: f64,
}

/// An array would take the first two of several and leave the others out.
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

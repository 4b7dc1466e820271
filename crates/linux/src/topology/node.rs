//! Memory nodes.

use std::path::Path;

use memtide_core::{CpuId, NodeId};

use super::TopologyError;
use super::sysfs::Sysfs;

pub(super) const NODES: &str = "devices/system/node";
const TIERS: &str = "devices/virtual/memory_tiering";

/// A node: memory, CPUs, or both.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Node number.
    pub id: NodeId,
    /// Its online CPUs.
    pub cpus: Vec<CpuId>,
    /// Its memory; `None` for a node of CPUs alone.
    pub memory: Option<Capacity>,
    /// Rank of its memory tier in the kernel, 0 being the fastest; `None` without memory, or before Linux
    /// 6.1.
    pub tier: Option<u8>,
    /// Distances to the online nodes (ACPI's SLIT); 10 is local.
    pub distances: Vec<(NodeId, u8)>,
    /// The firmware's figures (ACPI's HMAT), if any.
    pub firmware: Option<Performance>,
}

/// A node's memory, in KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// Total managed by the kernel.
    pub total_kib: u64,
    /// Free.
    pub free_kib: u64,
}

/// Performance from the nearest initiators. A figure that the firmware leaves out is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Performance {
    /// The nodes of these initiators.
    pub initiators: Vec<NodeId>,
    /// Idle read latency in ns.
    pub read_latency_ns: Option<f64>,
    /// Idle write latency in ns.
    pub write_latency_ns: Option<f64>,
    /// Read bandwidth in MB/s.
    pub read_bandwidth_mbps: Option<f64>,
    /// Write bandwidth in MB/s.
    pub write_bandwidth_mbps: Option<f64>,
}

impl Node {
    /// The distance to another node; `None` to one that is offline.
    pub fn distance(&self, to: NodeId) -> Option<u8> {
        self.distances.iter().find(|(node, _)| *node == to).map(|(_, distance)| *distance)
    }
}

/// All online nodes, in order.
pub fn nodes(sysfs: &Sysfs) -> Result<Vec<Node>, TopologyError> {
    let file = format!("{NODES}/online");
    let online = sysfs.list(&file)?.ok_or_else(|| sysfs.fault(&file, "is missing: a kernel without NUMA"))?;
    let most = u16::from(u8::MAX);
    if online.iter().any(|&node| node > most) {
        return Err(sysfs.fault(&file, format!("node numbers up to {most} are supported")));
    }
    let ids: Vec<NodeId> = online.into_iter().map(|node| NodeId(node as u8)).collect();
    let with_memory = sysfs.list(&format!("{NODES}/has_memory"))?.unwrap_or_default();
    let tiers = tiers(sysfs)?;
    let read = |&id: &NodeId| {
        let memory = with_memory.contains(&id.0.into());
        node(sysfs, id, &ids, memory, tiers.iter().position(|tier| tier.contains(&id.0.into())))
    };
    ids.iter().map(read).collect()
}

/// The kernel's memory tiers, fastest first, as the nodes in each.
fn tiers(sysfs: &Sysfs) -> Result<Vec<Vec<u16>>, TopologyError> {
    let numbers = sysfs.numbered::<u16>(TIERS, "memory_tier")?;
    let nodes = |number| sysfs.list(&format!("{TIERS}/memory_tier{number}/nodelist"));
    let tiers: Result<Vec<_>, _> = numbers.into_iter().map(nodes).collect();
    Ok(tiers?.into_iter().flatten().filter(|nodes| !nodes.is_empty()).collect())
}

fn node(
    sysfs: &Sysfs,
    id: NodeId,
    all: &[NodeId],
    memory: bool,
    tier: Option<usize>,
) -> Result<Node, TopologyError> {
    let file = |name: &str| format!("{NODES}/node{}/{name}", id.0);
    let cpus = sysfs.list(&file("cpulist"))?.unwrap_or_default();
    let meminfo = file("meminfo");
    let capacity = if memory { sysfs.read(&meminfo, capacity)? } else { None };
    let distances = sysfs.read(&file("distance"), distances)?.unwrap_or_default();
    Ok(Node {
        id,
        cpus: cpus.into_iter().map(CpuId).collect(),
        memory: capacity,
        tier: tier.and_then(|rank| u8::try_from(rank).ok()),
        distances: all.iter().copied().zip(distances).collect(),
        firmware: firmware(sysfs, &file(""))?,
    })
}

/// The current memory of a node of this system; `None` if there is no such node, or it has no memory.
pub fn memory_of(id: NodeId) -> Option<Capacity> {
    let meminfo = format!("{NODES}/node{}/meminfo", id.0);
    Sysfs(Path::new("/sys")).read(&meminfo, capacity).ok()?
}

fn capacity(meminfo: &str) -> Option<Capacity> {
    let figure = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.split_once(name))?;
        line.1.split_whitespace().next()?.parse().ok()
    };
    Some(Capacity { total_kib: figure("MemTotal:")?, free_kib: figure("MemFree:")? })
}

fn distances(text: &str) -> Option<Vec<u8>> {
    text.split_whitespace().map(|word| word.parse().ok()).collect()
}

/// Class 1 holds the nearest CPUs, class 0 the nearest initiators of any kind
/// (Documentation/admin-guide/mm/numaperf.rst; bandwidth there is in MiB/s).
fn firmware(sysfs: &Sysfs, node: &str) -> Result<Option<Performance>, TopologyError> {
    const MIB_PER_MB: f64 = 1.048_576;
    for class in ["access1", "access0"] {
        let folder = format!("{node}{class}/initiators");
        let figure = |name: &str| -> Result<Option<f64>, TopologyError> {
            let found: Option<u32> = sysfs.value(&format!("{folder}/{name}"))?;
            Ok(found.filter(|&figure| figure > 0).map(f64::from))
        };
        let mbps = |name: &str| Ok(figure(name)?.map(|mib| mib * MIB_PER_MB));
        let found = Performance {
            initiators: sysfs.numbered::<u8>(&folder, "node")?.into_iter().map(NodeId).collect(),
            read_latency_ns: figure("read_latency")?,
            write_latency_ns: figure("write_latency")?,
            read_bandwidth_mbps: mbps("read_bandwidth")?,
            write_bandwidth_mbps: mbps("write_bandwidth")?,
        };
        if found.read_latency_ns.is_some() || found.read_bandwidth_mbps.is_some() {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

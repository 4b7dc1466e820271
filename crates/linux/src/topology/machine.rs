//! Converts this system to a machine.

use std::collections::BTreeMap;

use memtide_core::machine::{
    Cache, Core, Energy, Fixed, Initiator, Kernel, Link, LoadPoint, Machine, Node, Prefetcher, Tlb, Topology,
};
use memtide_core::{FileError, NodeId};

use super::{Measured, MeasuredProcessor, Measurements, Node as SystemNode, System};

/// Why a system cannot be converted to a machine.
#[derive(Debug, thiserror::Error)]
pub enum NoMachine {
    /// Neither the firmware nor a measurement provides a figure.
    #[error("the firmware does not report latency and bandwidth of node {} from the CPUs of node {}",
        node.0, initiator.0)]
    Unknown {
        /// The node with the CPUs.
        initiator: NodeId,
        /// The node with the memory.
        node: NodeId,
    },
    /// No node has CPUs, or none has memory.
    #[error("no node has {0}")]
    Nothing(&'static str),
    /// The figures are invalid for a machine.
    #[error("the figures are not a valid machine: {0}")]
    Refused(#[from] Box<FileError>),
}

/// Read latency in ns, read and write bandwidth in MB/s, and their source.
struct Reach {
    read_ns: f64,
    write_ns: Option<f64>,
    read_mbps: f64,
    write_mbps: Option<f64>,
    loaded: Vec<LoadPoint>,
    source: &'static str,
}

/// Figures that override the firmware's.
#[derive(Clone, Copy)]
struct Known<'a> {
    figures: &'a [Measured],
    source: &'static str,
}

pub(super) const MEASURED: &str = "measured: memtide measure";
const FIRMWARE: &str = "firmware (ACPI HMAT)";
const PLACEHOLDER: &str = "assumed: ACPI's distances (SLIT) of 10 ns, 10 GB/s; placeholders";
const DISTANCE: &str = "assumed: the near node's latency by ACPI's distances (SLIT); its bandwidth";

impl System {
    /// This system as a machine, with all of its nodes. Measurements override the firmware's figures. What
    /// neither provides, such as core buffers, is assumed, and marked so. Its file is [`Machine::to_toml`].
    ///
    /// # Errors
    /// If the latency or bandwidth of a node is unknown, or the figures contradict each other.
    pub fn machine(&self, name: &str, measured: &Measurements) -> Result<Machine, NoMachine> {
        let known = Known { figures: &measured.pairs, source: MEASURED };
        self.made(name, known, measured.processor.as_ref())
    }

    /// This system as a machine for policies that need no more than tiers and distances: latencies and
    /// bandwidths missing in the firmware are derived from ACPI's distances, and marked so.
    ///
    /// # Errors
    /// If no node has CPUs, or none has memory.
    pub fn machine_without_figures(&self, name: &str) -> Result<Machine, NoMachine> {
        let mut figures = Vec::new();
        for from in self.with_cpus().map(|node| node.id) {
            for to in self.with_memory() {
                if self.reach(from, to, Known { figures: &[], source: PLACEHOLDER }).is_ok() {
                    continue;
                }
                let beside = |node: &&SystemNode| node.id == from;
                let distance = self.nodes.iter().find(beside).and_then(|node| node.distance(to.id));
                let idle_ns = 10.0 * f64::from(distance.unwrap_or(10));
                let (read_mbps, write_mbps, loaded) = (10e3, None, Vec::new());
                figures.push(Measured {
                    initiator: from,
                    node: to.id,
                    idle_ns,
                    read_mbps,
                    write_mbps,
                    loaded,
                });
            }
        }
        self.made(name, Known { figures: &figures, source: PLACEHOLDER }, None)
    }

    fn made(
        &self,
        name: &str,
        known: Known<'_>,
        processor: Option<&MeasuredProcessor>,
    ) -> Result<Machine, NoMachine> {
        let mut sources = BTreeMap::from([("default".to_owned(), "Linux's sysfs".to_owned())]);
        for (path, why) in ASSUMED {
            sources.insert(path.to_owned(), format!("assumed: {why}"));
        }
        let mut machine = Machine {
            name: name.to_owned(),
            summary: format!("{}, as Linux shows it", self.summary()),
            slice: 1,
            scale: 1,
            reduction_deviation_percent: None,
            core: self.core(),
            caches: self.caches(),
            tlbs: tlbs(),
            prefetcher: Some(Prefetcher {
                streams: 32,
                distance_lines: 16,
                stride_lines: 1,
                trigger_misses: 3,
                next_page: false,
                first_cache: false,
            }),
            kernel: Kernel::default(),
            initiators: self.initiators(),
            nodes: self.machine_nodes(known, &mut sources)?,
            links: self.links(known, &mut sources)?,
            sources,
            calibrated: Vec::new(),
            topology: Topology::default(),
        };
        if let Some(processor) = processor {
            processor.apply(&mut machine);
        }
        Ok(machine.checked(name).map_err(Box::new)?)
    }

    fn summary(&self) -> String {
        let cores: Vec<String> =
            self.initiators().iter().map(|initiator| initiator.cpus.to_string()).collect();
        let memory: Vec<String> = self.with_memory().map(|node| node.id.to_string()).collect();
        format!("{} cores, memory in {}", cores.join(" + "), memory.join(", "))
    }

    fn initiators(&self) -> Vec<Initiator> {
        let cores = |node: &SystemNode| (node.cpus.len() as u16 / self.processor.threads_per_core).max(1);
        self.with_cpus().map(|node| Initiator { name: cpus_of(node.id), cpus: cores(node) }).collect()
    }

    fn core(&self) -> Core {
        Core {
            clock_mhz: self.processor.clock_mhz.unwrap_or(2500.0),
            instructions_per_cycle: 3.0,
            reorder_buffer: 224,
            store_queue: 64,
            outstanding_misses: 12,
            write_streaming_lines: 0,
        }
    }

    fn caches(&self) -> Vec<Cache> {
        const CYCLES: [f64; 4] = [4.0, 14.0, 50.0, 80.0];
        let threads = self.processor.threads_per_core;
        let caches = self.processor.caches.iter().zip(CYCLES);
        caches
            .map(|(cache, latency_cycles)| Cache {
                name: format!("L{}", cache.level),
                capacity_kib: cache.capacity_kib,
                ways: cache.ways,
                latency_cycles,
                shared_by: (cache.cpus / threads).max(1),
                slice: false,
            })
            .collect()
    }

    fn machine_nodes(
        &self,
        known: Known<'_>,
        sources: &mut BTreeMap<String, String>,
    ) -> Result<Vec<Node>, NoMachine> {
        let ranks = self.tier_ranks();
        let mut nodes = Vec::new();
        for node in self.with_memory() {
            let beside = self.nearest_cpus(node).ok_or(NoMachine::Nothing("CPUs"))?;
            let reach = self.reach(beside, node, known)?;
            let name = name_of(node.id);
            sources.insert(format!("node.{name}.fixed"), reach.source.to_owned());
            nodes.push(Node {
                tier: ranks.iter().position(|&rank| rank == rank_of(node)).unwrap_or(0) as u8,
                capacity_mib: node.memory.map_or(0, |memory| memory.total_kib >> 10),
                initiator: Some(cpus_of(beside)),
                isolated: false,
                dram: None,
                fixed: Some(Fixed {
                    read_latency_ns: reach.read_ns,
                    write_latency_ns: reach.write_ns,
                    read_bandwidth_mbps: reach.read_mbps,
                    write_bandwidth_mbps: reach.write_mbps,
                    loaded: reach.loaded,
                }),
                energy: Energy::default(),
                endurance_writes: None,
                sharing_slices: 1,
                name,
            });
        }
        if nodes.is_empty() { Err(NoMachine::Nothing("memory")) } else { Ok(nodes) }
    }

    /// The kernel's non-empty tiers, fastest first.
    fn tier_ranks(&self) -> Vec<u8> {
        let mut ranks: Vec<u8> = self.with_memory().map(rank_of).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }

    /// A link between each pair of nodes with CPUs, from the extra cost that each sees to the other's memory.
    fn links(
        &self,
        known: Known<'_>,
        sources: &mut BTreeMap<String, String>,
    ) -> Result<Vec<Link>, NoMachine> {
        let ids: Vec<NodeId> = self.with_cpus().map(|node| node.id).collect();
        let mut links = Vec::new();
        for (at, &first) in ids.iter().enumerate() {
            for &second in &ids[at + 1..] {
                let mut more: Vec<(f64, f64, &'static str)> = Vec::new();
                for (from, beside) in [(first, second), (second, first)] {
                    for node in self.with_memory().filter(|node| self.nearest_cpus(node) == Some(beside)) {
                        let (near, far) = (self.reach(beside, node, known)?, self.reach(from, node, known)?);
                        more.push(((far.read_ns - near.read_ns).max(0.0), far.read_mbps, far.source));
                    }
                }
                let Some(source) = more.first().map(|more| more.2) else { continue };
                sources.insert("link".to_owned(), source.to_owned());
                links.push(Link {
                    between: [cpus_of(first), cpus_of(second)],
                    latency_ns: more.iter().map(|more| more.0).sum::<f64>() / more.len() as f64,
                    bandwidth_mbps: more.iter().map(|more| more.1).fold(0.0, f64::max),
                    sharing_slices: 1,
                });
            }
        }
        Ok(links)
    }

    fn reach(&self, from: NodeId, to: &SystemNode, known: Known<'_>) -> Result<Reach, NoMachine> {
        if let Some(found) = known.figures.iter().find(|found| (found.initiator, found.node) == (from, to.id))
        {
            return Ok(Reach {
                read_ns: found.idle_ns,
                write_ns: None,
                read_mbps: found.read_mbps,
                write_mbps: found.write_mbps,
                loaded: found.curve(),
                source: known.source,
            });
        }
        let told = to.firmware.as_ref().and_then(|told| {
            Some(Reach {
                read_ns: told.read_latency_ns?,
                write_ns: told.write_latency_ns,
                read_mbps: told.read_bandwidth_mbps?,
                write_mbps: told.write_bandwidth_mbps,
                loaded: Vec::new(),
                source: FIRMWARE,
            })
        });
        let told = told.ok_or(NoMachine::Unknown { initiator: from, node: to.id })?;
        let near = self.nearest_cpus(to);
        if near == Some(from) {
            return Ok(told);
        }
        let distance = |node: Option<NodeId>| {
            node.and_then(|id| self.nodes.iter().find(|node| node.id == id))
                .and_then(|node| node.distance(to.id))
        };
        match (distance(near), distance(Some(from))) {
            (Some(near @ 1..), Some(far)) => {
                let read_ns = told.read_ns * f64::from(far.max(near)) / f64::from(near);
                Ok(Reach { read_ns, source: DISTANCE, ..told })
            }
            _ => Err(NoMachine::Unknown { initiator: from, node: to.id }),
        }
    }
}

/// The kernel's tier; without tiers, CPU-less memory counts as slower.
fn rank_of(node: &SystemNode) -> u8 {
    node.tier.unwrap_or(u8::from(node.cpus.is_empty()))
}

fn cpus_of(node: NodeId) -> String {
    format!("cpus{}", node.0)
}

fn name_of(node: NodeId) -> String {
    format!("node{}", node.0)
}

/// Values that the kernel does not provide.
const ASSUMED: [(&str, &str); 5] = [
    (
        "core",
        "buffers of a server core of about 2020; 3 instructions a cycle when nothing waits; 2.5 GHz if the \
         kernel knows no clock",
    ),
    ("cache", "latencies of 4, 14 and 50 cycles; the rest is Linux's sysfs"),
    ("tlb", "64 and 1536 entries, 30 cycles a walk, the tables being cached"),
    ("prefetcher", "an L2 streamer of 32 streams, 16 lines ahead"),
    ("kernel", "memtide's defaults, see docs/machines.md"),
];

fn tlbs() -> Vec<Tlb> {
    let level = |name: &str, entries, ways, latency_cycles, walk_cycles| Tlb {
        name: name.to_owned(),
        entries,
        ways,
        latency_cycles,
        walk_cycles,
        cold_walk_cycles: None,
        nested_walks: false,
        walkers: 1,
    };
    vec![level("L1", 64, 4, 0.0, 0.0), level("L2", 1536, 12, 7.0, 30.0)]
}

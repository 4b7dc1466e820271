//! The guest's nodes and their numbers in the guest's kernel and in QEMU.

use std::path::Path;

use memtide_core::{InitiatorId, Machine, NodeId};

use crate::memory::Memory;

/// A virtual machine's nodes and CPUs.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The modelled machine: scaled, all nodes fixed, with the bandwidth of its virtual CPUs.
    pub machine: Machine,
    /// The initiator of each virtual CPU.
    pub vcpu_initiators: Vec<InitiatorId>,
    /// The guest's nodes: those of `machine` (with virtual CPUs first, then others, absent ones, CXL ones),
    /// then a memoryless one for each initiator with virtual CPUs and no node beside it.
    /// [`Layout::linux_numbers`] returns their numbers in the guest.
    pub nodes: Vec<GuestNode>,
    /// Distances between the guest's nodes, as in ACPI's SLIT.
    pub distances: Vec<Vec<u8>>,
    /// Deviations from the machine file, and why.
    pub notes: Vec<String>,
}

/// A node of the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestNode {
    /// Its name in the machine file; the initiator's name if it has no memory.
    pub name: String,
    /// Memory in MiB.
    pub mib: u64,
    /// Kind of memory.
    pub memory: Memory,
    /// Its virtual CPUs.
    pub vcpus: Vec<u16>,
    /// The node of its nearest CPUs.
    pub initiator: usize,
}

impl Layout {
    /// Memory present at boot, in MiB.
    pub fn mib(&self) -> u64 {
        self.mib_of(|memory| *memory == Memory::Plain)
    }

    /// Memory of ACPI memory devices, in MiB.
    pub fn device_mib(&self) -> u64 {
        self.mib_of(Memory::is_device)
    }

    fn mib_of(&self, is_meant: impl Fn(&Memory) -> bool) -> u64 {
        self.nodes.iter().filter(|node| is_meant(&node.memory)).map(|node| node.mib).sum()
    }

    /// Number of ACPI memory devices.
    pub fn slots(&self) -> u64 {
        self.nodes.iter().filter(|node| node.memory.is_device()).count() as u64
    }

    /// Hotpluggable nodes.
    pub fn absent(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|&node| self.nodes[node].memory == Memory::Absent).collect()
    }

    /// Nodes of shared memory, with its file.
    pub fn shared(&self) -> impl Iterator<Item = (usize, &Path)> {
        self.nodes.iter().enumerate().filter_map(|(number, node)| match &node.memory {
            Memory::Shared(file) => Some((number, file.as_path())),
            Memory::Plain | Memory::Absent | Memory::Cxl => None,
        })
    }

    /// Nodes of CXL expanders, in the order of their windows.
    pub fn cxl(&self) -> impl Iterator<Item = usize> {
        (0..self.nodes.len()).filter(|&node| self.nodes[node].memory == Memory::Cxl)
    }

    /// The number of each memory node in the guest's kernel, which numbers nodes with CPUs first (with or
    /// without memory), then others, then absent ones, and CXL ones last.
    pub fn linux_numbers(&self) -> Vec<usize> {
        let rank = |node: &GuestNode| match node.memory {
            Memory::Plain | Memory::Shared(_) => 1,
            Memory::Absent => 0,
            Memory::Cxl => 2,
        };
        let numbers = self.numbers(|node| (node.vcpus.first().map_or(u16::MAX, |&vcpu| vcpu), rank(node)));
        numbers[..self.machine.nodes.len()].to_vec()
    }

    /// The number of each node in the virtual machine, its ACPI proximity domain. CXL nodes come last: they
    /// are not in the ACPI tables, and Linux assigns them the next numbers.
    pub fn domains(&self) -> Vec<usize> {
        self.numbers(|node| node.memory == Memory::Cxl)
    }

    /// The rank of each node when sorted by a key.
    fn numbers<K: Ord>(&self, key: impl Fn(&GuestNode) -> K) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        order.sort_by_key(|&node| key(&self.nodes[node]));
        let number = |node| order.iter().position(|&other| other == node).expect("each node is among all");
        (0..self.nodes.len()).map(number).collect()
    }

    /// Idle read latency in ns and read bandwidth in MB/s of a memory node from the CPUs of another node.
    pub fn reach(&self, from: usize, to: usize) -> (f64, f64) {
        let vcpu = self.nodes[from].vcpus.first().copied().unwrap_or(0);
        let (initiator, node) = (self.vcpu_initiators[usize::from(vcpu)], NodeId::from(to));
        let fixed =
            self.machine.nodes[to].fixed.as_ref().map_or(f64::INFINITY, |fixed| fixed.read_bandwidth_mbps);
        let hops = self.machine.topology.hops(initiator, node);
        let mbps = hops.iter().map(|hop| self.machine.links[hop.link].bandwidth_mbps).fold(fixed, f64::min);
        (self.machine.idle_latency(initiator, node).as_ns(), mbps)
    }
}

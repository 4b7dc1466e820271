//! What a layout is: the guest's nodes, and the numbers that others give them.

use std::path::Path;

use memtide_core::{InitiatorId, Machine, NodeId};

use crate::memory::Memory;

/// A virtual machine's nodes and CPUs.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The machine that is modelled: its scale is carried out, all nodes are fixed, and its bandwidth is that of its
    /// virtual CPUs.
    pub machine: Machine,
    /// The initiator of each virtual CPU.
    pub vcpu_initiators: Vec<InitiatorId>,
    /// The guest's nodes: those of `machine`, the ones with virtual CPUs first, absent ones and then those of CXL last, then one without memory for each initiator with
    /// virtual CPUs and no node beside it. [`Layout::linux_numbers`] has the numbers that the guest gives them.
    pub nodes: Vec<GuestNode>,
    /// Distances between the guest's nodes, as ACPI's SLIT has them.
    pub distances: Vec<Vec<u8>>,
    /// What is not as the machine file says, and why.
    pub notes: Vec<String>,
}

/// A node of the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestNode {
    /// The machine's name for it, or for the initiator if it has no memory.
    pub name: String,
    /// Memory in MiB.
    pub mib: u64,
    /// How that comes into the guest.
    pub memory: Memory,
    /// Virtual CPUs in it.
    pub vcpus: Vec<u16>,
    /// The node whose CPUs reach it soonest.
    pub initiator: usize,
}

impl Layout {
    /// Memory that is there from the start, in MiB.
    pub fn mib(&self) -> u64 {
        self.mib_of(|memory| *memory == Memory::Plain)
    }

    /// Memory that comes as a device of ACPI, in MiB.
    pub fn device_mib(&self) -> u64 {
        self.mib_of(Memory::is_device)
    }

    fn mib_of(&self, is_meant: impl Fn(&Memory) -> bool) -> u64 {
        self.nodes.iter().filter(|node| is_meant(&node.memory)).map(|node| node.mib).sum()
    }

    /// Devices of ACPI that memory comes as.
    pub fn slots(&self) -> u64 {
        self.nodes.iter().filter(|node| node.memory.is_device()).count() as u64
    }

    /// Nodes whose memory can be plugged in.
    pub fn absent(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|&node| self.nodes[node].memory == Memory::Absent).collect()
    }

    /// Nodes whose memory is shared, and its file.
    pub fn shared(&self) -> impl Iterator<Item = (usize, &Path)> {
        self.nodes.iter().enumerate().filter_map(|(number, node)| match &node.memory {
            Memory::Shared(file) => Some((number, file.as_path())),
            Memory::Plain | Memory::Absent | Memory::Cxl => None,
        })
    }

    /// Nodes whose memory is that of CXL expanders, in the order of their windows.
    pub fn cxl(&self) -> impl Iterator<Item = usize> {
        (0..self.nodes.len()).filter(|&node| self.nodes[node].memory == Memory::Cxl)
    }

    /// The number that the guest's kernel gives each node with memory: it counts nodes with CPUs first, whether they have memory
    /// or not, then absent ones, and those of CXL after all others.
    pub fn linux_numbers(&self) -> Vec<usize> {
        let rank = |node: &GuestNode| match node.memory {
            Memory::Plain | Memory::Shared(_) => 1,
            Memory::Absent => 0,
            Memory::Cxl => 2,
        };
        let numbers = self.numbers(|node| (node.vcpus.first().map_or(u16::MAX, |&vcpu| vcpu), rank(node)));
        numbers[..self.machine.nodes.len()].to_vec()
    }

    /// The number of each node in the virtual machine, its ACPI proximity domain. Those of CXL come last: ACPI's tables do not have
    /// them, and Linux gives them the next ones.
    pub fn domains(&self) -> Vec<usize> {
        self.numbers(|node| node.memory == Memory::Cxl)
    }

    /// The place of each node among all if they are sorted by a key.
    fn numbers<K: Ord>(&self, key: impl Fn(&GuestNode) -> K) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        order.sort_by_key(|&node| key(&self.nodes[node]));
        let number = |node| order.iter().position(|&other| other == node).expect("each node is among all");
        (0..self.nodes.len()).map(number).collect()
    }

    /// Idle read latency in ns and read bandwidth in MB/s of a node with memory, as CPUs of another node reach it.
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

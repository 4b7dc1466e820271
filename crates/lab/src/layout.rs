//! The virtual machine that a machine file describes.

use memtide_core::{InitiatorId, Machine, NodeId};
use memtide_lab_model::{Prepared, prepare};

use crate::{LabError, Memory};

/// Sizes of nodes are multiples of a section of Linux's memory map on x86-64.
const SECTION_MIB: u64 = 128;

/// Least size of the first node, which the kernel and its tables lie in.
const FIRST_NODE_MIB: u64 = 256;

/// Virtual CPUs unless asked for more: each one slows the others down.
const DEFAULT_VCPUS: usize = 4;
const MOST_VCPUS: u16 = 64;

/// Distances of ACPI's SLIT: 10 is a node's own, 255 unreachable.
const OWN_DISTANCE: u8 = 10;
const MOST_DISTANCE: f64 = 254.0;

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
    /// Lays a machine out with so many virtual CPUs; as many as it has initiators, but at most 4, if `None`.
    ///
    /// A node's size is its capacity by the machine's scale, rounded up to multiples of 128 MiB; the first node has at least
    /// 256 MiB, which the kernel needs. CPUs are in the node beside their initiator that Linux would take memory from first.
    ///
    /// # Errors
    /// If the number of virtual CPUs is not from 1 to 64.
    pub fn new(machine: &Machine, vcpus: Option<u16>) -> Result<Layout, LabError> {
        Layout::with(machine, vcpus, &[])
    }

    /// The same, the memory of some nodes being given as named.
    ///
    /// # Errors
    /// And if there is no such node, it is named twice, or its memory must be plain because virtual CPUs are beside it.
    pub fn with(
        machine: &Machine,
        vcpus: Option<u16>,
        named: &[(String, Memory)],
    ) -> Result<Layout, LabError> {
        let vcpus = vcpus.unwrap_or(machine.initiators.len().min(DEFAULT_VCPUS) as u16);
        if !(1..=MOST_VCPUS).contains(&vcpus) {
            let what = format!("{vcpus} virtual CPUs; allowed are 1 to {MOST_VCPUS}");
            return Err(LabError::Machine { machine: machine.name.clone(), what });
        }
        let Prepared { machine, vcpu_initiators, .. } = prepare(machine, vcpus);
        let machine = in_linux_order(machine, &vcpu_initiators, named);
        let mut layout =
            Layout { machine, vcpu_initiators, nodes: Vec::new(), distances: Vec::new(), notes: Vec::new() };
        layout.add_memory();
        let homes = layout.add_vcpus();
        layout.set_initiators(&homes);
        layout.set_distances(&homes);
        layout.set_memory(named)?;
        Ok(layout)
    }

    fn add_memory(&mut self) {
        for (number, node) in self.machine.nodes.iter().enumerate() {
            let least = if number == 0 { FIRST_NODE_MIB } else { SECTION_MIB };
            let mib = node.capacity_mib.next_multiple_of(SECTION_MIB).max(least);
            if mib != node.capacity_mib {
                let why = if mib == least && number == 0 {
                    "which the kernel needs"
                } else {
                    "a multiple of what Linux divides memory into"
                };
                let (name, has) = (&node.name, node.capacity_mib);
                self.notes.push(format!("node '{name}' has {mib} MiB instead of {has}, {why}"));
            }
            let name = node.name.clone();
            self.nodes.push(GuestNode { name, mib, memory: Memory::Plain, vcpus: Vec::new(), initiator: 0 });
        }
    }

    /// Puts the virtual CPUs into nodes, and tells the node of each initiator that has some.
    fn add_vcpus(&mut self) -> Vec<Option<usize>> {
        let mut homes = vec![None; self.machine.initiators.len()];
        for (vcpu, &initiator) in (0..).zip(&self.vcpu_initiators) {
            let home = *homes[initiator.index()].get_or_insert_with(|| {
                beside(&self.machine, initiator).unwrap_or_else(|| {
                    let name = self.machine.initiators[initiator.index()].name.clone();
                    self.nodes.push(GuestNode {
                        name,
                        mib: 0,
                        memory: Memory::Plain,
                        vcpus: Vec::new(),
                        initiator: 0,
                    });
                    self.nodes.len() - 1
                })
            });
            self.nodes[home].vcpus.push(vcpu);
        }
        homes
    }

    fn set_initiators(&mut self, homes: &[Option<usize>]) {
        for number in 0..self.nodes.len() {
            self.nodes[number].initiator = if self.nodes[number].vcpus.is_empty() {
                let node = NodeId::from(number);
                let latency = |from: usize| self.machine.topology.link_latency(InitiatorId::from(from), node);
                let with = (0..homes.len()).filter(|&from| homes[from].is_some());
                let nearest = with.min_by_key(|&from| (latency(from), from));
                nearest.and_then(|from| homes[from]).unwrap_or(0)
            } else {
                number
            };
        }
    }

    /// A node is as many times farther than a CPU's own as its idle latency is longer, from whichever side it is more.
    fn set_distances(&mut self, homes: &[Option<usize>]) {
        let machine = &self.machine;
        let memory = machine.nodes.len();
        let of = |node: usize| match homes.iter().position(|home| *home == Some(node)) {
            Some(initiator) => InitiatorId::from(initiator),
            None => machine.nearest_initiator(NodeId::from(node)),
        };
        let ns = |from: InitiatorId, to: usize| match to < memory {
            true => machine.idle_latency(from, NodeId::from(to)).as_ns(),
            false => f64::INFINITY,
        };
        let factor = |a: usize, b: usize| {
            let (from, to) = (ns(of(a), b), ns(of(a), a));
            if from.is_finite() && to.is_finite() { from / to } else { 2.0 }
        };
        let distance = |a: usize, b: usize| {
            if a == b {
                return OWN_DISTANCE;
            }
            let tens = f64::from(OWN_DISTANCE) * factor(a, b).max(factor(b, a));
            tens.round().clamp(f64::from(OWN_DISTANCE) + 1.0, MOST_DISTANCE) as u8
        };
        let all = 0..self.nodes.len();
        self.distances = all.clone().map(|a| all.clone().map(|b| distance(a, b)).collect()).collect();
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

/// The machine with its nodes in the order in which Linux numbers them: it meets CPUs before memory in ACPI's SRAT. Absent ones
/// are last but for those of CXL: QEMU has the memory's attributes of one of them in ACPI's tables, the last.
fn in_linux_order(
    mut machine: Machine,
    vcpu_initiators: &[InitiatorId],
    named: &[(String, Memory)],
) -> Machine {
    let mut order: Vec<usize> = Vec::new();
    let homes = vcpu_initiators.iter().filter_map(|&initiator| beside(&machine, initiator));
    let is = |node: usize, memory| named.contains(&(machine.nodes[node].name.clone(), memory));
    let mut all: Vec<usize> = (0..machine.nodes.len()).collect();
    all.sort_by_key(|&node| (is(node, Memory::Cxl), is(node, Memory::Absent)));
    for node in homes.chain(all) {
        if !order.contains(&node) {
            order.push(node);
        }
    }
    machine.nodes = order.iter().map(|&node| machine.nodes[node].clone()).collect();
    Machine::parse(&machine.name, &machine.to_toml()).expect("the order of nodes makes no machine wrong")
}

/// The node beside an initiator that Linux would take memory from first.
fn beside(machine: &Machine, initiator: InitiatorId) -> Option<usize> {
    let name = &machine.initiators[initiator.index()].name;
    let nodes = machine.nearest_nodes_of(initiator);
    let own = nodes.into_iter().find(|node| machine.nodes[node.index()].initiator.as_ref() == Some(name));
    own.map(|node| node.index())
}

//! Builds the layout of the virtual machine for a machine.

use memtide_core::{InitiatorId, Machine, NodeId};
use memtide_lab_model::{Prepared, prepare};

use super::addresses::WINDOW_MIB;
use super::nodes::{GuestNode, Layout};
use crate::error::LabError;
use crate::memory::Memory;

/// Node size granularity: a section of Linux's memory map on x86-64.
const SECTION_MIB: u64 = 128;

/// Minimum size of the first node, which holds the kernel and its tables.
const FIRST_NODE_MIB: u64 = 256;

/// Default limit of virtual CPUs: each one slows the others down.
const DEFAULT_VCPUS: usize = 4;
const MOST_VCPUS: u16 = 64;

/// Distances of ACPI's SLIT: 10 is a node's own, 255 unreachable.
const OWN_DISTANCE: u8 = 10;
const MOST_DISTANCE: f64 = 254.0;

impl Layout {
    /// The layout of a machine with `vcpus` virtual CPUs; `None`: one per initiator, at most 4.
    ///
    /// A node's size is its scaled capacity, rounded up to a multiple of 128 MiB; the first node has at least
    /// 256 MiB for the kernel. CPUs are in the node beside their initiator that Linux allocates from first.
    ///
    /// # Errors
    /// If the number of virtual CPUs is not from 1 to 64.
    pub fn new(machine: &Machine, vcpus: Option<u16>) -> Result<Layout, LabError> {
        Layout::with(machine, vcpus, &[])
    }

    /// The same, with another kind of memory for the named nodes.
    ///
    /// # Errors
    /// Also if there is no such node, it is named twice, or its memory must be plain because it has virtual
    /// CPUs.
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

    /// Assigns the virtual CPUs to nodes; returns the node of each initiator with virtual CPUs.
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

    /// Distance is proportional to idle latency, relative to the CPU's own node; the larger of both
    /// directions.
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

    /// Sets the kind of memory of the named nodes.
    fn set_memory(&mut self, named: &[(String, Memory)]) -> Result<(), LabError> {
        for (name, memory) in named {
            let known: Vec<&str> = self.machine.nodes.iter().map(|node| node.name.as_str()).collect();
            let refused = |what: String| LabError::Node { node: name.clone(), what };
            let Some(number) = known.iter().position(|other| other == name) else {
                return Err(refused(format!("no such node; the machine has {}", known.join(", "))));
            };
            let node = &mut self.nodes[number];
            if number == 0 || !node.vcpus.is_empty() {
                let what = "it has the kernel or virtual CPUs, so its memory must be present at boot";
                return Err(refused(what.to_owned()));
            }
            if node.memory != Memory::Plain {
                return Err(refused("it is named twice".to_owned()));
            }
            node.memory = memory.clone();
            if *memory == Memory::Cxl && !node.mib.is_multiple_of(WINDOW_MIB) {
                let has = node.mib;
                node.mib = has.next_multiple_of(WINDOW_MIB);
                let note =
                    format!("node '{name}' has {} MiB instead of {has}, a multiple of CXL's", node.mib);
                self.notes.push(note);
            }
        }
        match (self.cxl().next(), self.shared().next()) {
            (Some(cxl), Some((shared, _))) => Err(LabError::Node {
                node: self.nodes[cxl].name.clone(),
                what: format!(
                    "CXL memory and shared memory ('{}') exclude each other: Linux finds no room for the \
                     expander's registers",
                    self.nodes[shared].name
                ),
            }),
            _ => Ok(()),
        }
    }
}

/// The machine with its nodes in Linux's order: CPUs come before memory in ACPI's SRAT. Absent nodes are last
/// except for CXL ones: QEMU's ACPI tables have hotplug memory attributes for one node, the last.
fn in_linux_order(machine: Machine, vcpu_initiators: &[InitiatorId], named: &[(String, Memory)]) -> Machine {
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
    machine.with_node_order(&order)
}

/// The node attached to an initiator that Linux allocates from first.
fn beside(machine: &Machine, initiator: InitiatorId) -> Option<usize> {
    let name = &machine.initiators[initiator.index()].name;
    let nodes = machine.nearest_nodes_of(initiator);
    let own = nodes.into_iter().find(|node| machine.nodes[node.index()].initiator.as_ref() == Some(name));
    own.map(|node| node.index())
}

//! Maps a system's numbers to those of its machine.

use memtide_core::machine::Machine;
use memtide_core::{CpuId, InitiatorId, NodeId};

use super::System;

/// The machine's view of a system's nodes and CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// The system's number of each of the machine's nodes.
    pub nodes: Vec<NodeId>,
    /// For each of the system's CPUs, one of the machine's in the same initiator.
    pub cpus: Vec<CpuId>,
    /// Base pages per step of the machine's NUMA hint scanner.
    pub scan_pages: u64,
}

/// A machine with fewer initiators than a system has nodes with CPUs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("machine '{machine}' has {known} groups of CPUs, this system {there}")]
pub struct FewInitiators {
    machine: String,
    known: usize,
    there: usize,
}

impl Numbers {
    /// The machine's number of a node of the system.
    pub fn of_node(&self, id: NodeId) -> Option<NodeId> {
        self.nodes.iter().position(|known| *known == id).map(NodeId::from)
    }

    /// The mapping for a machine whose nodes are those of `system` with memory, in order, and whose
    /// initiators are those with CPUs.
    ///
    /// # Errors
    /// If the machine has fewer initiators than that.
    pub fn of(machine: &Machine, system: &System) -> Result<Numbers, FewInitiators> {
        let (there, known) = (system.with_cpus().count(), machine.initiators.len());
        if known < there {
            return Err(FewInitiators { machine: machine.name.clone(), known, there });
        }
        Ok(Numbers {
            nodes: system.with_memory().map(|node| node.id).collect(),
            cpus: cpus(machine, system),
            scan_pages: machine.kernel.numa_scan_pages(),
        })
    }
}

fn cpus(machine: &Machine, system: &System) -> Vec<CpuId> {
    let first = |initiator: InitiatorId| {
        let before = &machine.initiators[..initiator.index()];
        CpuId(before.iter().map(|initiator| initiator.cpus).sum())
    };
    let mut cpus = Vec::new();
    for (index, node) in system.with_cpus().enumerate() {
        for cpu in &node.cpus {
            cpus.resize(cpus.len().max(cpu.index() + 1), CpuId(0));
            cpus[cpu.index()] = first(InitiatorId::from(index));
        }
    }
    cpus
}

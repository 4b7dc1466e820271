//! Nodes by distance, precomputed so that a first-touch fault needs no search.

use crate::ids::{CpuId, InitiatorId, NodeId};
use crate::machine::Machine;

/// A machine's nodes by distance from every CPU and from every node.
#[derive(Clone, Debug)]
pub struct NodeOrder {
    initiators: Vec<InitiatorId>,
    from_initiator: Vec<Vec<NodeId>>,
    from_node: Vec<Vec<NodeId>>,
}

impl NodeOrder {
    /// Computes the orders of [`Machine::nearest_nodes`]. The order from a node starts with the node itself
    /// and continues as for a CPU of the attached initiator, or of the nearest one if none is attached.
    pub fn of(machine: &Machine) -> NodeOrder {
        let initiators: Vec<InitiatorId> =
            (0..machine.cpus()).map(|cpu| machine.initiator_of(CpuId::from(cpu))).collect();
        let from_initiator: Vec<Vec<NodeId>> = (0..machine.initiators.len())
            .map(InitiatorId::from)
            .map(|initiator| machine.nearest_nodes_of(initiator))
            .collect();
        let from_node = machine
            .node_ids()
            .map(|node| {
                let near = &from_initiator[machine.nearest_initiator(node).index()];
                let others = near.iter().copied().filter(|&other| other != node);
                std::iter::once(node).chain(others).collect()
            })
            .collect();
        NodeOrder { initiators, from_initiator, from_node }
    }

    /// All nodes, nearest to the CPU first; the CPU is taken modulo the number of CPUs.
    pub fn from_cpu(&self, cpu: CpuId) -> &[NodeId] {
        let initiator = self.initiators[cpu.index() % self.initiators.len()];
        &self.from_initiator[initiator.index()]
    }

    /// All nodes, the node itself first, then those nearest to it.
    pub fn from_node(&self, node: NodeId) -> &[NodeId] {
        &self.from_node[node.index()]
    }

    /// The CPU's own node: the nearest one.
    pub fn own(&self, cpu: CpuId) -> NodeId {
        self.from_cpu(cpu)[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::bundled::machine;

    #[test]
    fn cpus_of_a_slice_have_the_nodes_of_their_sockets() {
        let mut machine = machine("bmpm-2").expect("bundled").expect("checked");
        for (slice, cpus) in [(1, 16), (2, 8), (4, 4)] {
            machine.slice = slice;
            let order = NodeOrder::of(&machine.with_cpus_of_slice());
            let own: Vec<u8> = (0..cpus).map(|cpu| order.own(CpuId(cpu)).0).collect();
            let half = usize::from(cpus) / 2;
            assert_eq!(own, [vec![0; half], vec![1; half]].concat(), "slice {slice}");
        }
    }
}

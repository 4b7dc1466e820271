//! Physical location of lines, and routes to them.

use memtide_core::machine::{Hop, Machine, Node};
use memtide_core::{CpuId, InitiatorId, NodeId, Time};

/// Physical lines by node, and the routes from CPUs to nodes. Nodes are consecutive in the physical address
/// space.
#[derive(Debug)]
pub(super) struct Routes {
    /// First line of each node, and the end of the last.
    first_lines: Vec<u64>,
    initiator_of: Vec<InitiatorId>,
    hops: Vec<Vec<Vec<Hop>>>,
    /// Latency from a core's request to the node without links: the path through the caches.
    out: Time,
    /// The part of it that a node's own latency includes: all of it if the node is fixed.
    allowances: Vec<Time>,
}

impl Routes {
    pub fn of(machine: &Machine) -> Routes {
        let mut first_lines = vec![0];
        for node in &machine.nodes {
            first_lines.push(first_lines[first_lines.len() - 1] + node.lines());
        }
        let caches = machine.caches.last().map_or(Time::ZERO, |c| machine.core.cycles(c.latency_cycles));
        let allowance = |node: &Node| if node.fixed.is_some() { caches } else { Time::ZERO };
        Routes {
            first_lines,
            initiator_of: (0..machine.cpus()).map(|cpu| machine.initiator_of(CpuId::from(cpu))).collect(),
            hops: (0..machine.initiators.len())
                .map(|i| {
                    machine
                        .node_ids()
                        .map(|n| machine.topology.hops(InitiatorId::from(i), n).to_vec())
                        .collect()
                })
                .collect(),
            out: caches,
            allowances: machine.nodes.iter().map(allowance).collect(),
        }
    }

    /// The node of a physical line, and the line's number in the node.
    #[inline]
    pub fn find(&self, line: u64) -> (NodeId, u64) {
        let index =
            self.first_lines[1..].iter().position(|&end| line < end).expect("a line beyond all memory");
        (NodeId::from(index), line - self.first_lines[index])
    }

    #[inline]
    pub fn hops(&self, cpu: CpuId, node: NodeId) -> &[Hop] {
        &self.hops[self.initiator_of[cpu.index()].index()][node.index()]
    }

    pub fn out(&self) -> Time {
        self.out
    }

    pub fn allowance(&self, node: NodeId) -> Time {
        self.allowances[node.index()]
    }
}

//! Performance of nodes and tiers, for policies.

use super::Machine;
use crate::ids::{InitiatorId, NodeId, TierId};
use crate::units::{Bandwidth, Time};

impl Machine {
    /// The initiator whose links to a node add the least latency; the first of several.
    pub fn nearest_initiator(&self, node: NodeId) -> InitiatorId {
        let all = (0..self.initiators.len()).map(InitiatorId::from);
        all.min_by_key(|&from| (self.topology.link_latency(from, node), from)).unwrap_or_default()
    }

    /// Read bandwidth of a node from its nearest initiator: a fixed node's figure, or the peak of a dram
    /// node's channels; limited by the narrowest link on the route (as in HMAT's access class 0).
    pub fn node_bandwidth(&self, node: NodeId) -> Bandwidth {
        let device_mbps = self.device_bandwidth(node).as_mbps();
        let hops = self.topology.hops(self.nearest_initiator(node), node);
        Bandwidth(hops.iter().map(|hop| self.links[hop.link].bandwidth_mbps).fold(device_mbps, f64::min))
    }

    /// Read bandwidth of a node's device: a fixed node's figure, or the peak of a dram node's channels.
    pub fn device_bandwidth(&self, node: NodeId) -> Bandwidth {
        match (&self.nodes[node.index()].fixed, &self.nodes[node.index()].dram) {
            (Some(fixed), _) => Bandwidth(fixed.read_bandwidth_mbps),
            (None, Some(dram)) => Bandwidth(dram.channel_peak().as_mbps() * f64::from(dram.channels)),
            (None, None) => unreachable!("a checked node is fixed or dram"),
        }
    }

    /// Read bandwidth of a tier: the sum over its nodes of [`Machine::node_bandwidth`].
    pub fn tier_bandwidth(&self, tier: TierId) -> Bandwidth {
        Bandwidth(self.nodes_in(tier).map(|node| self.node_bandwidth(node).as_mbps()).sum())
    }

    /// Idle latency of a write until it is in the medium, from the node's nearest initiator: a fixed node's
    /// write latency, or read latency if it has none; for a dram node as for a read, but with write latency
    /// and write recovery instead of read latency.
    pub fn write_latency(&self, node: NodeId) -> Time {
        let from = self.nearest_initiator(node);
        let read = self.idle_latency(from, node);
        match (&self.nodes[node.index()].fixed, &self.nodes[node.index()].dram) {
            (Some(fixed), _) => match fixed.write_latency_ns {
                Some(ns) => Time::from_ns(ns) + self.topology.link_latency(from, node),
                None => read,
            },
            (None, Some(dram)) => {
                read - dram.cycles(u64::from(dram.cl)) + dram.cycles(u64::from(dram.cwl) + u64::from(dram.wr))
            }
            (None, None) => read,
        }
    }
}

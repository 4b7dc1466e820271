//! Performance of nodes and tiers, for policies.

use super::{Machine, Node};
use crate::ids::{InitiatorId, NodeId, TierId};
use crate::units::{Bandwidth, Time};

impl Node {
    /// Maximum data rate of a checked node without links, reads and writes together, for a share of reads
    /// from 0 to 1: a fixed node's figures, whose reads and writes share its time, or the peak of a dram
    /// node's channels; of a device that slices share, one slice's part.
    pub fn bandwidth(&self, read_share: f64) -> Bandwidth {
        match (&self.fixed, &self.dram) {
            (Some(fixed), _) => {
                let (read, write) = (fixed.read_bandwidth_mbps, fixed.write_bandwidth_mbps);
                // As a multiple of the read bandwidth, which is exact for reads alone.
                Bandwidth(read / (read_share + (1.0 - read_share) * read / write.unwrap_or(read)))
            }
            (None, Some(dram)) => {
                let channels = f64::from(dram.channels) / f64::from(self.sharing_slices);
                Bandwidth(dram.channel_peak().as_mbps() * channels)
            }
            (None, None) => unreachable!("a checked node is fixed or dram"),
        }
    }
}

impl Machine {
    /// The initiator whose links to a node add the least latency; the first of several.
    pub fn nearest_initiator(&self, node: NodeId) -> InitiatorId {
        let all = (0..self.initiators.len()).map(InitiatorId::from);
        all.min_by_key(|&from| (self.topology.link_latency(from, node), from)).unwrap_or_default()
    }

    /// Read bandwidth of a node from its nearest initiator: a fixed node's figure, or the peak of a dram
    /// node's channels; limited by the narrowest link on the route (as in HMAT's access class 0).
    pub fn node_bandwidth(&self, node: NodeId) -> Bandwidth {
        self.path_bandwidth(self.nearest_initiator(node), node, 1.0)
    }

    /// Maximum data rate between an initiator and a node, reads and writes together, for a share of reads
    /// from 0 to 1: that of the node, limited by each link's direction.
    pub fn path_bandwidth(&self, from: InitiatorId, to: NodeId, read_share: f64) -> Bandwidth {
        let node = self.nodes[to.index()].bandwidth(read_share).as_mbps();
        // Reads' data and writes' data go in opposite directions.
        let busier = read_share.max(1.0 - read_share);
        let hops = self.topology.hops(from, to).iter();
        Bandwidth(hops.map(|hop| self.links[hop.link].bandwidth_mbps / busier).fold(node, f64::min))
    }

    /// Read bandwidth of a node's device: a fixed node's figure, or the peak of a dram node's channels; of a
    /// device that slices share, one slice's part.
    pub fn device_bandwidth(&self, node: NodeId) -> Bandwidth {
        self.nodes[node.index()].bandwidth(1.0)
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

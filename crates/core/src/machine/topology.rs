//! Routes from initiators to nodes: the links with the least total latency.

use super::Machine;
use super::field_error::FieldError;
use crate::ids::{CpuId, InitiatorId, NodeId};
use crate::units::Time;

/// A link of a route, in the direction from an initiator to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Index in [`Machine::links`].
    pub link: usize,
    /// Whether the route goes from the link's second end to its first.
    pub reversed: bool,
}

/// The routes from every initiator to every node.
#[derive(Clone, Debug, Default)]
pub struct Topology {
    routes: Vec<Vec<Route>>,
}

#[derive(Clone, Debug)]
struct Route {
    hops: Vec<Hop>,
    latency: Time,
}

impl Topology {
    /// Finds all routes.
    pub(super) fn of(machine: &Machine) -> Result<Topology, FieldError> {
        let mut routes = Vec::new();
        for initiator in &machine.initiators {
            let from = routes_from(machine, &initiator.name);
            let mut to_nodes = Vec::new();
            for (index, node) in machine.nodes.iter().enumerate() {
                let gate = node.initiator.as_deref().unwrap_or(&node.name);
                let route = from.iter().find(|(name, _)| *name == gate);
                let route = route.or_else(|| from.iter().find(|(name, _)| *name == node.name));
                let (_, route) = route.ok_or_else(|| unreachable_node(index, &node.name, &initiator.name))?;
                to_nodes.push(route.clone());
            }
            routes.push(to_nodes);
        }
        Ok(Topology { routes })
    }

    /// The links from an initiator to a node, in order; empty for an attached node.
    pub fn hops(&self, from: InitiatorId, to: NodeId) -> &[Hop] {
        &self.routes[from.index()][to.index()].hops
    }

    /// Latency added to a read by the links from an initiator to a node.
    pub fn link_latency(&self, from: InitiatorId, to: NodeId) -> Time {
        self.routes[from.index()][to.index()].latency
    }
}

impl Machine {
    /// Idle read latency of a node from a CPU of the initiator, links included: a fixed node's figure; for a
    /// dram node the path to the pins, activate, read and burst.
    pub fn idle_latency(&self, from: InitiatorId, to: NodeId) -> Time {
        let node = &self.nodes[to.index()];
        let at_node = match (&node.fixed, &node.dram) {
            (Some(fixed), _) => Time::from_ns(fixed.read_latency_ns),
            (None, Some(dram)) => {
                let caches = self.caches.last().map_or(0.0, |c| c.latency_cycles);
                let cycles = u64::from(dram.rcd) + u64::from(dram.cl) + u64::from(dram.burst);
                self.core.cycles(caches) + Time::from_ns(dram.controller_ns) + dram.cycles(cycles)
            }
            (None, None) => unreachable!("a checked node is fixed or dram"),
        };
        at_node + self.topology.link_latency(from, to)
    }

    /// The same machine with its nodes reordered: `order` has the current index of each node, in the new
    /// order.
    ///
    /// # Panics
    /// If `order` is not a permutation.
    pub fn with_node_order(mut self, order: &[usize]) -> Machine {
        let mut sorted = order.to_vec();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..self.nodes.len()), "{order:?} is not an order of all nodes");
        self.nodes = order.iter().map(|&node| self.nodes[node].clone()).collect();
        for routes in &mut self.topology.routes {
            *routes = order.iter().map(|&node| routes[node].clone()).collect();
        }
        self
    }

    /// Nodes by distance from a CPU, in Linux's order: first by latency of the links, so that a CPU's own
    /// node is the attached one even if another memory is faster; then by idle latency, then by number.
    pub fn nearest_nodes(&self, cpu: CpuId) -> Vec<NodeId> {
        self.nearest_nodes_of(self.initiator_of(cpu))
    }

    /// As [`Machine::nearest_nodes`], for any CPU of an initiator.
    pub fn nearest_nodes_of(&self, from: InitiatorId) -> Vec<NodeId> {
        let mut nodes: Vec<NodeId> = self.node_ids().collect();
        nodes.sort_by_key(|&n| (self.topology.link_latency(from, n), self.idle_latency(from, n), n));
        nodes
    }
}

/// Least-latency routes from one endpoint to all reachable ones (Bellman-Ford relaxation; machines have few
/// links).
fn routes_from<'m>(machine: &'m Machine, start: &'m str) -> Vec<(&'m str, Route)> {
    let mut known: Vec<(&str, Route)> = vec![(start, Route { hops: Vec::new(), latency: Time::ZERO })];
    loop {
        let mut better = None;
        for (index, link) in machine.links.iter().enumerate() {
            let [a, b] = &link.between;
            for (from, to, reversed) in [(a, b, false), (b, a, true)] {
                let Some((_, route)) = known.iter().find(|(name, _)| name == from) else { continue };
                let latency = route.latency + Time::from_ns(link.latency_ns);
                let old = known.iter().find(|(name, _)| name == to).map_or(Time::NEVER, |(_, w)| w.latency);
                if latency < old {
                    let mut hops = route.hops.clone();
                    hops.push(Hop { link: index, reversed });
                    better = Some((to.as_str(), Route { hops, latency }));
                }
            }
        }
        let Some((name, route)) = better else { return known };
        known.retain(|(other, _)| *other != name);
        known.push((name, route));
    }
}

fn unreachable_node(index: usize, node: &str, initiator: &str) -> FieldError {
    let message = format!(
        "initiator '{initiator}' cannot reach node '{node}'; name its initiator with `initiator = \"..\"` \
         or add a [[link]] between them"
    );
    FieldError::new(format!("node[{index}]"), message)
}

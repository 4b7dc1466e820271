//! Shared by placement policies.

use memtide_core::policy::{Group, Placement, Rule, Task};
use memtide_core::{Machine, NodeId, TierId};

use crate::entry::Made;
use crate::weights::in_proportion;

/// The same rule for every task.
struct Uniform(Rule);

impl Placement for Uniform {
    fn rule(&mut self, _: &Machine, _: &Task) -> Rule {
        self.0.clone()
    }
}

/// A policy with the same rule for every task.
pub(super) fn uniform(rule: Rule) -> Made {
    Ok(Box::new(Uniform(rule)))
}

/// A machine's tiers, fastest first.
pub(super) fn tiers(machine: &Machine) -> impl Iterator<Item = TierId> + use<> {
    (0..machine.tiers()).map(TierId::from)
}

/// The nodes of these names; without any, those of the fastest tier.
///
/// # Errors
/// If the machine has no node of a name: lists those that it has.
pub(super) fn chosen(machine: &Machine, names: &[String]) -> Result<Vec<NodeId>, String> {
    if names.is_empty() {
        return Ok(machine.nodes_in(TierId(0)).collect());
    }
    let node = |name: &String| {
        machine.node_ids().find(|node| machine.nodes[node.index()].name == *name).ok_or_else(|| {
            let known: Vec<&str> = machine.nodes.iter().map(|node| node.name.as_str()).collect();
            format!("there is no node '{name}'; nodes: {}", known.join(", "))
        })
    };
    names.iter().map(node).collect()
}

/// A group for each tier, with these weights.
pub(super) fn groups(machine: &Machine, weights: &[u32]) -> Vec<Group> {
    let group = |(tier, &weight)| Group { nodes: machine.nodes_in(tier).collect(), weight };
    tiers(machine).zip(weights).map(group).collect()
}

/// Weights of the tiers in proportion to their bandwidths (bmpm equation 2.4 and section 3.5, hinuma equation
/// 5).
pub(super) fn bandwidth_weights(machine: &Machine) -> Vec<u32> {
    in_proportion(&tiers(machine).map(|tier| machine.tier_bandwidth(tier).as_mbps()).collect::<Vec<_>>())
}

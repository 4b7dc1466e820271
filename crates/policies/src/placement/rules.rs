//! Shared by placement policies.

use memtide_core::policy::{Group, Placement, Rule, Task};
use memtide_core::{Machine, TierId};

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

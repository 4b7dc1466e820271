//! Placement policies, one file each.

mod bw_interleave;
mod bw_local;
mod bw_random;
mod fast_only;
mod hi_bandwidth;
mod interleave;
mod local;
mod low_latency;
mod ratio;

use memtide_core::policy::{Group, Placement, Rule, Task};
use memtide_core::{Machine, TierId};

use crate::parameter::Values;
use crate::policy::Info;
use crate::weights::in_proportion;

/// Every placement policy; the baseline first.
pub(crate) const ALL: &[PlacementEntry] = &[
    local::ENTRY,
    interleave::ENTRY,
    fast_only::ENTRY,
    ratio::ENTRY,
    bw_interleave::ENTRY,
    bw_random::ENTRY,
    bw_local::ENTRY,
    low_latency::ENTRY,
    hi_bandwidth::ENTRY,
];

/// A placement policy for a machine, or why its values do not fit the machine.
type Made = Result<Box<dyn Placement>, String>;

/// How a placement policy registers.
pub(crate) struct PlacementEntry {
    pub(crate) info: Info,
    /// Makes it for a machine.
    pub(crate) make: fn(&Machine, &Values) -> Made,
}

/// The same rule for every task.
struct Uniform(Rule);

impl Placement for Uniform {
    fn rule(&mut self, _: &Machine, _: &Task) -> Rule {
        self.0.clone()
    }
}

fn uniform(rule: Rule) -> Made {
    Ok(Box::new(Uniform(rule)))
}

/// A machine's tiers, fastest first.
fn tiers(machine: &Machine) -> impl Iterator<Item = TierId> + use<> {
    (0..machine.tiers()).map(TierId::from)
}

/// A group for each tier, with a weight each.
fn groups(machine: &Machine, weights: &[u32]) -> Vec<Group> {
    let group = |(tier, &weight)| Group { nodes: machine.nodes_in(tier).collect(), weight };
    tiers(machine).zip(weights).map(group).collect()
}

/// A weight for each tier in proportion to its bandwidth (bmpm equation 2.4 and section 3.5, hinuma equation 5).
fn bandwidth_weights(machine: &Machine) -> Vec<u32> {
    in_proportion(&tiers(machine).map(|tier| machine.tier_bandwidth(tier).as_mbps()).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests;

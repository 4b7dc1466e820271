//! `ratio`: fixed weights, one per tier.

use memtide_core::Machine;
use memtide_core::params::{Kind, Parameter, Values};
use memtide_core::policy::{GroupOrder, Rule, Spill, Within};

use super::rules::{groups, uniform};
use crate::entry::{Info, PlacementEntry};

pub(super) const ENTRY: PlacementEntry = PlacementEntry {
    info: Info {
        name: "ratio",
        summary: "fixed shares of pages by tier, tiers and nodes in turn",
        when: "the shares to keep are known from measurements",
        source: "hinuma section II-B (NVM-to-DRAM ratio 1:4); Linux, \
                 Documentation/admin-guide/mm/numa_memory_policy.rst (MPOL_WEIGHTED_INTERLEAVE)",
        figures: false,
        parameters: &[Parameter {
            name: "weights",
            unit: "pages of a cycle",
            kind: Kind::Weights { default: "4 for the fastest tier, 1 for each other" },
            help: "consecutive pages of each tier",
        }],
    },
    make: |machine, values| {
        uniform(Rule {
            groups: groups(machine, &weights(machine, values)?),
            order: GroupOrder::Cycle,
            within: Within::InSequence,
            spill: Spill::Group,
        })
    },
};

fn weights(machine: &Machine, values: &Values) -> Result<Vec<u32>, String> {
    let tiers = machine.tiers();
    match values.weights("weights") {
        [] => Ok((0..tiers).map(|tier| if tier == 0 { 4 } else { 1 }).collect()),
        given if given.len() == tiers => Ok(given.to_vec()),
        given => {
            let count =
                |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
            let (weights, tiers) = (count(given.len(), "weight"), count(tiers, "tier"));
            Err(format!("{weights} for {tiers}; give one for each tier, fastest first"))
        }
    }
}

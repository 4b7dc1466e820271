//! `bw-random`: bmpm's BW-RANDOM.

use memtide_core::policy::{GroupOrder, Rule, Spill, Within};

use super::rules::{bandwidth_weights, groups, uniform};
use crate::entry::{Info, PlacementEntry};

pub(super) const ENTRY: PlacementEntry = PlacementEntry {
    info: Info {
        name: "bw-random",
        summary: "shares of pages by the tiers' bandwidth, tier and node random for each page",
        when: "as bw-interleave, for data with strides that interleaving would put on one node",
        source: "bmpm algorithm 2, equation 2.4, section 3.5",
        figures: true,
        parameters: &[],
    },
    make: |machine, _| {
        uniform(Rule {
            groups: groups(machine, &bandwidth_weights(machine)),
            order: GroupOrder::Random,
            within: Within::Random,
            spill: Spill::Group,
        })
    },
};

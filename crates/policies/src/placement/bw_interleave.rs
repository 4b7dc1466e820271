//! `bw-interleave`: bmpm's BW-INTERLEAVE.

use memtide_core::policy::{GroupOrder, Rule, Spill, Within};

use super::rules::{bandwidth_weights, groups, uniform};
use crate::entry::{Info, PlacementEntry};

pub(super) const ENTRY: PlacementEntry = PlacementEntry {
    info: Info {
        name: "bw-interleave",
        summary: "shares of pages by the tiers' bandwidth, tiers and nodes in turn",
        when: "a program limited by bandwidth whose threads use all data, on tiers of known bandwidth",
        source: "bmpm algorithm 1, equation 2.4, section 3.5",
        figures: true,
        parameters: &[],
    },
    make: |machine, _| {
        uniform(Rule {
            groups: groups(machine, &bandwidth_weights(machine)),
            order: GroupOrder::Cycle,
            within: Within::InSequence,
            spill: Spill::Group,
        })
    },
};

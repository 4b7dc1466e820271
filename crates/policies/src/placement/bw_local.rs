//! `bw-local`: bmpm's BW-LOCAL.

use memtide_core::policy::{GroupOrder, Rule, Spill, Within};

use super::rules::{bandwidth_weights, groups, uniform};
use crate::entry::{Info, PlacementEntry};

pub(super) const ENTRY: PlacementEntry = PlacementEntry {
    info: Info {
        name: "bw-local",
        summary: "shares of pages by the tiers' bandwidth, the thread's own tier first and the nearest node \
            in each",
        when: "a program limited by bandwidth whose threads use mostly data of their own",
        source: "bmpm algorithm 3, equation 2.4, section 3.5",
        figures: true,
        parameters: &[],
    },
    make: |machine, _| {
        uniform(Rule {
            groups: groups(machine, &bandwidth_weights(machine)),
            order: GroupOrder::CycleFromOwn,
            within: Within::Nearest,
            spill: Spill::Group,
        })
    },
};

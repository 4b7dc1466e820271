//! `interleave`: round robin over all nodes.

use memtide_core::policy::{Group, GroupOrder, Rule, Spill, Within};

use super::rules::uniform;
use crate::entry::{Info, PlacementEntry};

pub(super) const ENTRY: PlacementEntry = PlacementEntry {
    info: Info {
        name: "interleave",
        summary: "every node in turn, one page each, whatever its speed",
        when: "all threads use all data; nodes are equal, or hot pages touched last",
        source: "Linux, Documentation/admin-guide/mm/numa_memory_policy.rst (MPOL_INTERLEAVE); bmpm section \
            2.2",
        figures: false,
        parameters: &[],
    },
    make: |machine, _| {
        uniform(Rule {
            groups: machine.node_ids().map(|node| Group { nodes: vec![node], weight: 1 }).collect(),
            order: GroupOrder::Cycle,
            within: Within::InSequence,
            spill: Spill::Nearest,
        })
    },
};

//! `local`: the nearest node with free memory.

use memtide_core::policy::{Group, GroupOrder, Rule, Spill, Within};

use super::rules::uniform;
use crate::entry::{Info, PlacementEntry};

pub(super) const ENTRY: PlacementEntry = PlacementEntry {
    info: Info {
        name: "local",
        summary: "the faulting CPU's own node, else the nearest with free memory: Linux's default",
        when: "little is known of the program, or its memory fits into the fast nodes next to its \
            threads",
        source: "Linux, Documentation/admin-guide/mm/numa_memory_policy.rst (system default policy); bmpm \
            section 2.2",
        figures: false,
        parameters: &[],
    },
    make: |machine, _| {
        uniform(Rule {
            groups: vec![Group { nodes: machine.node_ids().collect(), weight: 1 }],
            order: GroupOrder::Cycle,
            within: Within::Nearest,
            spill: Spill::Nearest,
        })
    },
};

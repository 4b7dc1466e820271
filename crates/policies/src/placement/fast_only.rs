//! `fast-only`: the fastest tier only.

use memtide_core::TierId;
use memtide_core::policy::{Group, GroupOrder, Rule, Spill, Within};

use super::rules::uniform;
use crate::entry::{Info, PlacementEntry};

pub(super) const ENTRY: PlacementEntry = PlacementEntry {
    info: Info {
        name: "fast-only",
        summary: "the fastest tier only, nearest node first; when it is full, memory is reclaimed",
        when: "the program fits into the fastest tier and must not use others: what does not fit is \
            swapped",
        source: "bmpm section 5.1 (D-only); Linux, Documentation/admin-guide/mm/numa_memory_policy.rst \
            (MPOL_BIND)",
        figures: false,
        parameters: &[],
    },
    make: |machine, _| {
        uniform(Rule {
            groups: vec![Group { nodes: machine.nodes_in(TierId(0)).collect(), weight: 1 }],
            order: GroupOrder::Cycle,
            within: Within::Nearest,
            spill: Spill::Group,
        })
    },
};

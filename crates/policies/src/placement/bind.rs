//! `bind`: chosen nodes only.

use memtide_core::params::{Kind, Parameter};
use memtide_core::policy::{Group, GroupOrder, Rule, Spill, Within};

use super::rules::{chosen, uniform};
use crate::entry::{Info, PlacementEntry};

pub(super) const ENTRY: PlacementEntry = PlacementEntry {
    info: Info {
        name: "bind",
        summary: "chosen nodes only, the nearest first; when they are full, out of memory",
        when: "the program must stay on chosen nodes and fits there: out of memory is better than \
            slow memory",
        source: "Linux, Documentation/admin-guide/mm/numa_memory_policy.rst (MPOL_BIND)",
        figures: false,
        parameters: &[NODE],
    },
    make: |machine, values| {
        uniform(Rule {
            groups: vec![Group { nodes: chosen(machine, values.nodes(NODE.name))?, weight: 1 }],
            order: GroupOrder::Cycle,
            within: Within::Nearest,
            spill: Spill::Refuse,
        })
    },
};

/// The chosen nodes.
pub(super) const NODE: Parameter = Parameter {
    name: "node",
    unit: "",
    kind: Kind::Nodes { default: "those of the fastest tier" },
    help: "the nodes, by name",
};

//! `preferred`: chosen nodes first, any other when they are full.

use memtide_core::NodeId;
use memtide_core::policy::{Group, GroupOrder, Rule, Spill, Within};

use super::bind::NODE;
use super::rules::{chosen, uniform};
use crate::entry::{Info, PlacementEntry};

pub(super) const ENTRY: PlacementEntry = PlacementEntry {
    info: Info {
        name: "preferred",
        summary: "chosen nodes first, the nearest of them first; when they are full, the nearest other node",
        when: "the nodes to fill first are known, such as the fastest of both sockets",
        source: "Linux, Documentation/admin-guide/mm/numa_memory_policy.rst (MPOL_PREFERRED_MANY)",
        figures: false,
        parameters: &[NODE],
    },
    make: |machine, values| {
        let first = chosen(machine, values.nodes(NODE.name))?;
        let others: Vec<NodeId> = machine.node_ids().filter(|node| !first.contains(node)).collect();
        let groups = [first, others].into_iter().filter(|nodes| !nodes.is_empty());
        uniform(Rule {
            groups: groups.map(|nodes| Group { nodes, weight: 1 }).collect(),
            order: GroupOrder::First,
            within: Within::Nearest,
            spill: Spill::Group,
        })
    },
};

//! Placement rules: weights over groups of nodes, an order within them, and a fallback.

use serde::{Deserialize, Serialize};

use crate::ids::{NodeId, TaskId};
use crate::machine::Machine;

/// A process whose pages are placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its id.
    pub id: TaskId,
    /// Its name, for reports.
    pub name: String,
    /// Known number of threads; 0 if unknown.
    pub threads: u32,
}

/// Chooses the nodes of a task's pages at first touch.
pub trait Placement: Send {
    /// The rule for a task's pages; called once when the task starts.
    fn rule(&mut self, machine: &Machine, task: &Task) -> Rule;
}

/// Weights over groups of nodes, an order within a group, and a fallback for full nodes.
///
/// Every fault counts as one, whatever the page's size: as in Linux's weighted interleave, huge pages keep
/// the ratio in units of huge pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The groups, usually tiers, fastest first. Only their nodes are used, and no node is in two of them.
    pub groups: Vec<Group>,
    /// Order of the groups.
    pub order: GroupOrder,
    /// Order of the nodes within a group.
    pub within: Within,
    /// Fallback if that node is full.
    pub spill: Spill,
}

/// Nodes that share a weight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// The nodes, at least one.
    pub nodes: Vec<NodeId>,
    /// Pages per cycle, at least 1.
    pub weight: u32,
}

/// The group of a thread's next page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GroupOrder {
    /// The first group for as many pages as its weight, then the next group, and so on in cycles (bmpm
    /// algorithm 1).
    Cycle,
    /// As [`GroupOrder::Cycle`], but starting with the group of the faulting CPU's own node, then the others
    /// in list order; each own group has a separate count (bmpm algorithm 3).
    CycleFromOwn,
    /// Random for each page, with a probability proportional to the weight (bmpm algorithm 2).
    Random,
    /// Always the first group, whatever the weights: the others are its fallback (Linux's
    /// `MPOL_PREFERRED_MANY`).
    First,
}

/// The node of a page within its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Within {
    /// Round robin, per thread and group.
    InSequence,
    /// Random for each page, uniformly.
    Random,
    /// The nearest to the faulting CPU with free memory.
    Nearest,
}

/// Fallback for a full node. If every node of the rule is full, there is none: the caller reclaims memory, or
/// fails with [`Spill::Refuse`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spill {
    /// The node of the rule nearest to the full one (Linux's fallback order, its zone lists).
    Nearest,
    /// Another node of the same group, nearest to the faulting CPU first, then the other groups in list
    /// order.
    Group,
    /// As [`Spill::Nearest`], but if every node of the rule is full, the program is out of memory: no page is
    /// reclaimed (Linux's `MPOL_BIND` on a system without swap).
    Refuse,
}

impl Rule {
    /// Pages per cycle: the sum of the weights.
    pub fn cycle(&self) -> u32 {
        self.groups.iter().map(|g| g.weight).sum()
    }

    /// Whether the rule uses this node.
    pub fn allows(&self, node: NodeId) -> bool {
        self.group_of(node).is_some()
    }

    /// Index of a node's group.
    pub fn group_of(&self, node: NodeId) -> Option<usize> {
        self.groups.iter().position(|g| g.nodes.contains(&node))
    }
}

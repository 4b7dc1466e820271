//! Placement rules: weights over groups of nodes, an order inside them, and where to spill.

use serde::{Deserialize, Serialize};

use crate::ids::{NodeId, TaskId};
use crate::machine::Machine;

/// A process whose pages are to be placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its id.
    pub id: TaskId,
    /// Its name, for reports.
    pub name: String,
    /// Threads it is known to run; 0 if that is not known.
    pub threads: u32,
}

/// Chooses where a task's pages go at first touch.
pub trait Placement: Send {
    /// The rule for a task's pages; asked once when the task starts.
    fn rule(&mut self, machine: &Machine, task: &Task) -> Rule;
}

/// Weights over groups of nodes, an order inside a group, and where to go when the chosen node is full.
///
/// Every fault counts as one, whatever the page's size: as with Linux's weighted interleave, huge pages keep
/// the ratio in units of huge pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The groups, usually tiers, fastest first. Only their nodes are ever chosen, and no node is in two of
    /// them.
    pub groups: Vec<Group>,
    /// Which group comes next.
    pub order: GroupOrder,
    /// Which node of the group.
    pub within: Within,
    /// Where to go when that node is full.
    pub spill: Spill,
}

/// Nodes that share a weight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// At least one node.
    pub nodes: Vec<NodeId>,
    /// Pages of a cycle that go to this group, at least 1.
    pub weight: u32,
}

/// Which group a thread's next page goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GroupOrder {
    /// The first group for as many pages as its weight, then the next group, and so on round (bmpm algorithm
    /// 1).
    Cycle,
    /// As [`GroupOrder::Cycle`], but the group of the faulting CPU's own node comes first and then the others
    /// as they are listed; each own group has a count of its own (bmpm algorithm 3).
    CycleFromOwn,
    /// Drawn for each page, with a probability proportional to the weight (bmpm algorithm 2).
    Random,
}

/// Which node of a group a page goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Within {
    /// Each in turn, per thread and group.
    InSequence,
    /// Drawn for each page, all alike.
    Random,
    /// The nearest to the faulting CPU that has room.
    Nearest,
}

/// Where a page goes when the chosen node is full. If every node of the rule is full, it goes nowhere: the
/// caller reclaims memory or fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spill {
    /// To the node of the rule that is nearest to the chosen one (Linux's fallback order, its zone lists).
    Nearest,
    /// To another node of the same group, nearest to the faulting CPU first, then to the other groups as they
    /// are listed.
    Group,
}

impl Rule {
    /// Pages of a whole cycle: the sum of the weights.
    pub fn cycle(&self) -> u32 {
        self.groups.iter().map(|g| g.weight).sum()
    }

    /// Whether the rule ever chooses this node.
    pub fn allows(&self, node: NodeId) -> bool {
        self.group_of(node).is_some()
    }

    /// The index of the group that a node is in.
    pub fn group_of(&self, node: NodeId) -> Option<usize> {
        self.groups.iter().position(|g| g.nodes.contains(&node))
    }
}

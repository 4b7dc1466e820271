//! Tiers, and the room on their nodes for the moves of a plan under construction.

use memtide_core::policy::{NodeOrder, NodeView};
use memtide_core::{Machine, NodeId};

/// A machine's nodes by tier and distance.
pub(super) struct Tiers {
    order: NodeOrder,
    /// Tier of each node, 0 the fastest.
    tiers: Vec<usize>,
}

impl Tiers {
    pub(super) fn of(machine: &Machine) -> Tiers {
        let tiers = machine.node_ids().map(|node| machine.tier_of(node).index()).collect();
        Tiers { order: NodeOrder::of(machine), tiers }
    }

    /// Number of nodes.
    pub(super) fn nodes(&self) -> usize {
        self.tiers.len()
    }

    /// A node's tier, 0 the fastest.
    pub(super) fn tier(&self, node: NodeId) -> usize {
        self.tiers[node.index()]
    }

    pub(super) fn slowest(&self) -> usize {
        self.tiers.iter().copied().max().unwrap_or(0)
    }

    /// The nodes of a tier, nearest first.
    pub(super) fn near(&self, tier: usize, from: NodeId) -> impl Iterator<Item = NodeId> {
        self.order.from_node(from).iter().copied().filter(move |&node| self.tier(node) == tier)
    }

    /// The nearest node of a tier with that many free base pages.
    pub(super) fn to(&self, tier: usize, from: NodeId, pages: u64, room: &Room) -> Option<NodeId> {
        self.near(tier, from).find(|&node| room.of(node) >= pages)
    }
}

/// Free base pages on each node, and those to keep free; an unknown node takes any number.
pub(super) struct Room(Vec<Option<(u64, u64)>>);

/// A share of some pages in per cent, rounded up.
pub(super) fn part(pages: u64, percent: f64) -> u64 {
    (pages as f64 * percent / 100.0).ceil() as u64
}

impl Room {
    pub(super) fn new(nodes: usize, used: &[NodeView], low_percent: f64) -> Room {
        let mut room = vec![None; nodes];
        for used in used {
            room[used.node.index()] = Some((used.free_pages, part(used.pages, low_percent)));
        }
        Room(room)
    }

    pub(super) fn free(&self, node: NodeId) -> u64 {
        self.0[node.index()].map_or(u64::MAX >> 8, |(free, _)| free)
    }

    pub(super) fn of(&self, node: NodeId) -> u64 {
        self.0[node.index()].map_or(u64::MAX >> 8, |(free, kept)| free.saturating_sub(kept))
    }

    /// Pages that have to become free before one of these nodes has room.
    pub(super) fn missing(&self, nodes: impl Iterator<Item = NodeId>) -> u64 {
        let missing = |node: NodeId| self.0[node.index()].map_or(0, |(free, kept)| kept.saturating_sub(free));
        nodes.map(missing).min().unwrap_or(0)
    }

    /// Adds free pages to a node.
    pub(super) fn add(&mut self, node: NodeId, pages: u64) {
        if let Some((free, _)) = &mut self.0[node.index()] {
            *free += pages;
        }
    }

    pub(super) fn shift(&mut self, from: NodeId, to: NodeId, pages: u64) {
        self.add(from, pages);
        if let Some((free, _)) = &mut self.0[to.index()] {
            *free = free.saturating_sub(pages);
        }
    }
}

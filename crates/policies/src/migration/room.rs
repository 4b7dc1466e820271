//! Room on the nodes for the moves of a plan under construction.

use memtide_core::NodeId;
use memtide_core::policy::NodeView;

/// Free base pages on each node, and those to keep free; an unknown node takes any number.
pub(super) struct Room(Vec<Option<(u64, u64)>>);

impl Room {
    pub(super) fn new(nodes: usize, used: &[NodeView], low_percent: u64) -> Room {
        let mut room = vec![None; nodes];
        for used in used {
            room[used.node.index()] = Some((used.free_pages, (used.pages * low_percent).div_ceil(100)));
        }
        Room(room)
    }

    pub(super) fn free(&self, node: NodeId) -> u64 {
        self.0[node.index()].map_or(u64::MAX >> 8, |(free, _)| free)
    }

    pub(super) fn of(&self, node: NodeId) -> u64 {
        self.0[node.index()].map_or(u64::MAX >> 8, |(free, kept)| free.saturating_sub(kept))
    }

    pub(super) fn shift(&mut self, from: NodeId, to: NodeId, pages: u64) {
        if let Some((free, _)) = &mut self.0[from.index()] {
            *free += pages;
        }
        if let Some((free, _)) = &mut self.0[to.index()] {
            *free = free.saturating_sub(pages);
        }
    }
}

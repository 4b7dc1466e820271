//! Free memory of nodes.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use memtide_core::policy::FreeMemory;
use memtide_core::{NodeId, PageSize};

use crate::zones::Zones;

/// How long a node counts as full before it is read again.
const REFRESH_INTERVAL: Duration = Duration::from_millis(10);

/// Pages allocated before free memory is read again: other processes allocate, too.
const BUDGET_PAGES: u64 = 1024;

/// The free memory of a machine's nodes, by the machine's numbers.
#[derive(Debug)]
pub struct NodeMemory {
    nodes: Vec<NodeId>,
    left: Vec<Cell<u64>>,
    refreshed: RefCell<Option<Instant>>,
}

impl NodeMemory {
    /// The free memory of nodes with these system numbers.
    pub fn new(nodes: &[NodeId]) -> NodeMemory {
        NodeMemory {
            nodes: nodes.to_vec(),
            left: vec![Cell::new(0); nodes.len()],
            refreshed: RefCell::default(),
        }
    }

    /// Records an allocated page.
    pub fn take(&self, node: NodeId) {
        let left = &self.left[node.index()];
        left.set(left.get().saturating_sub(1));
    }

    /// Whether any node is full.
    pub fn any_full(&self) -> bool {
        (0..self.nodes.len()).any(|node| !self.fits(NodeId::from(node), PageSize::Base))
    }

    fn refresh(&self) {
        // The file always exists. Without it, every node would count as full, and the kernel would choose.
        let zones = Zones::read().unwrap_or_default();
        for (node, left) in self.nodes.iter().zip(&self.left) {
            left.set((zones.free_pages(*node) / 2).min(BUDGET_PAGES));
        }
        *self.refreshed.borrow_mut() = Some(Instant::now());
    }
}

impl FreeMemory for NodeMemory {
    fn fits(&self, node: NodeId, _: PageSize) -> bool {
        let left = &self.left[node.index()];
        let stale = self.refreshed.borrow().is_none_or(|refreshed| refreshed.elapsed() > REFRESH_INTERVAL);
        if left.get() == 0 && stale {
            self.refresh();
        }
        left.get() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_fits_until_free_memory_is_used() {
        let free_memory = NodeMemory::new(&[NodeId(0), NodeId(200)]);
        assert!(free_memory.fits(NodeId(0), PageSize::Base));
        assert!(!free_memory.fits(NodeId(1), PageSize::Base));
        let left = free_memory.left[0].get();
        free_memory.take(NodeId(0));
        assert_eq!(free_memory.left[0].get(), left - 1);
    }
}

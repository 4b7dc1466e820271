//! Free memory of nodes.

use std::cell::{Cell, RefCell};
use std::fs;
use std::time::{Duration, Instant};

use memtide_core::policy::FreeMemory;
use memtide_core::{NodeId, PageSize};

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
        let zones = fs::read_to_string("/proc/zoneinfo").unwrap_or_default();
        for (node, left) in self.nodes.iter().zip(&self.left) {
            left.set((free_pages(&zones, *node) / 2).min(BUDGET_PAGES));
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

/// Pages that the kernel allocates without fallback to another node (above its low watermark).
fn free_pages(zoneinfo: &str, node: NodeId) -> u64 {
    let of_node = format!("{},", node.0);
    let zones = zoneinfo.split("Node ").filter(|zone| zone.starts_with(&of_node));
    zones.filter_map(free_in_zone).sum()
}

fn free_in_zone(zone: &str) -> Option<u64> {
    let figure = |name: &str| {
        let line = zone.lines().find_map(|line| line.trim_start().strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    // Part of low memory is reserved for allocations that require it; the last figure is for those that do
    // not.
    let reserved = zone.lines().find_map(|line| line.trim_start().strip_prefix("protection: ("))?;
    let reserved: u64 = reserved.trim_end_matches(')').split(", ").last()?.parse().ok()?;
    Some(figure("pages free")?.saturating_sub(figure("low ")? + reserved))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZONES: &str = "Node 0, zone      DMA\n  per-node stats\n      nr_free 3\n  pages free     \
        3840\n        boost    0\n        min      21\n        low      26\n        high     31\n        \
        protection: (0, 900, 900, 900)\n\
        Node 0, zone    DMA32\n  pages free     1000\n        min      80\n        low      100\n        \
        protection: (0, 0, 0, 0)\n\
        Node 1, zone   Movable\n  pages free     50\n        min      60\n        low      70\n        \
        protection: (0, 0, 0, 0)\n\
        Node 11, zone   Normal\n  pages free     5\n        low      0\n        protection: (0, 0, 0, 0)\n";

    #[test]
    fn reserved_pages_are_not_free() {
        assert_eq!([0, 1, 11, 2].map(|node| free_pages(ZONES, NodeId(node))), [2914 + 900, 0, 5, 0]);
    }

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

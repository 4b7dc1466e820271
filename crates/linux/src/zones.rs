//! Free memory and watermarks of nodes (proc_zoneinfo(5), Documentation/mm/physical_memory.rst).

use std::{fs, io};

use memtide_core::NodeId;
use memtide_core::policy::Watermarks;

/// The kernel's file of memory zones.
pub(crate) const ZONEINFO: &str = "/proc/zoneinfo";

/// Text of the kernel's file of memory zones.
#[derive(Debug, Default)]
pub(crate) struct Zones(String);

impl Zones {
    /// Reads the zones of this system.
    ///
    /// # Errors
    /// If procfs is not mounted.
    pub(crate) fn read() -> io::Result<Zones> {
        fs::read_to_string(ZONEINFO).map(Zones)
    }

    fn of_node(&self, node: NodeId) -> impl Iterator<Item = &str> {
        let head = format!("{},", node.0);
        self.0.split("Node ").filter(move |zone| zone.starts_with(&head))
    }

    /// Base pages that the kernel allocates for a program on a node, without reclaim and without another
    /// node: those above the low watermark, without the ones that a zone reserves for devices.
    pub(crate) fn free_pages(&self, node: NodeId) -> u64 {
        self.of_node(node).filter_map(|zone| free_with(zone, 0)).sum()
    }

    /// The same with those on per-CPU lists, which were freed, or allocated in batches: up to an eighth of a
    /// zone (`percpu_pagelist_high_fraction` in Documentation/admin-guide/sysctl/vm.rst).
    pub(crate) fn free_or_per_cpu_pages(&self, node: NodeId) -> u64 {
        self.of_node(node).filter_map(|zone| free_with(zone, lines_of(zone, "count:").sum())).sum()
    }

    /// Sums over a node's zones.
    pub(crate) fn watermarks(&self, node: NodeId) -> Watermarks {
        let sum = |name| self.of_node(node).filter_map(|zone| figure(zone, name)).sum();
        Watermarks { low_pages: sum("low"), high_pages: sum("high") }
    }
}

/// A zone's figure: the first line with this name and a number.
fn figure(zone: &str, name: &str) -> Option<u64> {
    lines_of(zone, name).next()
}

/// The numbers of all lines with this name.
fn lines_of(zone: &str, name: &str) -> impl Iterator<Item = u64> {
    zone.lines().filter_map(move |line| line.trim_start().strip_prefix(name)?.trim().parse().ok())
}

/// A zone's free pages, and these, above its low watermark and what it reserves.
fn free_with(zone: &str, others: u64) -> Option<u64> {
    // The last figure is for allocations that any zone can serve.
    let reserved = zone.lines().find_map(|line| line.trim_start().strip_prefix("protection: ("))?;
    let reserved: u64 = reserved.trim_end_matches(')').split(", ").last()?.parse().ok()?;
    Some((figure(zone, "pages free")? + others).saturating_sub(figure(zone, "low")? + reserved))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZONES: &str = "Node 0, zone      DMA\n  per-node stats\n      nr_free 3\n  pages free     \
        3840\n        boost    0\n        min      21\n        low      26\n        high     31\n        \
        protection: (0, 900, 900, 900)\n    cpu: 0\n              count: 5\n              high:  7\n\
        cpu: 1\n              count: 2\n              high:  7\n\
        Node 0, zone    DMA32\n  pages free     1000\n        min      80\n        low      100\n        \
        high     120\n        protection: (0, 0, 0, 0)\n\
        Node 1, zone   Movable\n  pages free     50\n        min      50\n        low      60\n        \
        high     80\n        protection: (0, 0, 0, 0)\n    cpu: 0\n              count: 14\n\
        Node 11, zone   Normal\n  pages free     5\n        low      0\n        protection: (0, 0, 0, 0)\n";

    #[test]
    fn reserved_pages_are_not_free() {
        let zones = Zones(ZONES.to_owned());
        assert_eq!([0, 1, 11, 2].map(|node| zones.free_pages(NodeId(node))), [2914 + 900, 0, 5, 0]);
    }

    #[test]
    fn pages_on_per_cpu_lists_are_free_above_the_low_watermark() {
        let zones = Zones(ZONES.to_owned());
        let of = |node| zones.free_or_per_cpu_pages(NodeId(node));
        assert_eq!([0, 1, 11].map(of), [2914 + 7 + 900, 4, 5], "node 1 is 10 pages below its watermark");
    }

    #[test]
    fn watermarks_are_summed_over_zones_of_a_node() {
        let zones = Zones(ZONES.to_owned());
        let watermarks = |node| zones.watermarks(NodeId(node));
        assert_eq!(watermarks(0), Watermarks { low_pages: 126, high_pages: 151 });
        assert_eq!(watermarks(1), Watermarks { low_pages: 60, high_pages: 80 });
        assert_eq!(watermarks(2), Watermarks { low_pages: 0, high_pages: 0 });
    }

    #[test]
    fn this_system_has_watermarks_and_free_memory() {
        let zones = Zones::read().expect("procfs");
        let Watermarks { low_pages, high_pages } = zones.watermarks(NodeId(0));
        assert!(low_pages < high_pages, "{low_pages} {high_pages}");
        assert!(zones.free_pages(NodeId(0)) > 0);
    }
}

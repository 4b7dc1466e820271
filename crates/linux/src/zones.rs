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
        self.of_node(node).filter_map(free_in_zone).sum()
    }

    /// Base pages in the lists of single CPUs: freed, or taken from the zone in advance. They are up to an
    /// eighth of it (`percpu_pagelist_high_fraction` in Documentation/admin-guide/sysctl/vm.rst).
    pub(crate) fn kept_by_cpus(&self, node: NodeId) -> u64 {
        let counts = |zone| lines_of(zone, "count:");
        self.of_node(node).flat_map(counts).sum()
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

fn free_in_zone(zone: &str) -> Option<u64> {
    // The last figure is for allocations that any zone can serve.
    let reserved = zone.lines().find_map(|line| line.trim_start().strip_prefix("protection: ("))?;
    let reserved: u64 = reserved.trim_end_matches(')').split(", ").last()?.parse().ok()?;
    Some(figure(zone, "pages free")?.saturating_sub(figure(zone, "low")? + reserved))
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
        Node 1, zone   Movable\n  pages free     50\n        min      60\n        low      70\n        \
        high     80\n        protection: (0, 0, 0, 0)\n\
        Node 11, zone   Normal\n  pages free     5\n        low      0\n        protection: (0, 0, 0, 0)\n";

    #[test]
    fn reserved_pages_are_not_free() {
        let zones = Zones(ZONES.to_owned());
        assert_eq!([0, 1, 11, 2].map(|node| zones.free_pages(NodeId(node))), [2914 + 900, 0, 5, 0]);
    }

    #[test]
    fn pages_in_lists_of_cpus_are_summed() {
        let zones = Zones(ZONES.to_owned());
        assert_eq!([0, 1].map(|node| zones.kept_by_cpus(NodeId(node))), [7, 0]);
    }

    #[test]
    fn watermarks_are_summed_over_zones_of_a_node() {
        let zones = Zones(ZONES.to_owned());
        let watermarks = |node| zones.watermarks(NodeId(node));
        assert_eq!(watermarks(0), Watermarks { low_pages: 126, high_pages: 151 });
        assert_eq!(watermarks(1), Watermarks { low_pages: 70, high_pages: 80 });
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

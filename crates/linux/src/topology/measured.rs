//! Measured figures, and their place in a machine.

use std::collections::BTreeMap;

use memtide_core::NodeId;
use memtide_core::machine::{LoadPoint, Machine, Tlb};

use super::machine::MEASURED;

/// Everything measured on a system.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measurements {
    /// Nodes from initiators.
    pub pairs: Vec<Measured>,
    /// Cores, caches, TLBs and page faults.
    pub processor: Option<MeasuredProcessor>,
}

/// Measured figures of a node from the CPUs of another, or of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The node with the CPUs.
    pub initiator: NodeId,
    /// The node with the memory.
    pub node: NodeId,
    /// Idle read latency in ns.
    pub idle_ns: f64,
    /// Read bandwidth in MB/s.
    pub read_mbps: f64,
    /// Bandwidth of writes alone in MB/s, if it was measured.
    pub write_mbps: Option<f64>,
    /// Bandwidth in MB/s and the read latency in ns at it, in any order; may be empty.
    pub loaded: Vec<(f64, f64)>,
}

/// Measured figures of a core and the kernel; a figure that could not be measured is absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MeasuredProcessor {
    /// Clock under load in MHz.
    pub clock_mhz: Option<f64>,
    /// Cache levels, nearest to the core first; may be fewer than the core has.
    pub caches: Vec<MeasuredCache>,
    /// Misses in flight of one core.
    pub misses: Option<u16>,
    /// Instructions that a core runs ahead of a load that misses.
    pub reorder_buffer: Option<u32>,
    /// Stores that the core runs ahead of loads that miss.
    pub store_queue: Option<u16>,
    /// Whether the prefetcher follows a stream into the next page.
    pub next_page: Option<bool>,
    /// Reach and costs of the TLB.
    pub tlb: Option<MeasuredTlb>,
    /// Time of a first-touch fault of a base page in ns.
    pub fault_ns: Option<f64>,
    /// The same of a huge page.
    pub huge_fault_ns: Option<f64>,
}

/// Measured cache level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredCache {
    /// What a program has of it, in KiB; `None` if that was not measured.
    pub kib: Option<u64>,
    /// Latency in ns.
    pub ns: f64,
}

/// Measured TLB.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredTlb {
    /// Pages that the first level holds, if that could be measured.
    pub first_pages: Option<u32>,
    /// Cost of a hit in the second level beyond one in the first, in ns.
    pub second_ns: f64,
    /// Pages that both levels hold.
    pub pages: u32,
    /// Cost of a page walk whose table is in a private cache, in ns.
    pub walk_ns: f64,
    /// Cost of one whose table is not, in ns, if it could be measured.
    pub cold_walk_ns: Option<f64>,
    /// Page walks in flight of one core.
    pub walkers: Option<u16>,
    /// Whether the system is a virtual machine, whose walks pass two page tables.
    pub nested_walks: bool,
}

/// To 0.1: no measurement is more exact.
pub(super) fn tenth(figure: f64) -> f64 {
    (figure * 10.0).round() / 10.0
}

impl Measured {
    /// The curve in a machine file's form: increasing shares of the read bandwidth, non-decreasing latencies.
    /// Load adds to the idle latency what it adds to the curve's own point of least bandwidth: memory of
    /// another size, or measured at another moment, has another idle latency. A latency below its predecessor
    /// (noise) is raised to it; of the points at or above the read bandwidth, the highest latency counts.
    pub(super) fn curve(&self) -> Vec<LoadPoint> {
        let mut points = self.loaded.clone();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let own_idle_ns = points.first().map_or(0.0, |point| point.1);
        let mut curve: Vec<LoadPoint> = Vec::new();
        for (mbps, ns) in points {
            let load = (mbps / self.read_mbps).clamp(0.0, 1.0);
            let least = curve.last().map_or(self.idle_ns, |point| point.latency_ns);
            let latency_ns = tenth(self.idle_ns + ns - own_idle_ns).max(least);
            match curve.last_mut() {
                Some(last) if load <= last.load => last.latency_ns = latency_ns,
                _ => curve.push(LoadPoint { load, latency_ns }),
            }
        }
        curve
    }
}

impl MeasuredProcessor {
    /// Replaces the assumed figures of a machine by the measured ones, and their sources.
    pub(super) fn apply(&self, machine: &mut Machine) {
        let measured = |sources: &mut BTreeMap<String, String>, path: &str, more: &str| {
            sources.insert(path.to_owned(), format!("{MEASURED}{more}"));
        };
        let sources = &mut machine.sources;
        if let Some(mhz) = self.clock_mhz {
            machine.core.clock_mhz = mhz.round();
            measured(sources, "core.clock_mhz", "");
        }
        if let Some(misses) = self.misses {
            machine.core.outstanding_misses = misses;
            measured(sources, "core.outstanding_misses", "");
        }
        if let Some(instructions) = self.reorder_buffer {
            machine.core.reorder_buffer = instructions;
            measured(sources, "core.reorder_buffer", "");
        }
        if let Some(stores) = self.store_queue {
            machine.core.store_queue = stores;
            measured(sources, "core.store_queue", "");
        }
        if let (Some(prefetcher), Some(next_page)) = (&mut machine.prefetcher, self.next_page) {
            prefetcher.next_page = next_page;
            measured(sources, "prefetcher.next_page", "");
        }
        let mhz = machine.core.clock_mhz;
        let cycles = |ns: f64| tenth(ns * mhz / 1e3);
        for (cache, found) in machine.caches.iter_mut().zip(&self.caches) {
            cache.latency_cycles = cycles(found.ns);
            measured(sources, &format!("cache.{}.latency_cycles", cache.name), "");
            let sets = found.kib.map(|kib| kib / u64::from(cache.ways)).filter(|&sets| sets > 0);
            let held_kib = sets.map(|sets| sets * u64::from(cache.ways));
            if let Some(held_kib) = held_kib.filter(|&kib| kib < cache.capacity_kib) {
                let whole = format!("; of {} KiB, which others use, too", cache.capacity_kib);
                measured(sources, &format!("cache.{}.capacity_kib", cache.name), &whole);
                cache.capacity_kib = held_kib;
            }
        }
        order_caches(machine);
        let sources = &mut machine.sources;
        if let Some(tlb) = &self.tlb {
            machine.tlbs = tlb.levels(cycles, &machine.tlbs);
            measured(sources, "tlb", "; assumed: 4 and 8 ways, and a figure that could not be measured");
        }
        for (path, cost, ns) in [
            ("kernel.fault_ns", &mut machine.kernel.fault_ns, self.fault_ns),
            ("kernel.huge_fault_ns", &mut machine.kernel.huge_fault_ns, self.huge_fault_ns),
        ] {
            if let Some(ns) = ns {
                *cost = ns.round();
                measured(sources, path, "");
            }
        }
    }
}

/// Makes no cache slower than a later one or memory: other work on the system only adds to a latency, and
/// assumed latencies of levels that were not measured have no part in it.
fn order_caches(machine: &mut Machine) {
    let memory = machine.nodes.iter().filter_map(|node| Some(node.fixed.as_ref()?.read_latency_ns));
    let memory_ns = memory.fold(f64::INFINITY, f64::min);
    let mut most = (memory_ns * machine.core.clock_mhz / 1e2).floor() / 10.0;
    for cache in machine.caches.iter_mut().rev() {
        cache.latency_cycles = tenth(cache.latency_cycles.min(most));
        most = cache.latency_cycles - 0.1;
    }
}

impl MeasuredTlb {
    /// Levels in a machine file's form; what was not measured is as in `assumed`.
    fn levels(&self, cycles: impl Fn(f64) -> f64, assumed: &[Tlb]) -> Vec<Tlb> {
        let [first, second] = assumed else { return assumed.to_vec() };
        let entries = self.first_pages.unwrap_or(first.entries);
        let walk_cycles = cycles(self.walk_ns);
        vec![
            Tlb { entries, ways: 4.min(entries.max(1)) as u16, ..first.clone() },
            Tlb {
                entries: self.pages,
                ways: 8.min(self.pages.max(1)) as u16,
                latency_cycles: cycles(self.second_ns),
                walk_cycles,
                // Where noise hides the difference, a cold walk costs what a warm one does.
                cold_walk_cycles: self.cold_walk_ns.map(|ns| cycles(ns).max(walk_cycles)),
                nested_walks: self.nested_walks && self.cold_walk_ns.is_some(),
                walkers: self.walkers.unwrap_or(1),
                ..second.clone()
            },
        ]
    }
}

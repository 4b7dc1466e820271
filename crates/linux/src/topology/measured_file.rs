//! Parses the output of `memtide measure -o json`.

use memtide_core::NodeId;
use serde::Deserialize;

use super::measured::tenth;
use super::{Measured, MeasuredCache, MeasuredProcessor, MeasuredTlb, Measurements};
use crate::measure::MOST_WRITES_PER_READ;

/// Latencies and bandwidths of pairs of nodes, as `memtide measure -o json` prints them.
#[derive(Debug, Deserialize)]
pub struct MeasuredFile {
    nodes: Vec<Row>,
    #[serde(default)]
    loaded: Vec<Point>,
    #[serde(default)]
    caches: Vec<CacheRow>,
    #[serde(default)]
    processor: Vec<ProcessorRow>,
}

#[derive(Debug, Deserialize)]
struct CacheRow {
    kib: Option<u64>,
    latency_ns: f64,
}

impl CacheRow {
    fn figures(&self) -> MeasuredCache {
        MeasuredCache { kib: self.kib, ns: self.latency_ns }
    }
}

#[derive(Debug, Deserialize)]
struct ProcessorRow {
    initiator: NodeId,
    node: NodeId,
    clock_mhz: Option<f64>,
    memory_ns: Option<f64>,
    misses: Option<u16>,
    reorder_buffer: Option<u32>,
    store_queue: Option<u16>,
    next_page: Option<bool>,
    tlb_first_pages: Option<u32>,
    tlb_second_ns: Option<f64>,
    tlb_pages: Option<u32>,
    walk_ns: Option<f64>,
    cold_walk_ns: Option<f64>,
    walkers: Option<u16>,
    #[serde(default)]
    nested_walks: bool,
    fault_ns: Option<f64>,
    huge_fault_ns: Option<f64>,
}

impl ProcessorRow {
    fn tlb(&self) -> Option<MeasuredTlb> {
        Some(MeasuredTlb {
            first_pages: self.tlb_first_pages,
            second_ns: self.tlb_second_ns.unwrap_or(0.0),
            pages: self.tlb_pages?,
            walk_ns: self.walk_ns?,
            cold_walk_ns: self.cold_walk_ns,
            walkers: self.walkers,
            nested_walks: self.nested_walks,
        })
    }
}

#[derive(Debug, Deserialize)]
struct Row {
    initiator: NodeId,
    node: NodeId,
    idle_ns: Option<f64>,
    read_mbps: Option<f64>,
    reads_50_mbps: Option<f64>,
    write_mbps: Option<f64>,
    #[serde(default)]
    cached: bool,
    #[serde(default)]
    spread: f64,
}

impl Row {
    /// Where reads and writes overlap, so that writes alone could not be measured, the least bandwidth that
    /// counts as overlap.
    fn write_mbps(&self) -> Option<f64> {
        let overlapped = || Some(MOST_WRITES_PER_READ * self.reads_50_mbps.and(self.read_mbps)?);
        self.write_mbps.or_else(overlapped)
    }
}

#[derive(Debug, Deserialize)]
struct Point {
    initiator: NodeId,
    node: NodeId,
    mbps: f64,
    latency_ns: f64,
}

impl MeasuredFile {
    /// Reads the JSON text.
    ///
    /// # Errors
    /// What is wrong in the text, and where.
    pub fn parse(text: &[u8]) -> Result<MeasuredFile, serde_json::Error> {
        serde_json::from_slice(text)
    }

    /// The figures, without pairs that could not be measured: to 0.1 ns and 1 MB/s, since no measurement is
    /// more exact. Of two idle latencies of a pair, the lower one counts.
    pub fn figures(&self) -> Measurements {
        let processor = self.processor.first();
        let ladder_ns = |row: &Row| {
            let same = processor.filter(|found| (found.initiator, found.node) == (row.initiator, row.node));
            same.and_then(|found| found.memory_ns).unwrap_or(f64::INFINITY)
        };
        let figures = |row: &Row| {
            let here = |point: &&Point| (point.initiator, point.node) == (row.initiator, row.node);
            Some(Measured {
                initiator: row.initiator,
                node: row.node,
                idle_ns: tenth(row.idle_ns?.min(ladder_ns(row))),
                read_mbps: row.read_mbps?.round(),
                write_mbps: row.write_mbps().map(f64::round),
                loaded: self
                    .loaded
                    .iter()
                    .filter(here)
                    .map(|point| (point.mbps.round(), tenth(point.latency_ns)))
                    .collect(),
            })
        };
        Measurements {
            pairs: self.nodes.iter().filter_map(figures).collect(),
            processor: processor.map(|found| MeasuredProcessor {
                clock_mhz: found.clock_mhz,
                caches: self.caches.iter().map(CacheRow::figures).collect(),
                misses: found.misses,
                reorder_buffer: found.reorder_buffer,
                store_queue: found.store_queue,
                next_page: found.next_page,
                tlb: found.tlb(),
                fault_ns: found.fault_ns,
                huge_fault_ns: found.huge_fault_ns,
            }),
        }
    }

    /// Initiator and node of the pairs of which a cache held much of the measured memory.
    pub fn cached(&self) -> impl Iterator<Item = (NodeId, NodeId)> {
        self.nodes.iter().filter(|row| row.cached).map(|row| (row.initiator, row.node))
    }

    /// Initiator and node of the pairs with a figure whose measurements differed by more than this share of
    /// their median.
    pub fn unsteady(&self, share: f64) -> impl Iterator<Item = (NodeId, NodeId)> {
        let unsteady = move |row: &&Row| row.spread > share;
        self.nodes.iter().filter(unsteady).map(|row| (row.initiator, row.node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unmeasured_pairs_are_skipped_and_cached_pairs_reported() {
        let text = r#"{"nodes": [
                {"initiator": 0, "node": 0, "cached": true, "idle_ns": 90.123,
                 "read_mbps": 5000.4, "write_mbps": null, "spread": 1.17},
                {"initiator": 0, "node": 1, "cached": false, "idle_ns": null, "read_mbps": null}],
              "loaded": [{"initiator": 0, "node": 0, "rate": 0.5, "mbps": 100.0, "latency_ns": 95.0}]}"#;
        let file = MeasuredFile::parse(text.as_bytes()).expect("what is printed");
        let figures = file.figures().pairs;
        assert_eq!(figures.iter().map(|found| found.node).collect::<Vec<_>>(), [NodeId(0)]);
        assert_eq!((figures[0].idle_ns, figures[0].read_mbps), (90.1, 5000.0));
        assert_eq!((figures[0].loaded.clone(), figures[0].write_mbps), (vec![(100.0, 95.0)], None));
        assert_eq!(file.unsteady(0.5).collect::<Vec<_>>(), [(NodeId(0), NodeId(0))]);
        assert_eq!(file.unsteady(1.2).count(), 0);
        assert_eq!(file.cached().collect::<Vec<_>>(), [(NodeId(0), NodeId(0))]);
    }
    #[test]
    fn writes_that_overlap_reads_have_four_times_their_bandwidth() {
        let text = r#"{"nodes": [{"initiator": 0, "node": 0, "idle_ns": 90, "read_mbps": 5000,
            "reads_50_mbps": 9900, "write_mbps": null}]}"#;
        let file = MeasuredFile::parse(text.as_bytes()).expect("what is printed");
        assert_eq!(file.figures().pairs[0].write_mbps, Some(20_000.0));
    }
}

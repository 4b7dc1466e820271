//! Parses the output of `memtide measure -o json`.

use memtide_core::NodeId;
use serde::Deserialize;

use super::Measured;

/// Latencies and bandwidths of pairs of nodes, as `memtide measure -o json` prints them.
#[derive(Debug, Deserialize)]
pub struct MeasuredFile {
    nodes: Vec<Row>,
    #[serde(default)]
    loaded: Vec<Point>,
}

#[derive(Debug, Deserialize)]
struct Row {
    initiator: NodeId,
    node: NodeId,
    idle_ns: Option<f64>,
    read_mbps: Option<f64>,
    #[serde(default)]
    write_mbps: Option<f64>,
    #[serde(default)]
    cached: bool,
    #[serde(default)]
    spread: f64,
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

    /// The pairs' figures, without those that could not be measured: to 0.1 ns and 1 MB/s, since no
    /// measurement is more exact.
    pub fn figures(&self) -> Vec<Measured> {
        let figures = |row: &Row| {
            let here = |point: &&Point| (point.initiator, point.node) == (row.initiator, row.node);
            Some(Measured {
                initiator: row.initiator,
                node: row.node,
                idle_ns: tenth(row.idle_ns?),
                read_mbps: row.read_mbps?.round(),
                write_mbps: row.write_mbps.map(f64::round),
                loaded: self
                    .loaded
                    .iter()
                    .filter(here)
                    .map(|point| (point.mbps.round(), tenth(point.latency_ns)))
                    .collect(),
            })
        };
        self.nodes.iter().filter_map(figures).collect()
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

fn tenth(ns: f64) -> f64 {
    (ns * 10.0).round() / 10.0
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
        let figures = file.figures();
        assert_eq!(figures.iter().map(|found| found.node).collect::<Vec<_>>(), [NodeId(0)]);
        assert_eq!((figures[0].idle_ns, figures[0].read_mbps), (90.1, 5000.0));
        assert_eq!(figures[0].loaded, [(100.0, 95.0)]);
        assert_eq!(file.unsteady(0.5).collect::<Vec<_>>(), [(NodeId(0), NodeId(0))]);
        assert_eq!(file.unsteady(1.2).count(), 0);
        assert_eq!(file.cached().collect::<Vec<_>>(), [(NodeId(0), NodeId(0))]);
    }
}

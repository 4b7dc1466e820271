//! A memory node as a loaded-latency curve.

use memtide_core::machine::Fixed;
use memtide_core::{NodeId, Time};
use memtide_lab_protocol::clock::Range;

use crate::buckets::Buckets;
use crate::pressure::Pressure;

/// Utilisation steps of the precomputed curve.
const STEPS: usize = 256;

/// A node whose latency depends on its utilisation. `memtide_memory::fixed` is the simulator's model of the
/// same figures.
#[derive(Clone, Debug)]
pub struct CurveNode {
    server: Buckets,
    /// Time used by requests that may queue: all but the reads of CPUs with one outstanding line.
    pressure: Pressure,
    service: [u64; 2],
    /// Latency without the path through the caches, at utilisations of `step / STEPS`.
    latency: Vec<Time>,
}

impl CurveNode {
    /// The node of checked figures.
    pub fn new(fixed: &Fixed) -> CurveNode {
        let write_mbps = fixed.write_bandwidth_mbps.unwrap_or(fixed.read_bandwidth_mbps);
        let at = |step: usize| Time::from_ns(latency_ns(fixed, step as f64 / STEPS as f64));
        CurveNode {
            server: Buckets::new(),
            pressure: Pressure::new(),
            service: [Buckets::service(fixed.read_bandwidth_mbps), Buckets::service(write_mbps)],
            latency: (0..=STEPS).map(at).collect(),
        }
    }

    /// Reads a line; returns when its data leaves the node. The read of a CPU with one outstanding line
    /// (`alone`) queues behind others but uses no service time: with bandwidth divided for few virtual CPUs,
    /// a single pointer chase would load the node like many, and queue behind itself.
    #[inline]
    pub fn read(&mut self, at: Time, alone: bool) -> Time {
        let load = self.pressure.load(at);
        let begin = if alone {
            self.server.next_free(at)
        } else {
            self.pressure.count(at, self.service[0]);
            self.server.take(at, self.service[0])
        };
        let loaded = at + self.latency[(load * STEPS as f64) as usize];
        loaded.max(begin + self.latency[0])
    }

    /// Writes a line: posted, uses service time only. Returns when the node takes it.
    #[inline]
    pub fn write(&mut self, at: Time) -> Time {
        self.pressure.count(at, self.service[1]);
        self.server.take(at, self.service[1])
    }
}

/// Read latency on the curve, linearly interpolated.
fn latency_ns(fixed: &Fixed, load: f64) -> f64 {
    let (mut before, mut below) = (0.0, fixed.read_latency_ns);
    for point in &fixed.loaded {
        if load <= point.load {
            let share = if point.load > before { (load - before) / (point.load - before) } else { 1.0 };
            return below + (point.latency_ns - below) * share;
        }
        (before, below) = (point.load, point.latency_ns);
    }
    below
}

/// Physical memory map: node of each line.
#[derive(Clone, Debug)]
pub(super) struct Map {
    /// Node of each 2 MiB.
    nodes: Vec<u8>,
}

const LINES_SHIFT: u32 = 15;
const NO_NODE: u8 = u8::MAX;

impl Map {
    pub fn new(ranges: &[Range]) -> Map {
        let end = ranges.iter().map(|range| (range.start + range.bytes) >> 21).max().unwrap_or(0);
        let mut nodes = vec![NO_NODE; end as usize];
        for range in ranges {
            nodes[(range.start >> 21) as usize..((range.start + range.bytes) >> 21) as usize]
                .fill(range.node.0);
        }
        Map { nodes }
    }

    /// `None` if the line is not memory.
    #[inline]
    pub fn node_of(&self, line: u64) -> Option<NodeId> {
        let node = *self.nodes.get((line >> LINES_SHIFT) as usize)?;
        (node != NO_NODE).then_some(NodeId(node))
    }
}

#[cfg(test)]
mod tests {
    use memtide_core::machine::LoadPoint;

    use super::*;

    fn fixed() -> Fixed {
        Fixed {
            read_latency_ns: 100.0,
            write_latency_ns: None,
            read_bandwidth_mbps: 6400.0,
            write_bandwidth_mbps: Some(3200.0),
            loaded: vec![
                LoadPoint { load: 0.5, latency_ns: 120.0 },
                LoadPoint { load: 1.0, latency_ns: 300.0 },
            ],
        }
    }

    #[test]
    fn latency_is_idle_without_load_and_follows_curve() {
        let mut node = CurveNode::new(&fixed());
        assert_eq!(node.read(Time::from_us(1), false), Time::from_us(1) + Time::from_ns(100.0));
        // Every 20 ns a line of 10 ns: half loaded.
        let mut last = Time::ZERO;
        for n in 0..50_000 {
            let at = Time::from_us(10) + Time::from_ns(20.0 * f64::from(n));
            last = node.read(at, false).since(at);
        }
        assert!((last.as_ns() - 120.0).abs() < 2.0, "{last}");
    }

    #[test]
    fn chase_queues_behind_others_only() {
        let mut node = CurveNode::new(&fixed());
        let mut at = Time::from_us(1);
        for _ in 0..10_000 {
            let end = node.read(at, true);
            assert_eq!(end.since(at), Time::from_ns(100.0));
            at = end;
        }
        (0..10_000).for_each(|n| _ = node.write(at + Time::from_ns(40.0 * f64::from(n))));
        at += Time::from_us(400);
        assert!(node.read(at, true).since(at) > Time::from_ns(115.0));
    }

    #[test]
    fn reads_and_writes_share_service_time() {
        let mut node = CurveNode::new(&fixed());
        let mut end = Time::ZERO;
        for _ in 0..10_000 {
            end = end.max(node.read(Time::ZERO, false));
            node.write(Time::ZERO);
        }
        // 10 ns a read and 20 ns a write.
        assert!((end.as_ns() / 300_000.0 - 1.0).abs() < 0.01, "{end}");
    }

    #[test]
    fn line_maps_to_node() {
        let range = |node, start, bytes| Range { node: NodeId(node), start, bytes };
        let map = Map::new(&[range(0, 0, 4 << 20), range(1, 1 << 32, 2 << 20)]);
        let node = |address: u64| map.node_of(address / 64);
        assert_eq!(node((4 << 20) - 64), Some(NodeId(0)));
        assert_eq!(node(4 << 20), None);
        assert_eq!(node(1 << 32), Some(NodeId(1)));
        assert_eq!(node(u64::MAX), None);
    }
}

//! Samples during a run: traffic over time and latencies.

use hdrhistogram::Histogram;
use memtide_core::{NodeId, Time};
use memtide_memory::Uncore;

/// Initial length of a bucket, which doubles as needed.
const FIRST_BUCKET: Time = Time::from_us(10);

/// Maximum number of buckets; beyond it, neighbours are merged.
const BUCKETS: usize = 512;

/// Histogram units per nanosecond.
const UNITS_PER_NS: f64 = 10.0;

/// Traffic of every node over time, and latencies of its demand reads.
pub(crate) struct Samples {
    pub bucket: Time,
    /// Lines moved between device and controller in each bucket, by node.
    pub traffic: Vec<Vec<u64>>,
    last: Vec<u64>,
    taken: u64,
    histograms: Vec<Histogram<u64>>,
}

impl Samples {
    pub fn new(nodes: usize) -> Samples {
        let histogram =
            Histogram::new_with_bounds(1, 10_000_000_000, 3).expect("bounds that the library allows");
        Samples {
            bucket: FIRST_BUCKET,
            traffic: vec![Vec::new(); nodes],
            last: vec![0; nodes],
            taken: 0,
            histograms: vec![histogram; nodes],
        }
    }

    /// Time of the next sample.
    pub fn next(&self) -> Time {
        self.bucket * (self.taken + 1)
    }

    /// Takes a sample of the traffic.
    pub fn take(&mut self, uncore: &Uncore) {
        let due = self.next();
        for (node, (traffic, last)) in self.traffic.iter_mut().zip(&mut self.last).enumerate() {
            let now = uncore.node_counters(NodeId::from(node), due).lines();
            traffic.push(now - *last);
            *last = now;
        }
        self.taken += 1;
        if self.taken as usize == BUCKETS {
            self.traffic.iter_mut().for_each(merge_pairs);
            self.taken /= 2;
            self.bucket = self.bucket * 2;
        }
    }

    /// Time of the last sample.
    pub fn until(&self) -> Time {
        self.bucket * self.taken
    }

    /// A node's traffic since the last sample.
    pub fn since_last(&self, node: NodeId, uncore: &Uncore, now: Time) -> u64 {
        uncore.node_counters(node, now).lines().saturating_sub(self.last[node.index()])
    }

    /// Collects the latencies from the uncore.
    pub fn latencies(&mut self, uncore: &mut Uncore) {
        for (node, latency) in uncore.drain_latencies() {
            self.histograms[node.index()].saturating_record(latency.0 / 100);
        }
    }

    /// Latencies of a node's demand reads.
    pub fn of_node(&self, node: NodeId) -> Latencies<'_> {
        Latencies(&self.histograms[node.index()])
    }

    /// Latencies of all nodes' demand reads.
    pub fn of_all(&self) -> Histogram<u64> {
        let mut all = self.histograms[0].clone();
        for other in &self.histograms[1..] {
            all.add(other).expect("histograms of the same bounds");
        }
        all
    }
}

/// Latencies, in ns; `None` without reads.
pub(crate) struct Latencies<'h>(pub &'h Histogram<u64>);

impl Latencies<'_> {
    pub fn mean_ns(&self) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.mean() / UNITS_PER_NS)
    }

    /// A percentile of the latencies.
    pub fn percentile_ns(&self, percent: f64) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.value_at_percentile(percent) as f64 / UNITS_PER_NS)
    }

    /// Latencies at a selection of percentiles, each with the share of reads at or below it.
    pub fn distribution(&self) -> Vec<(f64, f64)> {
        let percents = (0..100).map(f64::from).chain([99.5, 99.9, 99.99, 100.0]);
        percents.filter_map(|p| Some((self.percentile_ns(p)?, p / 100.0))).collect()
    }
}

fn merge_pairs(traffic: &mut Vec<u64>) {
    *traffic = traffic.chunks_exact(2).map(|pair| pair[0] + pair[1]).collect();
}

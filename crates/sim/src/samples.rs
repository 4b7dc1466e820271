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

/// Time between two looks at the run while nothing is sampled.
const PAUSED: Time = Time::from_us(100);

/// Traffic of every node over time in the region of interest, and latencies of all demand reads.
pub(crate) struct Samples {
    pub bucket: Time,
    /// Lines moved between device and controller in each bucket, by node.
    pub traffic: Vec<Vec<u64>>,
    last: Vec<u64>,
    taken: u64,
    /// When the region began or resumed; `None` outside.
    since: Option<Time>,
    /// The region's time before that.
    before: Time,
    histograms: Vec<Histogram<u64>>,
}

/// An empty histogram of latencies.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 10_000_000_000, 3).expect("bounds that the library allows")
}

impl Samples {
    /// Samples of a run that begins within its region of interest, or before it.
    pub fn new(nodes: usize, within: bool) -> Samples {
        Samples {
            bucket: FIRST_BUCKET,
            traffic: vec![Vec::new(); nodes],
            last: vec![0; nodes],
            taken: 0,
            since: within.then_some(Time::ZERO),
            before: Time::ZERO,
            histograms: vec![histogram(); nodes],
        }
    }

    /// Time of the next sample, or of the next look at the run.
    pub fn next(&self, now: Time) -> Time {
        match self.since {
            Some(since) => since + (self.bucket * (self.taken + 1)).since(self.before),
            None => now + PAUSED,
        }
    }

    /// The region begins or ends.
    pub fn follow(&mut self, within: bool, uncore: &Uncore, now: Time) {
        let lines = |node| uncore.node_counters(NodeId::from(node), now).lines();
        match (self.since, within) {
            (Some(since), false) => {
                self.before += now.since(since);
                self.since = None;
                self.last.iter_mut().enumerate().for_each(|(node, last)| *last = lines(node) - *last);
            }
            (None, true) => {
                self.since = Some(now);
                self.last.iter_mut().enumerate().for_each(|(node, last)| *last = lines(node) - *last);
            }
            _ => {}
        }
    }

    /// Takes a sample of the traffic, if it is due.
    pub fn take(&mut self, uncore: &Uncore, now: Time) {
        if self.since.is_none() {
            return;
        }
        for (node, (traffic, last)) in self.traffic.iter_mut().zip(&mut self.last).enumerate() {
            let lines = uncore.node_counters(NodeId::from(node), now).lines();
            traffic.push(lines - *last);
            *last = lines;
        }
        self.taken += 1;
        if self.taken as usize == BUCKETS {
            self.traffic.iter_mut().for_each(merge_pairs);
            self.taken /= 2;
            self.bucket = self.bucket * 2;
        }
    }

    /// The region's time up to the last sample.
    pub fn until(&self) -> Time {
        self.bucket * self.taken
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

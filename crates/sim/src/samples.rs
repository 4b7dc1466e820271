//! Samples during a run: traffic and pages over time, and latencies.

use hdrhistogram::Histogram;
use memtide_core::{NodeId, Time};
use memtide_memory::{Requested, Uncore};

use crate::engine::Engine;

/// Initial length of a bucket, which doubles as needed.
const FIRST_BUCKET: Time = Time::from_us(10);

/// Maximum number of buckets; beyond it, neighbours are merged.
const BUCKETS: usize = 512;

/// Histogram units per nanosecond.
const UNITS_PER_NS: f64 = 10.0;

/// Time between two looks at the run while nothing is sampled.
const PAUSED: Time = Time::from_us(100);

/// A count that grows during a run, or its growth in a bucket.
pub(crate) trait Count: Copy + Default {
    /// What happened since an earlier sample.
    fn since(&self, earlier: &Self) -> Self;
    /// The bucket that has this one and an earlier one.
    fn after(&self, earlier: &Self) -> Self;
}

/// A program's counts since the start of the run, or in a bucket.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProgramSample {
    /// Lines that the private caches of its CPUs read from the shared levels for it, and wrote there.
    pub lines: u64,
    /// Base pages migrated.
    pub migrated_pages: u64,
}

impl ProgramSample {
    /// Samples of all programs up to now.
    pub fn of_all(engine: &Engine<'_>) -> Vec<ProgramSample> {
        let mut samples = vec![ProgramSample::default(); engine.programs.len()];
        for thread in &engine.threads {
            samples[thread.program].lines += thread.counts.read_lines + thread.counts.written_lines;
        }
        for (program, pages) in engine.tasks.migrated_pages() {
            samples[program].migrated_pages += pages;
        }
        samples
    }

    fn combined(&self, other: &ProgramSample, op: fn(u64, u64) -> u64) -> ProgramSample {
        ProgramSample {
            lines: op(self.lines, other.lines),
            migrated_pages: op(self.migrated_pages, other.migrated_pages),
        }
    }
}

impl Count for ProgramSample {
    fn since(&self, earlier: &ProgramSample) -> ProgramSample {
        self.combined(earlier, u64::saturating_sub)
    }

    fn after(&self, earlier: &ProgramSample) -> ProgramSample {
        self.combined(earlier, |a, b| a + b)
    }
}

/// A node's counts since the start of the run, or in a bucket, and its pages at the end of that time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NodeSample {
    /// Lines moved between device and controller.
    pub lines: u64,
    /// Lines requested from it, by requester.
    pub requested: Requested,
    /// Base pages migrated to it.
    pub migrated_pages: u64,
    /// Base pages on it.
    pub pages: u64,
}

impl NodeSample {
    /// Samples of all nodes up to now.
    pub fn of_all(engine: &Engine<'_>) -> Vec<NodeSample> {
        let pages = engine.mapped_pages();
        let of_node = |node: NodeId| NodeSample {
            lines: engine.uncore.node_counters(node, engine.now).lines(),
            requested: engine.uncore.requested(node),
            migrated_pages: engine.mover.migrated_pages(node),
            pages: pages[node.index()],
        };
        engine.setup.machine.node_ids().map(of_node).collect()
    }

    fn combined(&self, other: &NodeSample, op: fn(u64, u64) -> u64) -> NodeSample {
        let (a, b) = (self.requested, other.requested);
        NodeSample {
            lines: op(self.lines, other.lines),
            requested: Requested {
                demand: op(a.demand, b.demand),
                prefetch: op(a.prefetch, b.prefetch),
                copy: op(a.copy, b.copy),
            },
            migrated_pages: op(self.migrated_pages, other.migrated_pages),
            pages: self.pages,
        }
    }
}

impl Count for NodeSample {
    fn since(&self, earlier: &NodeSample) -> NodeSample {
        self.combined(earlier, u64::saturating_sub)
    }

    fn after(&self, earlier: &NodeSample) -> NodeSample {
        self.combined(earlier, |a, b| a + b)
    }
}

/// Counts of nodes or programs over time.
pub(crate) struct Series<C> {
    /// Of each, the buckets.
    buckets: Vec<Vec<C>>,
    /// Counts at the last sample; outside of the region, those since the last sample in it.
    last: Vec<C>,
}

impl<C: Count> Series<C> {
    fn new(number: usize) -> Series<C> {
        Series { buckets: vec![Vec::new(); number], last: vec![C::default(); number] }
    }

    /// The region begins or ends.
    fn follow(&mut self, counts: &[C]) {
        for (last, counts) in self.last.iter_mut().zip(counts) {
            *last = counts.since(last);
        }
    }

    fn take(&mut self, counts: Vec<C>) {
        for (buckets, (counts, last)) in self.buckets.iter_mut().zip(counts.iter().zip(&self.last)) {
            buckets.push(counts.since(last));
        }
        self.last = counts;
    }

    fn merge_pairs(&mut self) {
        for buckets in &mut self.buckets {
            *buckets = buckets.chunks_exact(2).map(|pair| pair[1].after(&pair[0])).collect();
        }
    }

    /// The buckets of one, which add up to `whole`, its counts in the whole region of interest; `rest` is the
    /// length of the last one.
    fn of_region(&self, number: usize, whole: C, rest: Time) -> Vec<C> {
        let mut buckets = self.buckets[number].clone();
        let sampled = buckets.iter().fold(C::default(), |sum, bucket| bucket.after(&sum));
        let last = whole.since(&sampled);
        if rest > Time::ZERO {
            buckets.push(last);
        } else if let Some(before) = buckets.last_mut() {
            *before = last.after(before);
        }
        buckets
    }
}

/// Traffic and pages over time in the region of interest, and latencies of all demand reads.
pub(crate) struct Samples {
    pub bucket: Time,
    nodes: Series<NodeSample>,
    programs: Series<ProgramSample>,
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
    pub fn new(nodes: usize, programs: usize, within: bool) -> Samples {
        Samples {
            bucket: FIRST_BUCKET,
            nodes: Series::new(nodes),
            programs: Series::new(programs),
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
    pub fn follow(&mut self, within: bool, nodes: &[NodeSample], programs: &[ProgramSample], now: Time) {
        match (self.since, within) {
            (Some(since), false) => {
                self.before += now.since(since);
                self.since = None;
            }
            (None, true) => self.since = Some(now),
            _ => return,
        }
        self.nodes.follow(nodes);
        self.programs.follow(programs);
    }

    /// Time of the region of interest up to now; `None` outside.
    #[inline]
    pub fn region_time(&self, now: Time) -> Option<Time> {
        self.since.map(|since| self.before + now.since(since))
    }

    /// Whether the run is in its region of interest.
    pub fn is_within(&self) -> bool {
        self.since.is_some()
    }

    /// Takes a sample in the region of interest.
    pub fn take(&mut self, nodes: Vec<NodeSample>, programs: Vec<ProgramSample>) {
        self.nodes.take(nodes);
        self.programs.take(programs);
        self.taken += 1;
        if self.taken as usize == BUCKETS {
            self.nodes.merge_pairs();
            self.programs.merge_pairs();
            self.taken /= 2;
            self.bucket = self.bucket * 2;
        }
    }

    /// A node's buckets, which add up to its counts in the whole region of interest; `rest` is the length of
    /// the last one, beyond `until`. `whole` has the node's pages at the end of the run.
    pub fn of_node_over_time(&self, node: NodeId, whole: &NodeSample, rest: Time) -> Vec<NodeSample> {
        let ended_before = !self.is_within() && self.before > Time::ZERO;
        let pages = if ended_before { self.nodes.last[node.index()].pages } else { whole.pages };
        self.nodes.of_region(node.index(), NodeSample { pages, ..*whole }, rest)
    }

    /// The same of a program.
    pub fn of_program_over_time(
        &self,
        program: usize,
        whole: ProgramSample,
        rest: Time,
    ) -> Vec<ProgramSample> {
        self.programs.of_region(program, whole, rest)
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

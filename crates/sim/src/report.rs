//! The result of a run.

use memtide_core::policy::Answer;
use memtide_core::{Bandwidth, LINE_BYTES, NodeId, PAGE_BYTES, Time};
use memtide_memory::Counters;
use serde::{Deserialize, Serialize};

use crate::engine::Engine;
use crate::samples::Latencies;
use crate::thread::{Spent, State};

/// All results of a run. Times are simulated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The machine's name.
    pub machine: String,
    /// The scale at which it was simulated.
    pub scale: u32,
    /// The programs' names.
    pub programs: Vec<String>,
    /// The seed.
    pub seed: u64,
    /// From the start until the last program ended, in ms.
    pub time_ms: f64,
    /// When each program ended, in ms.
    pub program_times_ms: Vec<f64>,
    /// Breakdown of the threads' time.
    pub spent: TimeReport,
    /// Instructions retired.
    pub instructions: u64,
    /// Loads and stores.
    pub accesses: u64,
    /// Hits of each private cache level, nearest to the core first.
    pub private_hits: Vec<u64>,
    /// Accesses that missed the private caches.
    pub shared_accesses: u64,
    /// Accesses that missed every cache level.
    pub llc_misses: u64,
    /// The same per 1,000 instructions.
    pub llc_misses_per_kilo_instruction: f64,
    /// Lines prefetched.
    pub prefetched_lines: u64,
    /// Page walks.
    pub tlb_misses: u64,
    /// Latency of demand reads that missed every cache level.
    pub latency: LatencyReport,
    /// By node, in the machine file's order.
    pub nodes: Vec<NodeReport>,
    /// By link, in the machine file's order.
    pub links: Vec<LinkReport>,
    /// Page faults, swap and moves.
    pub pages: PagesReport,
    /// Traffic over time.
    pub timeline: TimelineReport,
    /// Energy of all nodes, in mJ; 0 if the machine file gives none.
    pub energy_mj: f64,
    /// The simulator's answer for each sensor that the policy requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sensors: Vec<SensorReport>,
}

/// Breakdown of time, in ms. The first four are sums over threads and add up to all threads' time, each from
/// its start to the end of the run; the work of kernel threads is separate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimeReport {
    /// Retiring instructions.
    pub user_ms: f64,
    /// In the operating system on behalf of the threads: faults, moves in faults, waits for pages in
    /// migration, shootdowns.
    pub system_ms: f64,
    /// Waiting for memory.
    pub stall_ms: f64,
    /// Waiting at barriers or for a CPU, and from a thread's end to the end of the run.
    pub idle_ms: f64,
    /// Kernel threads, which take no CPU from the programs: copies by the migration thread, and samples of
    /// access monitoring.
    pub kernel_threads_ms: f64,
}

impl TimeReport {
    /// All threads' time, in ms.
    pub fn threads_ms(&self) -> f64 {
        self.user_ms + self.system_ms + self.stall_ms + self.idle_ms
    }
}

/// Latencies, in ns; `None` without reads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyReport {
    /// Mean.
    pub mean_ns: Option<f64>,
    /// Median.
    pub p50_ns: Option<f64>,
    /// 95th percentile.
    pub p95_ns: Option<f64>,
    /// 99th percentile.
    pub p99_ns: Option<f64>,
    /// Latency in ns and the share of reads at or below it.
    pub distribution: Vec<(f64, f64)>,
}

/// A node's results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeReport {
    /// Its name.
    pub name: String,
    /// Its tier.
    pub tier: u8,
    /// Lines that it read, for cores, prefetchers and page copies, without those served from its write queue.
    pub reads: u64,
    /// Lines that it wrote, without those merged in the write queue or still queued at the end.
    pub writes: u64,
    /// Mean bandwidth over the run, reads and writes together, in MB/s.
    pub bandwidth_mbps: f64,
    /// Reads among them.
    pub read_bandwidth_mbps: f64,
    /// Share of all lines read and written.
    pub access_share: f64,
    /// Lines requested by cores, and write-backs of their stores.
    #[serde(default)]
    pub demand_lines: u64,
    /// Lines requested by the prefetcher.
    #[serde(default)]
    pub prefetch_lines: u64,
    /// Lines read and written by page copies.
    #[serde(default)]
    pub copy_lines: u64,
    /// Share of all nodes' demand lines.
    #[serde(default)]
    pub demand_share: f64,
    /// Base pages of programs on it at their end.
    pub pages: u64,
    /// Share of all such pages.
    pub page_share: f64,
    /// Mean latency of its demand reads, in ns; `None` without such reads.
    pub latency_mean_ns: Option<f64>,
    /// Their 99th percentile, in ns.
    pub latency_p99_ns: Option<f64>,
    /// Share of column commands whose row was already open; `None` for fixed nodes, and without traffic.
    pub row_hit_rate: Option<f64>,
    /// Energy, in mJ.
    pub energy_mj: f64,
    /// Wear, for memory with an endurance.
    pub wear: Option<WearReport>,
}

/// Wear of a node.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WearReport {
    /// Lines written to the most written page.
    pub page_writes_max: u64,
    /// Lines written to a page on average.
    pub page_writes_mean: f64,
    /// Years until the most written page wears out if the run repeats and its lines are written equally;
    /// `None` without writes.
    pub life_years: Option<f64>,
}

/// Traffic of a link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkReport {
    /// Its ends.
    pub between: [String; 2],
    /// Mean bandwidth from the first end to the second, in MB/s.
    pub forward_mbps: f64,
    /// And back.
    pub back_mbps: f64,
    /// Utilisation from the first end to the second, from 0 to 1.
    #[serde(default)]
    pub forward_share: f64,
    /// And back.
    #[serde(default)]
    pub back_share: f64,
}

/// Page faults, swap and moves, in pages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PagesReport {
    /// First touches of 4 KiB pages.
    pub faults: u64,
    /// First touches of 2 MiB pages.
    pub huge_faults: u64,
    /// NUMA hint faults.
    pub hint_faults: u64,
    /// Base pages written to swap.
    pub swapped_out: u64,
    /// Base pages swapped in.
    pub swapped_in: u64,
    /// Base pages migrated.
    pub migrated: u64,
    /// Epochs in which a policy saw accesses by region; `None` if it requests none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observations: Option<u64>,
    /// Moves made, by node numbers.
    pub moves: Vec<MoveReport>,
    /// Actions that were refused, by reason.
    pub refused: Vec<(String, u64)>,
    /// Actions that were cancelled, by reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cancelled: Vec<(String, u64)>,
}

/// Moves from one node to another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MoveReport {
    /// Number of the source node.
    pub from: NodeId,
    /// Number of the target node.
    pub to: NodeId,
    /// Base pages.
    pub pages: u64,
}

/// The answer for a sensor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SensorReport {
    /// Its name, such as `regions`.
    pub sensor: String,
    /// `observed`, `inferred` or `refused`.
    pub answer: String,
    /// The means, source or reason.
    pub how: String,
}

/// Traffic over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimelineReport {
    /// Length of a bucket, in ms.
    pub bucket_ms: f64,
    /// Bandwidth in each bucket, in MB/s, by node; the last one ends with the run.
    pub bandwidth_mbps: Vec<Vec<f64>>,
}

impl Report {
    pub(crate) fn of(engine: &Engine<'_>) -> Report {
        let time = engine.programs.iter().map(|p| p.ended).max().unwrap_or_default();
        let nodes = nodes(engine, time);
        let instructions = engine.threads.iter().map(|t| t.counts.instructions).sum();
        let counts = engine.uncore.counts();
        let all = engine.samples.of_all();
        Report {
            machine: engine.setup.machine.name.clone(),
            scale: engine.setup.scale,
            programs: engine.programs.iter().map(|p| p.name.clone()).collect(),
            seed: engine.setup.seed,
            time_ms: ms(time),
            program_times_ms: engine.programs.iter().map(|p| ms(p.ended)).collect(),
            spent: spent(engine, time),
            instructions,
            accesses: engine.threads.iter().map(|t| t.counts.accesses).sum(),
            private_hits: private_hits(engine),
            shared_accesses: counts.accesses,
            llc_misses: counts.misses,
            llc_misses_per_kilo_instruction: share(counts.misses * 1000, instructions),
            prefetched_lines: counts.prefetches,
            tlb_misses: engine.threads.iter().map(|t| t.counts.tlb_misses).sum(),
            latency: latency(&Latencies(&all)),
            links: links(engine, time),
            pages: pages(engine),
            timeline: timeline(engine, time),
            energy_mj: nodes.iter().map(|n| n.energy_mj).sum(),
            nodes,
            sensors: sensors(engine),
        }
    }
}

fn ms(time: Time) -> f64 {
    time.0 as f64 / 1e9
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// A thread that has ended leaves its CPU idle until the end of the run.
fn spent(engine: &Engine<'_>, end: Time) -> TimeReport {
    let ended = engine.threads.iter().filter(|t| t.state == State::Ended);
    let after: Time = ended.map(|t| end.since(t.left_at)).sum();
    let sum = |of: fn(&Spent) -> Time| ms(engine.threads.iter().map(|t| of(&t.spent)).sum());
    let sensed = engine.sensors.cost().map_or(Time::ZERO, |(time, _)| time);
    TimeReport {
        user_ms: sum(|s| s.user),
        system_ms: sum(|s| s.system),
        stall_ms: sum(|s| s.stall),
        idle_ms: sum(|s| s.idle) + ms(after),
        kernel_threads_ms: ms(engine.mover.system + sensed),
    }
}

fn private_hits(engine: &Engine<'_>) -> Vec<u64> {
    let mut sums = Vec::new();
    for core in &engine.cores {
        for (level, hits) in core.cache_hits().enumerate() {
            sums.resize(sums.len().max(level + 1), 0);
            sums[level] += hits;
        }
    }
    sums
}

fn latency(of: &Latencies<'_>) -> LatencyReport {
    LatencyReport {
        mean_ns: of.mean_ns(),
        p50_ns: of.percentile_ns(50.0),
        p95_ns: of.percentile_ns(95.0),
        p99_ns: of.percentile_ns(99.0),
        distribution: of.distribution(),
    }
}

fn nodes(engine: &Engine<'_>, time: Time) -> Vec<NodeReport> {
    let counters: Vec<_> =
        engine.setup.machine.node_ids().map(|node| engine.uncore.node_counters(node, time)).collect();
    let lines: u64 = counters.iter().map(Counters::lines).sum();
    let requested = |node: NodeId| engine.uncore.requested(node);
    let demand: u64 = engine.setup.machine.node_ids().map(|node| requested(node).demand).sum();
    let pages = &engine.tasks.pages_of_ended;
    let all_pages: u64 = pages.iter().sum();
    let report = |(node, device): (NodeId, &Counters)| {
        let spec = &engine.setup.machine.nodes[node.index()];
        let latencies = engine.samples.of_node(node);
        NodeReport {
            name: spec.name.clone(),
            tier: spec.tier,
            reads: device.reads,
            writes: device.writes,
            bandwidth_mbps: Bandwidth::of(device.lines() * LINE_BYTES, time).as_mbps(),
            read_bandwidth_mbps: Bandwidth::of(device.reads * LINE_BYTES, time).as_mbps(),
            access_share: share(device.lines(), lines),
            demand_lines: requested(node).demand,
            prefetch_lines: requested(node).prefetch,
            copy_lines: requested(node).copy,
            demand_share: share(requested(node).demand, demand),
            pages: pages[node.index()],
            page_share: share(pages[node.index()], all_pages),
            latency_mean_ns: latencies.mean_ns(),
            latency_p99_ns: latencies.percentile_ns(99.0),
            row_hit_rate: (spec.dram.is_some() && device.lines() > 0).then(|| device.row_hit_rate()),
            energy_mj: device.energy_nj(&spec.energy, time) / 1e6,
            wear: wear(engine, node, time),
        }
    };
    engine.setup.machine.node_ids().zip(&counters).map(report).collect()
}

fn wear(engine: &Engine<'_>, node: NodeId, time: Time) -> Option<WearReport> {
    let endurance = engine.setup.machine.nodes[node.index()].endurance_writes?;
    let wear = engine.uncore.wear(node)?;
    let lines_of_page = (PAGE_BYTES / LINE_BYTES) as f64;
    let written = wear.iter().filter(|&&writes| writes > 0);
    let (sum, count) = written.clone().fold((0u64, 0u64), |(sum, n), &w| (sum + u64::from(w), n + 1));
    let most = written.max().copied().unwrap_or(0);
    let years = time.as_seconds() / (365.25 * 86_400.0);
    Some(WearReport {
        page_writes_max: most.into(),
        page_writes_mean: share(sum, count),
        life_years: (most > 0).then(|| endurance * lines_of_page / f64::from(most) * years),
    })
}

fn links(engine: &Engine<'_>, time: Time) -> Vec<LinkReport> {
    let report = |(index, link): (usize, &memtide_core::machine::Link)| {
        let [forward, back] = engine.uncore.link_lines(index);
        let [forward_mbps, back_mbps] =
            [forward, back].map(|lines| Bandwidth::of(lines * LINE_BYTES, time).as_mbps());
        LinkReport {
            between: link.between.clone(),
            forward_mbps,
            back_mbps,
            forward_share: forward_mbps / link.bandwidth_mbps,
            back_share: back_mbps / link.bandwidth_mbps,
        }
    };
    engine.setup.machine.links.iter().enumerate().map(report).collect()
}

fn pages(engine: &Engine<'_>) -> PagesReport {
    let counts = engine.os.counts;
    let record =
        engine.policy.as_ref().map(|runner| runner.governor().recorded().clone()).unwrap_or_default();
    let moved = |(&(from, to), &pages): (&(NodeId, NodeId), &u64)| MoveReport { from, to, pages };
    PagesReport {
        faults: counts.faults,
        huge_faults: counts.huge_faults,
        hint_faults: counts.hint_faults,
        swapped_out: counts.swapped_out_pages,
        swapped_in: counts.swapped_in_pages,
        migrated: engine.mover.migrated_pages,
        observations: engine.sensors.cost().map(|(_, observations)| observations),
        moves: record.moved_pages.iter().map(moved).collect(),
        refused: record.refused.iter().map(|(why, &count)| (format!("{why:?}"), count)).collect(),
        cancelled: record.cancelled.iter().map(|(why, &count)| (format!("{why:?}"), count)).collect(),
    }
}

fn sensors(engine: &Engine<'_>) -> Vec<SensorReport> {
    let report = |(sensor, answer): (&str, &Answer)| {
        let (answer, how) = answer.parts();
        SensorReport { sensor: sensor.to_owned(), answer: answer.to_owned(), how: how.to_owned() }
    };
    engine.sensors.answers().iter().map(report).collect()
}

fn timeline(engine: &Engine<'_>, end: Time) -> TimelineReport {
    let samples = &engine.samples;
    let left = end.since(samples.until());
    let of_node = |node: NodeId| {
        let rate = |lines: u64, time: Time| Bandwidth::of(lines * LINE_BYTES, time).as_mbps();
        let whole = samples.traffic[node.index()].iter().map(|&lines| rate(lines, samples.bucket));
        let last = (left > Time::ZERO).then(|| rate(samples.since_last(node, &engine.uncore, end), left));
        whole.chain(last).collect()
    };
    TimelineReport {
        bucket_ms: ms(samples.bucket),
        bandwidth_mbps: engine.setup.machine.node_ids().map(of_node).collect(),
    }
}

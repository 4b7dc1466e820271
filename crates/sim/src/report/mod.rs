//! The result of a run.

use memtide_core::NodeId;
use serde::{Deserialize, Serialize};

mod banks;
mod collect;
mod wear;

/// All results of a run. Times are simulated.
///
/// Figures are of the region of interest, which is the whole run if no program marks one; `stages` has the
/// rest. With several programs the region is the time in which all that have started and not
/// ended are in theirs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The machine's name.
    pub machine: String,
    /// The slice of it that was simulated.
    pub slice: u32,
    /// The scale at which it was simulated.
    pub scale: u32,
    /// The programs' names.
    pub programs: Vec<String>,
    /// The seed.
    pub seed: u64,
    /// Whether programs mark a region of interest. If not, the figures are of the whole run.
    #[serde(default)]
    pub marked: bool,
    /// Time of the region of interest, in ms.
    pub time_ms: f64,
    /// From the start until the last program ended, in ms.
    #[serde(default)]
    pub run_ms: f64,
    /// Number of threads of all programs.
    #[serde(default)]
    pub threads: u64,
    /// Time of each program's own region of interest, in ms.
    pub program_times_ms: Vec<f64>,
    /// When each program started, in ms from the start of the run.
    #[serde(default)]
    pub program_started_ms: Vec<f64>,
    /// When each program ended, in ms from the start of the run.
    #[serde(default)]
    pub program_ended_ms: Vec<f64>,
    /// The stages of the run, the region of interest among them: they add up to the run. Empty if no program
    /// marks one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<StageReport>,
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
    /// Traffic, pages and migration over time.
    pub timeline: TimelineReport,
    /// Accesses of the first eight programs by address and time. No part of JSON.
    #[serde(skip)]
    pub heat_maps: Vec<HeatMapReport>,
    /// Energy of all nodes, in mJ; 0 if the machine file gives none.
    pub energy_mj: f64,
    /// The simulator's answer for each sensor that the policy requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sensors: Vec<SensorReport>,
    /// What samples of all pages showed in each epoch; empty without a policy that requests them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub page_samples: Vec<PageSamplesReport>,
    /// Nodes without free memory for pages that the policy would have moved there, in the whole run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub full: Vec<FullReport>,
}

/// Samples of all pages in an epoch (memos section II-B).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PageSamplesReport {
    /// Its end, in ms from the start of the run.
    pub time_ms: f64,
    /// By node, in the machine file's order.
    pub nodes: Vec<SampledNode>,
}

/// A node's pages as their samples showed them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SampledNode {
    /// Pages on the node, huge ones counted once.
    pub pages: u64,
    /// Those accessed in at least a tenth of the samples.
    pub hot: u64,
    /// Those written in at least half of the samples in which they were accessed.
    pub written: u64,
    /// Hot ones by bank, through channels and ranks; one entry if frames are not in one bank each.
    pub hot_by_bank: Vec<u64>,
}

/// A part of a whole; 0 of nothing.
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

impl Report {
    /// Epochs of the whole run in which a policy saw accesses by region; `None` if it requests none.
    pub fn run_observations(&self) -> Option<u64> {
        if self.marked {
            self.stages.iter().map(|stage| stage.observations).sum()
        } else {
            self.pages.observations
        }
    }

    /// Base pages migrated in the whole run.
    pub fn run_migrated(&self) -> u64 {
        if self.marked { self.stages.iter().map(|stage| stage.migrated).sum() } else { self.pages.migrated }
    }

    /// NUMA hint faults of the whole run.
    pub fn run_hint_faults(&self) -> u64 {
        if self.marked {
            self.stages.iter().map(|stage| stage.hint_faults).sum()
        } else {
            self.pages.hint_faults
        }
    }

    /// Base pages of the whole run written to swap and read back.
    pub fn run_swapped(&self) -> u64 {
        if self.marked {
            self.stages.iter().map(|stage| stage.swapped).sum()
        } else {
            self.pages.swapped_out + self.pages.swapped_in
        }
    }
}

/// Totals of a stage of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageReport {
    /// `initialisation` (before the first mark), `warm-up`, `region`, or `outside` (after a region).
    pub stage: String,
    /// Its time, in ms.
    pub time_ms: f64,
    /// Breakdown of the threads' time.
    pub spent: TimeReport,
    /// Instructions retired.
    pub instructions: u64,
    /// Loads and stores.
    pub accesses: u64,
    /// Accesses that missed every cache level.
    pub llc_misses: u64,
    /// Page walks.
    pub tlb_misses: u64,
    /// First touches of pages.
    pub faults: u64,
    /// NUMA hint faults.
    pub hint_faults: u64,
    /// Base pages written to swap and read back.
    pub swapped: u64,
    /// Base pages migrated.
    pub migrated: u64,
    /// Epochs in which a policy saw accesses by region; `None` if it requests none.
    pub observations: Option<u64>,
    /// Lines read and written by all nodes.
    pub lines: u64,
    /// Bandwidth of all nodes together, in MB/s.
    pub bandwidth_mbps: f64,
    /// Mean latency of demand reads that missed every cache level, in ns; `None` without reads.
    pub latency_mean_ns: Option<f64>,
    /// Energy of all nodes, in mJ.
    pub energy_mj: f64,
}

/// Breakdown of time, in ms. The first four are sums over threads and add up to all threads' time, each from
/// its start to the end of the run; the work of kernel threads is separate. At a mark that a thread makes
/// while others run, each of those may be up to 2 us ahead or behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimeReport {
    /// Retiring instructions.
    pub user_ms: f64,
    /// In the operating system on behalf of the threads: faults, moves in faults, waits for pages in
    /// migration, shootdowns.
    pub system_ms: f64,
    /// The same by cause; all 0 in reports of versions without it.
    #[serde(default)]
    pub kernel: KernelReport,
    /// Waiting for memory.
    pub stall_ms: f64,
    /// Waiting at barriers or for a CPU, stopped by the policy, and from a thread's end to that of the run.
    pub idle_ms: f64,
    /// Kernel threads, which take no CPU from the programs: copies by the migration thread, and samples of
    /// access monitoring.
    pub kernel_threads_ms: f64,
}

/// Time in the kernel on behalf of the threads by cause, in ms. Adds up to [`TimeReport::system_ms`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelReport {
    /// First touches of pages.
    pub faults_ms: f64,
    /// Pages written to swap and read back, with the shootdowns of reclaim.
    pub swap_ms: f64,
    /// Shootdowns of pages that programs unmap, and of ends of tasks.
    pub unmapping_ms: f64,
    /// Moves in faults, shootdowns of moves, copies dropped by a store, and waits for pages in migration.
    pub migration_ms: f64,
    /// NUMA hint faults, marked TLB misses, shootdowns of the scanner, and the policy's own work where no CPU
    /// is idle.
    pub monitoring_ms: f64,
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
    /// The same by cause.
    #[serde(default)]
    pub energy: EnergyReport,
    /// Wear, for memory with an endurance.
    pub wear: Option<WearReport>,
    /// Its channels and banks; empty for fixed nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub channels: Vec<ChannelReport>,
}

/// Energy of a node by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EnergyReport {
    /// Lines read, in mJ.
    pub read_mj: f64,
    /// Lines written, in mJ.
    pub write_mj: f64,
    /// Rows opened and closed, in mJ.
    pub activate_mj: f64,
    /// Refreshes, in mJ.
    pub refresh_mj: f64,
    /// Standby, in mJ.
    pub standby_mj: f64,
    /// Requests: reads, writes and rows, in mJ.
    pub dynamic_mj: f64,
    /// Their mean power, in mW.
    pub dynamic_mw: f64,
    /// Mean power of everything, in mW.
    pub power_mw: f64,
}

/// A channel of a node. Counts of one slice's part are rounded, bank by bank.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChannelReport {
    /// Counts of all its banks.
    #[serde(flatten)]
    pub counts: BankReport,
    /// Its banks, by `(rank * bank_groups + bank_group) * banks + bank`.
    pub banks: Vec<BankReport>,
}

/// A bank, or all banks of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BankReport {
    /// Lines read.
    pub reads: u64,
    /// Lines written.
    pub writes: u64,
    /// Column commands whose bank had another open row.
    pub row_conflicts: u64,
    /// Energy of its requests, in mJ.
    pub dynamic_mj: f64,
    /// Wear, for memory with an endurance whose pages each lie in one channel and bank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wear: Option<WearReport>,
}

/// Wear of a node, channel or bank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WearReport {
    /// Lines written to its pages, including those still in the write queue or merged there.
    #[serde(default)]
    pub written_lines: u64,
    /// Lines written to the most written page.
    pub page_writes_max: u64,
    /// Lines written to a page on average, of those that were written.
    pub page_writes_mean: f64,
    /// Years until the most written page wears out if the run repeats and its lines are written equally;
    /// `None` without writes.
    pub life_years: Option<f64>,
    /// The same as a share of the life with the same writes spread evenly over all pages: that of the mean
    /// cell (memos section III-A).
    #[serde(default)]
    pub life_share: Option<f64>,
    /// The same with the writes spread evenly over the pages that were written.
    #[serde(default)]
    pub life_share_of_written: Option<f64>,
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
    /// TLB misses of marked pages, each a fault.
    #[serde(default)]
    pub marked_misses: u64,
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

/// A node without free memory for pages that the policy would have moved there.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FullReport {
    /// Number of the node.
    pub node: NodeId,
    /// Epochs in which pages stayed where they were.
    pub epochs: u64,
    /// Base pages that stayed, on average over these epochs.
    pub pages_mean: f64,
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

/// Accesses of a program's processes by address and time of the region of interest: those of its threads that
/// miss their private caches, and lines of non-temporal stores.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeatMapReport {
    /// Time of a column, in ms.
    pub column_ms: f64,
    /// Number of columns, of which the last one ends with the region.
    pub columns: usize,
    /// Base pages of a row.
    pub pages_per_row: u64,
    /// Rows by address; memory that was not accessed has none.
    pub rows: Vec<HeatRow>,
}

/// A row of a heat map.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeatRow {
    /// Its first virtual address.
    pub address: u64,
    /// Accesses by node, then by column.
    pub accesses: Vec<Vec<u32>>,
    /// Base pages moved by destination, then by column; empty without moves.
    pub moved_pages: Vec<Vec<u32>>,
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

/// Traffic, pages and migration over time, in buckets of equal length of which the last one ends with the
/// region of interest. Every list has one list per node, in the machine file's order, or per program, in the
/// run's order, with a figure for each bucket.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimelineReport {
    /// Length of a bucket, in ms.
    pub bucket_ms: f64,
    /// Bandwidth of lines read and written, in MB/s.
    pub bandwidth_mbps: Vec<Vec<f64>>,
    /// Lines requested by cores, and write-backs of their stores. These and the following two are counted
    /// when they are requested, and add up to the node's lines of the same name.
    #[serde(default)]
    pub demand_lines: Vec<Vec<u64>>,
    /// Lines requested by the prefetcher.
    #[serde(default)]
    pub prefetch_lines: Vec<Vec<u64>>,
    /// Lines read and written by page copies.
    #[serde(default)]
    pub copy_lines: Vec<Vec<u64>>,
    /// Base pages on the node at the end of each bucket; those being moved are on their source.
    #[serde(default)]
    pub pages: Vec<Vec<u64>>,
    /// Base pages migrated to the node in each bucket.
    #[serde(default)]
    pub migrated_pages: Vec<Vec<u64>>,
    /// By program: lines that the private caches read for it from the shared levels, and wrote there, in
    /// MB/s.
    #[serde(default)]
    pub program_bandwidth_mbps: Vec<Vec<f64>>,
    /// By program: base pages migrated in each bucket.
    #[serde(default)]
    pub program_migrated_pages: Vec<Vec<u64>>,
}

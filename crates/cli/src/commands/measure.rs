//! `memtide measure`.

use std::time::Duration;

use memtide_core::{CpuId, NodeId};
use memtide_linux::measure::{
    Effort, Figure, Idle, Kernel, Loaded, MeasureError, bandwidth_mbps, idle_latency, loaded_latency,
    write_mbps,
};
use memtide_linux::topology::{Node, System, nodelist};

use crate::failure::Failure;
use crate::options::Common;
use crate::options::share;
use crate::output::{Cell, Document, Table};
use crate::progress::Progress;
use crate::{advice, interrupt};

/// Maximum share of a node's free memory used for measuring.
const FREE_SHARE: f64 = 0.8;

/// Its arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Nodes to measure, in numactl's syntax: 0-2,5 or all, !0, +0-1
    #[arg(long, value_name = "NODES", default_value = "all")]
    nodes: String,
    /// Nodes whose CPUs measure, in the same syntax
    #[arg(long, value_name = "NODES", default_value = "all")]
    initiators: String,
    /// Memory per latency, and per CPU of a bandwidth, in MiB
    ///
    /// [default: 256 or 4 x last cache; less if less is free]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    mib: Option<u32>,
    /// Loads per latency, in five parts
    #[arg(long, value_name = "N", default_value_t = 2_000_000,
        value_parser = clap::value_parser!(u64).range(1000..))]
    loads: u64,
    /// Passes over the memory per bandwidth
    #[arg(long, value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// Shares of reads to measure beside 100%, each from 50% to 100%
    ///
    /// An ordinary store reads its line first, so 50% is the minimum.
    #[arg(long, value_name = "SHARES", value_delimiter = ',', default_value = "67%,50%",
        value_parser = reads)]
    reads: Vec<f64>,
    /// Measure latency under load too: a chase while other CPUs read
    #[arg(long)]
    loaded: bool,
    /// Read rates of the other CPUs, as shares of full speed
    #[arg(
        long, value_name = "SHARES", value_delimiter = ',', requires = "loaded", value_parser = share::parse,
        default_value = "0%,20%,40%,60%,70%,80%,90%,100%"
    )]
    rates: Vec<f64>,
    /// Time limit per measurement, in seconds
    #[arg(long, value_name = "S", default_value_t = 10,
        value_parser = clap::value_parser!(u64).range(1..=86_400))]
    limit: u64,
    #[command(flatten)]
    common: Common,
}

fn reads(text: &str) -> Result<f64, String> {
    let reads = share::parse(text)?;
    if reads >= 0.5 {
        return Ok(reads);
    }
    Err(format!(
        "'{text}' is below 50%: an ordinary store reads its line before it writes it, so half of the traffic \
         is reads"
    ))
}

fn percent(share: f64) -> u32 {
    (share * 100.0).round() as u32
}

/// Minimum MiB per measurement.
const LEAST_MIB: usize = 256;

/// CPUs and a node to measure.
#[derive(Clone)]
struct Pair {
    initiator: NodeId,
    cpus: Vec<CpuId>,
    node: NodeId,
    /// MiB for each CPU; 0 if there is too little.
    mib: usize,
    /// MiB of the last cache.
    cache_mib: usize,
}

impl Pair {
    /// Whether the last cache holds much of the pair's working set.
    fn is_cached(&self) -> bool {
        self.mib > 0 && self.mib < 2 * self.cache_mib
    }
}

/// Figures of a pair.
struct Measured {
    idle: Idle,
    /// By share of reads.
    streams: Vec<(f64, Figure)>,
    triad: Figure,
    loaded: Vec<Loaded>,
}

impl Measured {
    /// Maximum spread of a figure's measurements.
    fn spread(&self) -> f64 {
        let all = self.streams.iter().map(|(_, mbps)| mbps).chain([&self.idle.ns, &self.triad]);
        all.map(|figure| figure.spread).fold(0.0, f64::max)
    }
}

/// Spread above which other work interfered.
pub const STEADY: f64 = 0.5;

/// Measures and shows latency and bandwidth of every node from every initiator.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let pairs = pairs(arguments)?;
    if arguments.loaded && pairs.iter().all(|pair| pair.cpus.len() < 2) {
        let why = "--loaded needs a node with two CPUs: one for the chase, one to load the memory";
        return Err(Failure::Usage(why.to_owned()));
    }
    let mut shares = vec![1.0];
    shares.extend(arguments.reads.iter().filter(|&&reads| reads < 1.0));
    shares.sort_by(|a, b| b.total_cmp(a));
    shares.dedup_by_key(|reads| percent(*reads));
    let mut nodes = nodes_table(&shares);
    let mut loaded = loaded_table();
    let mut unsteady = Vec::new();
    let progress = Progress::new("measuring", 1);
    for (done, pair) in pairs.iter().enumerate() {
        progress.set(0, done as f64 / pairs.len() as f64);
        let found = if pair.mib > 0 { Some(measure(arguments, pair, &shares)?) } else { None };
        nodes.rows.push(row(pair, found.as_ref(), shares.len()));
        unsteady.extend(found.iter().filter(|found| found.spread() > STEADY).map(|_| pair));
        loaded.rows.extend(found.iter().flat_map(|found| &found.loaded).map(|point| loaded_row(pair, point)));
    }
    drop(progress);
    let mut document = Document { notes: notes(arguments, &pairs), ..Document::of(nodes) };
    document.notes.extend(unsteady.into_iter().map(|Pair { node, initiator, .. }| {
        format!("Measurements of {node} from {initiator} differ widely: the system was busy. Measure again.")
    }));
    document.tables.extend(arguments.loaded.then_some(loaded));
    document.print(arguments.common.output)
}

fn pairs(arguments: &Arguments) -> Result<Vec<Pair>, Failure> {
    let host = System::read().map_err(|error| Failure::Run(error.to_string()))?;
    let initiators = chosen("initiators", &arguments.initiators, host.with_cpus())?;
    let nodes = chosen("nodes", &arguments.nodes, host.with_memory())?;
    let cache_kib = host.processor.caches.iter().map(|cache| cache.capacity_kib).max().unwrap_or(0);
    let cache_mib = cache_kib.div_ceil(1024) as usize;
    let wanted_mib = arguments.mib.map_or(LEAST_MIB.max(4 * cache_mib), |mib| mib as usize);
    let pairs = initiators.into_iter().flat_map(|from| {
        nodes.iter().map(move |to| {
            let free_mib = to.memory.map_or(0, |memory| memory.free_kib) as f64 / 1024.0;
            let most = (free_mib * FREE_SHARE / from.cpus.len() as f64) as usize;
            let mib = most.min(wanted_mib);
            Pair { initiator: from.id, cpus: from.cpus.clone(), node: to.id, mib, cache_mib }
        })
    });
    Ok(pairs.collect())
}

/// The existing nodes named by an option.
fn chosen<'a>(
    option: &str,
    list: &str,
    there: impl Iterator<Item = &'a Node>,
) -> Result<Vec<&'a Node>, Failure> {
    let there: Vec<&Node> = there.collect();
    let numbers: Vec<u16> = there.iter().map(|node| node.id.0.into()).collect();
    let wanted =
        nodelist::numbers(list, &numbers).map_err(|why| Failure::Usage(format!("--{option}: {why}")))?;
    Ok(there.into_iter().filter(|node| wanted.contains(&node.id.0.into())).collect())
}

fn measure(arguments: &Arguments, pair: &Pair, shares: &[f64]) -> Result<Measured, Failure> {
    let effort = Effort {
        mib: pair.mib,
        loads: arguments.loads,
        rounds: arguments.rounds,
        limit: Duration::from_secs(arguments.limit),
        seed: arguments.common.seed,
    };
    let first = pair.cpus.first().copied().unwrap_or_default();
    let idle = figure(pair, move |pair| idle_latency(first, pair.node, &effort))?;
    let bandwidth = |kernel| figure(pair, move |pair| bandwidth_mbps(&pair.cpus, pair.node, kernel, &effort));
    let stream = |&reads: &f64| Ok((reads, bandwidth(Kernel::Stream { reads })?));
    let streams = shares.iter().map(stream).collect::<Result<_, Failure>>()?;
    let triad = bandwidth(Kernel::Triad)?;
    let loaded = if arguments.loaded && pair.cpus.len() > 1 {
        let rates = arguments.rates.clone();
        figure(pair, move |pair| loaded_latency(&pair.cpus, pair.node, &rates, &effort))?
    } else {
        Vec::new()
    };
    Ok(Measured { idle, streams, triad, loaded })
}

/// Makes one measurement, unless interrupted.
fn figure<T: Send + 'static>(
    pair: &Pair,
    measure: impl FnOnce(&Pair) -> Result<T, MeasureError> + Send + 'static,
) -> Result<T, Failure> {
    let pair = pair.clone();
    interrupt::interruptible(move || {
        measure(&pair).map_err(|error| Failure::Run(advice::system::measure(&error)))
    })
}

fn nodes_table(shares: &[f64]) -> Table {
    let mut table = Table::new("nodes", &[("initiator", "initiator"), ("node", "node"), ("cpus", "CPUs")]);
    table.column("mib", "MiB each");
    table.column("cached", "in the cache");
    table.column("idle_ns", "idle latency, ns");
    table.column("huge", "in huge pages, %");
    table.column("read_mbps", "reads, MB/s");
    for percent in shares[1..].iter().copied().map(percent) {
        table.column(format!("reads_{percent}_mbps"), format!("{percent} % reads, MB/s"));
    }
    table.column("triad_mbps", "triad, MB/s");
    table.column("write_mbps", "writes, MB/s");
    table.column("spread", "spread, %");
    table.with_keys(2)
}

fn row(pair: &Pair, found: Option<&Measured>, shares: usize) -> Vec<Cell> {
    let mut row = vec![
        Cell::Whole(pair.initiator.0.into()),
        Cell::Whole(pair.node.0.into()),
        Cell::Whole(pair.cpus.len() as u64),
        Cell::Whole(pair.mib as u64),
        Cell::Flag(pair.is_cached(), "much of it"),
    ];
    let Some(found) = found else {
        row.resize(row.len() + shares + 5, Cell::Absent);
        return row;
    };
    let Measured { idle, streams, triad, .. } = found;
    row.push(Cell::Real(idle.ns.least, 1));
    row.push(idle.huge.map_or(Cell::Absent, Cell::Percent));
    row.extend(streams.iter().map(|(_, mbps)| Cell::Real(mbps.median, 0)));
    row.push(Cell::Real(triad.median, 0));
    row.push(write_mbps(streams).map_or(Cell::Absent, |mbps| Cell::Real(mbps, 0)));
    row.push(Cell::Percent(found.spread()));
    row
}

fn loaded_table() -> Table {
    let columns = [
        ("initiator", "initiator"),
        ("node", "node"),
        ("rate", "rate, %"),
        ("mbps", "bandwidth, MB/s"),
        ("latency_ns", "latency, ns"),
        ("spread", "spread, %"),
    ];
    Table::new("loaded", &columns).with_keys(3)
}

fn loaded_row(pair: &Pair, point: &Loaded) -> Vec<Cell> {
    vec![
        Cell::Whole(pair.initiator.0.into()),
        Cell::Whole(pair.node.0.into()),
        Cell::Percent(point.rate),
        Cell::Real(point.mbps, 0),
        Cell::Real(point.ns.median, 1),
        Cell::Percent(point.ns.spread),
    ]
}

fn notes(arguments: &Arguments, pairs: &[Pair]) -> Vec<String> {
    let mut notes = vec![
        "Figures are medians; the idle latency is the minimum, as interruptions only add to it. `spread` is \
         the range of the measurements over their median, for the figure with the largest one. Stores are \
         ordinary ones: the read of their line is counted. `writes` is computed from the stream with most \
         writes, as if reads and writes took turns; it is omitted where mixes are too fast for that, as \
         where the CPUs cannot draw the node's bandwidth."
            .to_owned(),
    ];
    for pair in pairs.iter().filter(|pair| pair.mib == 0) {
        notes.push(format!(
            "{} has too little free memory to be measured from {}.",
            pair.node, pair.initiator
        ));
    }
    for pair in pairs.iter().filter(|pair| pair.is_cached()) {
        let Pair { node, initiator, mib, cache_mib, .. } = pair;
        notes.push(format!(
            "The last cache, of {cache_mib} MiB, holds much of the {mib} MiB of {node} measured from \
             {initiator}: its figures may be too good. Raise --mib if enough memory is free."
        ));
    }
    if arguments.loaded {
        let single = pairs.iter().filter(|pair| pair.cpus.len() < 2).map(|pair| pair.initiator.to_string());
        let mut single: Vec<String> = single.collect();
        single.dedup();
        if !single.is_empty() {
            let from = single.join(", ");
            notes.push(format!(
                "No latency under load from {from}: it needs two CPUs, one for the chase, one to load the \
                 memory."
            ));
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(median: f64) -> Figure {
        Figure { median, least: median, spread: 0.0 }
    }

    #[test]
    fn rows_have_a_cell_per_column_and_flag_cached_pairs() {
        let pair =
            |mib| Pair { initiator: NodeId(0), cpus: vec![CpuId(0)], node: NodeId(1), mib, cache_mib: 32 };
        assert_eq!([0, 16, 63, 64].map(|mib| pair(mib).is_cached()), [false, true, true, false]);
        let mut nodes = nodes_table(&[1.0, 0.5]);
        nodes.rows.push(row(&pair(16), None, 2));
        assert_eq!(nodes.rows[0].len(), nodes.columns.len());
        assert_eq!(Document::of(nodes).json()["nodes"][0]["cached"], true);
        let mut loaded = loaded_table();
        let point = Loaded { rate: 0.3, mbps: 900.0, others_mbps: 800.0, ns: figure(100.0) };
        loaded.rows.push(loaded_row(&pair(64), &point));
        assert_eq!(loaded.rows[0].len(), loaded.columns.len());
        let json = Document::of(loaded).json();
        assert_eq!(
            (&json["loaded"][0]["rate"], &json["loaded"][0]["latency_ns"]),
            (&0.3.into(), &100.0.into())
        );
    }

    #[test]
    fn shares_below_half_are_refused_with_the_reason() {
        assert_eq!(reads("50%"), Ok(0.5));
        assert!(reads("0%").is_err_and(|why| why.contains("reads its line")));
    }
}

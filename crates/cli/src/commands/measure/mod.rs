//! `memtide measure`.

mod doubts;
mod processor;
mod tables;

use std::time::Duration;

use memtide_core::{CpuId, NodeId};
use memtide_linux::measure::{
    Effort, Figure, Idle, Kernel, Loaded, MeasureError, bandwidth_mbps, idle_latency, loaded_latency,
};
use memtide_linux::topology::{Node, System, nodelist};

use crate::failure::Failure;
use crate::options::Common;
use crate::options::share;
use crate::output::{Cell, Document, Format, VERSION};
use crate::progress::Progress;
use crate::{advice, interrupt};

pub use doubts::doubts;

use tables::{EXPLANATION, loaded_row, loaded_table, nodes_table, notes, row};

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
        value_parser = reads, allow_hyphen_values = true)]
    reads: Vec<f64>,
    /// Measure latency under load too: a chase while other CPUs read
    #[arg(long)]
    loaded: bool,
    /// Read rates of the other CPUs, as shares of full speed
    ///
    /// 2% is added if all are higher: the curve is relative to it.
    #[arg(
        long, value_name = "SHARES", value_delimiter = ',', requires = "loaded", value_parser = share::parse,
        default_value = "2%,20%,40%,60%,70%,80%,90%,100%"
    )]
    rates: Vec<f64>,
    /// Measure the first CPU's caches, TLB, page walks and faults too
    #[arg(long)]
    processor: bool,
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
const STEADY: f64 = 0.5;

/// Measures and shows latency and bandwidth of every node from every initiator.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let progress = Progress::new("measuring", 1);
    let document = document(arguments, |share| progress.set(0, share))?;
    drop(progress);
    if arguments.common.output != Format::Table {
        let warnings = document.notes.iter().filter(|note| *note != EXPLANATION);
        warnings.for_each(|note| message!("memtide: {note}"));
    }
    document.print(arguments.common.output)
}

/// Measures what the arguments ask for; `progress` is called with the share that is done.
pub fn document(arguments: &Arguments, progress: impl Fn(f64)) -> Result<Document, Failure> {
    let host = System::read().map_err(|error| Failure::Run(error.to_string()))?;
    let pairs = pairs(arguments, &host)?;
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
    let of_nodes = if arguments.processor { NODES_SHARE } else { 1.0 };
    for (done, pair) in pairs.iter().enumerate() {
        progress(of_nodes * done as f64 / pairs.len() as f64);
        let found = if pair.mib > 0 { Some(measure(arguments, pair, &shares)?) } else { None };
        nodes.rows.push(row(pair, found.as_ref(), shares.len()));
        unsteady.extend(found.iter().filter(|found| found.spread() > STEADY).map(|_| pair));
        loaded.rows.extend(found.iter().flat_map(|found| &found.loaded).map(|point| loaded_row(pair, point)));
    }
    let main = if arguments.loaded { "loaded" } else { "nodes" };
    let about = vec![("seed", Cell::Whole(arguments.common.seed)), ("memtide", Cell::text(VERSION))];
    let mut document = Document { about, notes: notes(arguments, &pairs), main, ..Document::of(nodes) };
    document.notes.extend(unsteady.into_iter().map(|Pair { node, initiator, .. }| {
        format!("Measurements of {node} from {initiator} differ widely: the system was busy. Measure again.")
    }));
    document.tables.extend(arguments.loaded.then_some(loaded));
    if let Some(pair) = own(&pairs).filter(|_| arguments.processor) {
        let effort = arguments.effort(pair);
        let share = |share| progress(of_nodes + (1.0 - of_nodes) * share);
        let found = processor::measure(pair, &host.processor.caches, effort, share)?;
        document.tables.extend(found.tables());
    }
    Ok(document)
}

/// Measures everything that a machine file needs, with this much memory in MiB or the default.
pub fn everything(mib: Option<u32>, seed: u64, progress: impl Fn(f64)) -> Result<Document, Failure> {
    /// Options alone, as a command line.
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }
    let mut arguments = <Line as clap::Parser>::try_parse_from(["measure"])
        .map_err(|error| Failure::Run(error.to_string()))?
        .arguments;
    let host = System::read().map_err(|error| Failure::Run(error.to_string()))?;
    arguments.mib = mib;
    arguments.processor = true;
    arguments.loaded = host.with_cpus().any(|node| node.cpus.len() > 1);
    arguments.common.seed = seed;
    document(&arguments, progress)
}

/// Share of the time for nodes and bandwidths, if a processor is measured too.
const NODES_SHARE: f64 = 0.4;

/// A pair of an initiator and its own memory, if there is one with enough memory.
fn own(pairs: &[Pair]) -> Option<&Pair> {
    let measured = |pair: &&Pair| pair.mib > 0;
    pairs.iter().filter(measured).find(|pair| pair.initiator == pair.node).or(pairs.iter().find(measured))
}

impl Arguments {
    fn effort(&self, pair: &Pair) -> Effort {
        Effort {
            mib: pair.mib,
            loads: self.loads,
            rounds: self.rounds,
            limit: Duration::from_secs(self.limit),
            seed: self.common.seed,
        }
    }
}

fn pairs(arguments: &Arguments, host: &System) -> Result<Vec<Pair>, Failure> {
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
    let effort = arguments.effort(pair);
    let first = pair.cpus.first().copied().unwrap_or_default();
    let idle = figure(pair, move |pair| idle_latency(first, pair.node, &effort))?;
    let bandwidth = |kernel| figure(pair, move |pair| bandwidth_mbps(&pair.cpus, pair.node, kernel, &effort));
    let stream = |&reads: &f64| Ok((reads, bandwidth(Kernel::Stream { reads })?));
    let streams = shares.iter().map(stream).collect::<Result<_, Failure>>()?;
    let triad = bandwidth(Kernel::Triad)?;
    let loaded = if arguments.loaded && pair.cpus.len() > 1 {
        let rates = with_idle(&arguments.rates);
        figure(pair, move |pair| loaded_latency(&pair.cpus, pair.node, &rates, &effort))?
    } else {
        Vec::new()
    };
    Ok(Measured { idle, streams, triad, loaded })
}

/// A rate at which the node is as good as idle.
const IDLE_RATE: f64 = 0.02;

/// The rates, with one at which the node is idle.
fn with_idle(rates: &[f64]) -> Vec<f64> {
    let idle = (!rates.iter().any(|&rate| rate <= IDLE_RATE)).then_some(IDLE_RATE);
    idle.into_iter().chain(rates.iter().copied()).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_contain_an_idle_one() {
        assert_eq!(with_idle(&[0.5, 1.0]), [0.02, 0.5, 1.0]);
        assert_eq!(with_idle(&[0.0, 1.0]), [0.0, 1.0]);
    }

    #[test]
    fn shares_below_half_are_refused_with_the_reason() {
        assert_eq!(reads("50%"), Ok(0.5));
        assert!(reads("0%").is_err_and(|why| why.contains("reads its line")));
    }
}

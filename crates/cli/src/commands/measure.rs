//! `memtide measure`.

use memtide_core::{CpuId, NodeId};
use memtide_linux::measure::{Kernel, bandwidth_mbps, idle_latency_ns};
use memtide_linux::topology::Host;

use crate::answer::{Answer, Cell, Table};
use crate::cli::Common;
use crate::failure::Failure;
use crate::interrupt;
use crate::progress::Progress;

/// Its arguments.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Measure these nodes alone; all that have memory if not given
    #[arg(long, value_name = "NODES", value_delimiter = ',')]
    nodes: Vec<u8>,
    /// Measure from the CPUs of these nodes alone; from all that have CPUs if not given
    #[arg(long, value_name = "NODES", value_delimiter = ',')]
    initiators: Vec<u8>,
    /// Memory that a latency is measured over, and each CPU's part of a bandwidth; several times the last cache
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    mib: u32,
    /// Loads of a latency, in five parts of which the quickest counts
    #[arg(long, value_name = "N", default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
    loads: u64,
    /// How often the memory of a bandwidth is passed over; the best time counts, as with STREAM
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    #[command(flatten)]
    common: Common,
}

/// CPUs and a node to measure.
struct Pair {
    initiator: NodeId,
    cpus: Vec<CpuId>,
    node: NodeId,
}

/// Measures and shows idle latency and bandwidth of every node from every initiator.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let pairs = pairs(arguments)?;
    let columns = [
        ("initiator", "initiator"),
        ("node", "node"),
        ("cpus", "CPUs"),
        ("idle_ns", "idle latency, ns"),
        ("read_mbps", "reads, MB/s"),
        ("triad_mbps", "triad, MB/s"),
    ];
    let mut table = Table::new("nodes", &columns);
    let progress = Progress::new("measuring", 1);
    for (done, pair) in pairs.iter().enumerate() {
        if interrupt::asked() {
            return Err(Failure::Interrupted);
        }
        progress.set(0, done as f64 / pairs.len() as f64);
        table.rows.push(measure(arguments, pair)?);
    }
    drop(progress);
    Answer::of(table).print(arguments.common.output)
}

fn pairs(arguments: &Arguments) -> Result<Vec<Pair>, Failure> {
    let host = Host::read().map_err(|error| Failure::Run(error.to_string()))?;
    let wanted = |list: &[u8], node: NodeId| list.is_empty() || list.contains(&node.0);
    known("initiator", &arguments.initiators, host.with_cpus().map(|node| node.id))?;
    known("node", &arguments.nodes, host.with_memory().map(|node| node.id))?;
    let from = host.with_cpus().filter(|node| wanted(&arguments.initiators, node.id));
    let pairs = from.flat_map(|from| {
        let to = host.with_memory().filter(|node| wanted(&arguments.nodes, node.id));
        to.map(|to| Pair { initiator: from.id, cpus: from.cpus.clone(), node: to.id })
    });
    Ok(pairs.collect())
}

fn known(what: &str, wanted: &[u8], there: impl Iterator<Item = NodeId>) -> Result<(), Failure> {
    let there: Vec<u8> = there.map(|node| node.0).collect();
    match wanted.iter().find(|node| !there.contains(node)) {
        None => Ok(()),
        Some(node) => {
            let there: Vec<String> = there.iter().map(u8::to_string).collect();
            Err(Failure::Usage(format!("there is no {what} {node} here; there are {}", there.join(", "))))
        }
    }
}

fn measure(arguments: &Arguments, pair: &Pair) -> Result<Vec<Cell>, Failure> {
    let failed = |error: memtide_linux::measure::MeasureError| Failure::Run(error.to_string());
    let mib = arguments.mib as usize;
    let first = pair.cpus.first().copied().unwrap_or_default();
    let idle =
        idle_latency_ns(first, pair.node, mib, arguments.loads, arguments.common.seed).map_err(failed)?;
    let bandwidth =
        |kernel| bandwidth_mbps(&pair.cpus, pair.node, mib, arguments.rounds, kernel).map_err(failed);
    Ok(vec![
        Cell::Whole(pair.initiator.0.into()),
        Cell::Whole(pair.node.0.into()),
        Cell::Whole(pair.cpus.len() as u64),
        Cell::Real(idle, 1),
        Cell::Real(bandwidth(Kernel::Read)?, 0),
        Cell::Real(bandwidth(Kernel::Triad)?, 0),
    ])
}

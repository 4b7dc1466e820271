//! `memtide machine probe`.

mod curve;
mod measure;
mod tables;

use std::sync::Arc;

use clap::{ValueEnum, ValueHint};
use memtide_core::{InitiatorId, Machine, NodeId, suggest};
use memtide_memory::probe::Target;

use crate::failure::Failure;
use crate::machines;
use crate::options::share;
use crate::options::{Common, Settings};
use crate::output::{Cell, Document, Format, VERSION};

use measure::{Pair, measure};

/// Its arguments.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Name of a bundled machine, or machine file
    #[arg(value_name = "MACHINE", value_hint = ValueHint::FilePath)]
    machine: String,
    #[command(flatten)]
    settings: Settings,
    /// Probe from this initiator only [default: all]
    #[arg(long, value_name = "NAME")]
    initiator: Option<String>,
    /// Probe this node only [default: all]
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Access pattern
    #[arg(long, value_enum, default_value_t = Order::Random)]
    pattern: Order,
    /// Share of reads; the others are writes
    #[arg(long, value_name = "SHARE", default_value = "100%", value_parser = share::parse,
        allow_hyphen_values = true)]
    reads: f64,
    /// Loads as shares of the cap [default: where the curve bends]
    #[arg(long, value_name = "SHARES", value_delimiter = ',', value_parser = share::parse_positive,
        allow_hyphen_values = true)]
    load: Vec<f64>,
    /// Reads in flight, as cores have them, instead of offered loads
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', conflicts_with = "load",
        value_parser = clap::value_parser!(u32).range(1..=8192))]
    in_flight: Vec<u32>,
    /// Requests per point [default: by the node's channels]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(100..=1_000_000_000))]
    requests: Option<u64>,
    #[command(flatten)]
    common: Common,
}

/// Order of the requested lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Order {
    /// Random lines of the whole node, as a Poisson process
    Random,
    /// Consecutive lines, as a Poisson process
    Sequential,
    /// A pointer chase: one request in flight
    Chase,
}

/// Explains the figures, below the tables.
const NOTE: &str = "Latencies are load-to-use, with caches, links and their queues. Idle is that of a \
    pointer chase over the whole node, as Intel MLC measures it: on a dram node it also meets rows that must \
    be closed first, and refreshes. Closed row is that of a single read of a bank without an open row, as in \
    machine show. Peak is that of the figures of node and links, for this share of reads; the cap is what \
    they carry of this pattern, and loads are shares of it. Latency doubles: the rate at which the mean is \
    twice the idle latency. Latencies of a saturated point depend on the length of the probe.";

/// Probes the machine's nodes from every initiator and prints the figures.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let common = arguments.common;
    if !arguments.in_flight.is_empty() && (arguments.reads == 0.0 || arguments.pattern == Order::Chase) {
        let why =
            "--in-flight keeps reads in flight: use it with --reads above 0% and a pattern other than chase";
        return Err(Failure::Usage(why.to_owned()));
    }
    if arguments.pattern == Order::Chase && (!arguments.load.is_empty() || arguments.reads < 1.0) {
        let why = "--pattern chase has one read in flight: use it without --load and --reads";
        return Err(Failure::Usage(why.to_owned()));
    }
    let machine = Arc::new(machines::load_with(&arguments.machine, &arguments.settings)?);
    let initiators =
        pick("initiator", arguments.initiator.as_deref(), machine.initiators.iter().map(|i| &i.name))?;
    let nodes = pick("node", arguments.node.as_deref(), machine.nodes.iter().map(|n| &n.name))?;
    let pairs: Vec<Pair> = initiators
        .iter()
        .flat_map(|&from| nodes.iter().map(move |&to| (InitiatorId::from(from), NodeId::from(to))))
        .map(|(from, to)| Pair { from, to })
        .collect();
    let measured = measure(arguments, &machine, &pairs)?;
    let pattern = arguments.pattern.to_possible_value().expect("none is hidden");
    let warning = too_few(arguments, &machine, &pairs);
    if common.output != Format::Table {
        warning.iter().for_each(|warning| message!("memtide: {warning}"));
    }
    let document = Document {
        about: [
            machines::about(&machine),
            vec![
                ("pattern", Cell::text(pattern.get_name())),
                ("read_share", Cell::Real(arguments.reads, 2)),
                ("seed", Cell::Whole(common.seed)),
                ("memtide", Cell::text(VERSION)),
            ],
        ]
        .concat(),
        tables: tables::of(&machine, arguments.reads, &pairs, &measured),
        main: "curve",
        notes: [NOTE.to_owned()].into_iter().chain(warning).collect(),
    };
    document.print(common.output)
}

/// A note if so few requests were asked for that their figures are not those of a steady load.
fn too_few(arguments: &Arguments, machine: &Machine, pairs: &[Pair]) -> Option<String> {
    let needed = |pair: &Pair| Target::path(machine, pair.from, pair.to).requests();
    let needed = pairs.iter().map(needed).max()?;
    let asked = arguments.requests.filter(|&asked| asked < needed)?;
    Some(format!(
        "{asked} requests are fewer than the {needed} at which rates and latencies are steady: caps may be \
         off and low loads look saturated."
    ))
}

/// Index of the named entry, or of all entries.
fn pick<'a>(
    kind: &str,
    name: Option<&str>,
    all: impl Iterator<Item = &'a String>,
) -> Result<Vec<usize>, Failure> {
    let all: Vec<&str> = all.map(String::as_str).collect();
    let Some(name) = name else { return Ok((0..all.len()).collect()) };
    match all.iter().position(|other| *other == name) {
        Some(index) => Ok(vec![index]),
        None => Err(Failure::Usage(suggest::unknown(kind, name, &all))),
    }
}

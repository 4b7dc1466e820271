//! `memtide counters`.

use std::time::Duration;

use memtide_lab_protocol::counters::Snapshot;
use memtide_lab_protocol::{NodeCounts, between};
use memtide_linux::counters::{Counters, CountersError};

use crate::failure::Failure;
use crate::options::seconds;
use crate::output::{Cell, Document, Format, Table};
use crate::{advice, interrupt, tables};

/// Its arguments.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Print counter deltas every N seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    interval: Option<Duration>,
    /// Number of deltas to print [default: until Ctrl-C]
    #[arg(long, value_name = "N", requires = "interval", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
    output: Format,
}

/// Prints the counters: totals first, then deltas.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let failure = |error: CountersError| Failure::Run(advice::system::counters(&error));
    let counters = Counters::open().map_err(failure)?;
    let mut before = counters.read().map_err(failure)?;
    document(&before).print(arguments.output)?;
    let Some(interval) = arguments.interval else { return Ok(()) };
    for _ in 1..arguments.count.unwrap_or(u64::MAX) {
        interrupt::pause(interval)?;
        let now = counters.read().map_err(failure)?;
        document(&since(&before, &now)).print(arguments.output)?;
        before = now;
    }
    Ok(())
}

fn since(before: &Snapshot, now: &Snapshot) -> Snapshot {
    Snapshot {
        total: now.total.since(&before.total),
        processes: between(&before.processes, &now.processes),
        ..now.clone()
    }
}

fn document(seen: &Snapshot) -> Document {
    let about = vec![
        ("guest_ns", Cell::Whole(seen.guest_ns)),
        ("counting", Cell::text(if seen.on { "on" } else { "off" })),
        ("instructions", Cell::Whole(seen.total.instructions)),
        ("llc_misses", Cell::Whole(seen.total.llc_misses)),
    ];
    let processes = tables::processes::table(&between(&[], &seen.processes));
    Document { about, tables: vec![nodes(seen), processes], ..Document::default() }
}

fn nodes(seen: &Snapshot) -> Table {
    let columns = [
        ("node", "node"),
        ("read_lines", "lines read"),
        ("prefetched_lines", "prefetched"),
        ("written_lines", "written"),
        ("bytes", "bytes"),
        ("latency_mean_ns", "mean latency, ns"),
    ];
    let mut table = Table::new("nodes", &columns);
    let row = |(number, node): (&u64, &NodeCounts)| {
        vec![
            Cell::Whole(*number),
            Cell::Whole(node.reads),
            Cell::Whole(node.prefetches),
            Cell::Whole(node.writes),
            Cell::Whole(node.bytes()),
            node.mean_latency_ns().map_or(Cell::Absent, |ns| Cell::Real(ns, 1)),
        ]
    };
    table.rows = seen.nodes.iter().zip(&seen.total.nodes).map(row).collect();
    table
}

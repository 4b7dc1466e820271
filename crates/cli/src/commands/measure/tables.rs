//! Tables and notes of `memtide measure`.

use memtide_linux::measure::{Loaded, write_mbps};

use super::{Arguments, Measured, Pair, percent};
use crate::output::{Cell, Table};

pub fn nodes_table(shares: &[f64]) -> Table {
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

pub fn row(pair: &Pair, found: Option<&Measured>, shares: usize) -> Vec<Cell> {
    let mut row = vec![
        Cell::Whole(pair.initiator.0.into()),
        Cell::Whole(pair.node.0.into()),
        Cell::Whole(pair.cpus.len() as u64),
        Cell::Whole(pair.mib as u64),
        Cell::Flag(pair.is_cached(), "much of it".into()),
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

pub fn loaded_table() -> Table {
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

pub fn loaded_row(pair: &Pair, point: &Loaded) -> Vec<Cell> {
    vec![
        Cell::Whole(pair.initiator.0.into()),
        Cell::Whole(pair.node.0.into()),
        Cell::Percent(point.rate),
        Cell::Real(point.mbps, 0),
        Cell::Real(point.ns.least, 1),
        Cell::Percent(point.ns.spread),
    ]
}

/// What the figures are, then what is doubtful or missing.
/// What the columns are.
pub const EXPLANATION: &str = "Bandwidths are medians, latencies minima: interruptions only add to them. \
    `spread` is the range of the measurements over their median, for the figure with the largest one. Stores \
    are ordinary ones: the read of their line is counted. `writes` is computed from the stream with most \
    writes, as if reads and writes took turns; it is omitted where mixes are too fast for that, as where the \
    CPUs cannot draw the node's bandwidth.";

pub fn notes(arguments: &Arguments, pairs: &[Pair]) -> Vec<String> {
    let mut notes = vec![EXPLANATION.to_owned()];
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
    use memtide_core::{CpuId, NodeId};
    use memtide_linux::measure::Figure;

    use super::*;
    use crate::output::Document;

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
}

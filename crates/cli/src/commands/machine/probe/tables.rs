//! The tables of `memtide machine probe`.

use std::collections::BTreeSet;

use memtide_core::{Machine, NodeId};
use memtide_memory::probe::{ProbePoint, Target};

use super::curve::doubles_at;
use super::measure::{At, Measured, Pair};
use crate::output::{Cell, Table};

/// Idle latency, peak and cap of every pair, and their curves.
pub fn of(machine: &Machine, reads: f64, pairs: &[Pair], measured: &[Measured]) -> Vec<Table> {
    let (mut summary, mut curve) = (summary_table(), curve_table());
    for (&pair, measured) in pairs.iter().zip(measured) {
        summary.rows.push(summary_row(machine, reads, pair, measured));
        let row = |(at, point): &(At, ProbePoint)| curve_row(machine, pair, *at, point);
        curve.rows.extend(measured.curve.iter().map(row));
    }
    let mut tables = vec![summary, curve];
    tables.extend(devices(machine, pairs));
    tables
}

/// Address map, hashes and page policy of the dram devices, if any.
fn devices(machine: &Machine, pairs: &[Pair]) -> Option<Table> {
    let columns = [
        ("node", "node"),
        ("address_map", "address map, bits of the node's addresses"),
        ("address_hash", "address hash"),
        ("page_policy", "page policy"),
        ("open_rows", "open rows per bank"),
    ];
    let mut table = Table { vertical: true, ..Table::new("devices", &columns) };
    let nodes: BTreeSet<NodeId> = pairs.iter().map(|pair| pair.to).collect();
    for node in nodes.into_iter().map(|node| &machine.nodes[node.index()]) {
        let Some(dram) = &node.dram else { continue };
        let hashes = dram.describe_hashes();
        table.rows.push(vec![
            Cell::text(&node.name),
            dram.describe_map().map_or(Cell::Absent, Cell::Text),
            if hashes.is_empty() { Cell::Absent } else { Cell::List(hashes) },
            Cell::text(dram.page_policy.name()),
            Cell::Whole(dram.row_buffers().into()),
        ]);
    }
    (!table.rows.is_empty()).then_some(table)
}

fn summary_table() -> Table {
    let columns = [
        ("initiator", "initiator"),
        ("node", "node"),
        ("tier", "tier"),
        ("idle_ns", "idle, ns"),
        ("closed_row_ns", "closed row, ns"),
        ("peak_mbps", "peak, MB/s"),
        ("cap_mbps", "cap, MB/s"),
        ("cap_share", "cap, % of peak"),
        ("doubled_mbps", "latency doubles, MB/s"),
    ];
    Table::new("nodes", &columns).with_keys(2)
}

fn curve_table() -> Table {
    let columns = [
        ("initiator", "initiator"),
        ("node", "node"),
        ("load_share", "load, %"),
        ("reads_in_flight", "in flight"),
        ("offered_mbps", "offered, MB/s"),
        ("achieved_mbps", "achieved, MB/s"),
        ("mean_ns", "mean, ns"),
        ("p50_ns", "p50, ns"),
        ("p95_ns", "p95, ns"),
        ("p99_ns", "p99, ns"),
        ("row_hit_share", "row hits, %"),
        ("line_energy_nj", "nJ/line"),
        ("power_mw", "mW"),
        ("saturated", ""),
    ];
    Table::new("curve", &columns).with_keys(4)
}

fn summary_row(machine: &Machine, reads: f64, pair: Pair, measured: &Measured) -> Vec<Cell> {
    let peak_mbps = Target::path(machine, pair.from, pair.to).peak(reads).as_mbps();
    let cap_mbps = measured.flood.achieved.as_mbps();
    let closed_row = machine.idle_latency(pair.from, pair.to).as_ns();
    let open = |(at, point): &(At, ProbePoint)| match at {
        At::Load(_) if point.mean_ns > 0.0 => Some((point.achieved.as_mbps(), point.mean_ns)),
        _ => None,
    };
    let curve: Vec<(f64, f64)> = measured.curve.iter().filter_map(open).collect();
    let doubled = doubles_at(&curve, measured.idle.mean_ns);
    let mut row = names(machine, pair).to_vec();
    row.extend([
        Cell::Whole(machine.nodes[pair.to.index()].tier.into()),
        Cell::Real(measured.idle.mean_ns, 1),
        if is_dram(machine, pair) { Cell::Real(closed_row, 1) } else { Cell::Absent },
        Cell::Real(peak_mbps, 0),
        Cell::Real(cap_mbps, 0),
        Cell::Percent(cap_mbps / peak_mbps),
        doubled.map_or(Cell::Absent, |mbps| Cell::Real(mbps, 0)),
    ]);
    row
}

fn curve_row(machine: &Machine, pair: Pair, at: At, point: &ProbePoint) -> Vec<Cell> {
    let latency = |ns: f64| if ns > 0.0 { Cell::Real(ns, 1) } else { Cell::Absent };
    let known = |value: Option<f64>, digits| value.map_or(Cell::Absent, |value| Cell::Real(value, digits));
    let (load, in_flight) = match at {
        At::Load(share) => (Cell::Percent(share), Cell::Absent),
        At::InFlight(reads) => (Cell::Absent, Cell::Whole(reads.into())),
    };
    let mut row = names(machine, pair).to_vec();
    row.extend([
        load,
        in_flight,
        Cell::Real(point.offered.as_mbps(), 0),
        Cell::Real(point.achieved.as_mbps(), 0),
        latency(point.mean_ns),
        latency(point.p50_ns),
        latency(point.p95_ns),
        latency(point.p99_ns),
        if is_dram(machine, pair) { Cell::Percent(point.row_hit_rate) } else { Cell::Absent },
        known(point.line_energy_nj, 2),
        known(point.power_mw, 0),
        Cell::Flag(point.saturated, "saturated".into()),
    ]);
    row
}

fn names(machine: &Machine, pair: Pair) -> [Cell; 2] {
    let names = [&machine.initiators[pair.from.index()].name, &machine.nodes[pair.to.index()].name];
    names.map(Cell::text)
}

fn is_dram(machine: &Machine, pair: Pair) -> bool {
    machine.nodes[pair.to.index()].dram.is_some()
}

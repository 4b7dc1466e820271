//! `memtide machine show`.

use std::collections::HashMap;

use clap::{ValueEnum, ValueHint};
use memtide_core::machine::unit_of;
use memtide_core::{InitiatorId, Machine};
use serde_json::Value;

use crate::failure::Failure;
use crate::machines;
use crate::options::Overrides;
use crate::output::{Cell, Document, Format, Table, pretty, print};

/// Its arguments.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Name of a bundled machine, or machine file
    #[arg(value_name = "MACHINE", value_hint = ValueHint::FilePath)]
    machine: String,
    /// Print it as simulated, with its slice and scale applied
    #[arg(long)]
    reduced: bool,
    #[command(flatten)]
    overrides: Overrides,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Output::Table, value_name = "FORMAT")]
    output: Output,
}

/// How a machine is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// Rounded figures, for people
    Table,
    /// One object with all figures
    Json,
    /// A header and one line per figure
    Csv,
    /// A machine file, to copy and edit
    Machine,
}

/// Prints the machine: as JSON or machine file the whole file, in other formats its figures.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let whole = machines::load_at(&arguments.machine, &arguments.overrides)?;
    let reduced = arguments.reduced || !arguments.overrides.keep_reduction();
    let machine = if reduced { whole.reduced() } else { whole.clone() };
    let tree =
        |machine: &Machine| serde_json::to_value(machine).map_err(|error| Failure::Run(error.to_string()));
    let (whole, tree) = (tree(&whole)?, tree(&machine)?);
    let format = match arguments.output {
        Output::Table => Format::Table,
        Output::Csv => Format::Csv,
        Output::Json => return print(&pretty(&tree)),
        Output::Machine => return print(&machine.to_toml()),
    };
    let about = vec![("machine", Cell::text(&machine.name)), ("summary", Cell::text(&machine.summary))];
    let about = if format == Format::Table { about } else { Vec::new() };
    let dram = machine.nodes.iter().any(|node| node.dram.is_some());
    let note = "Idle read of a dram node is a single read of a bank without an open row. A pointer chase \
        also meets refreshes and rows that must be closed first: see the idle latency of machine probe.";
    let notes = dram.then(|| note.to_owned()).into_iter().collect();
    let tables = vec![reach(&machine), figures(&machine, &tree, &whole)];
    Document { about, tables, notes, ..Document::default() }.print(format)
}

/// Latency and bandwidth of every node from every initiator.
fn reach(machine: &Machine) -> Table {
    let columns = [
        ("initiator", "initiator"),
        ("node", "node"),
        ("tier", "tier"),
        ("capacity_mib", "capacity, MiB"),
        ("idle_read_ns", "idle read, ns"),
        ("read_mbps", "reads at most, MB/s"),
    ];
    let mut table = Table::new("reach", &columns).with_keys(2);
    for (index, initiator) in machine.initiators.iter().enumerate() {
        let from = InitiatorId::from(index);
        for id in machine.node_ids() {
            let node = &machine.nodes[id.index()];
            table.rows.push(vec![
                Cell::text(&initiator.name),
                Cell::text(&node.name),
                Cell::Whole(node.tier.into()),
                Cell::Whole(node.capacity_mib),
                Cell::Real(machine.idle_latency(from, id).as_ns(), 1),
                Cell::Real(machine.path_bandwidth(from, id, 1.0).as_mbps(), 0),
            ]);
        }
    }
    table
}

/// Every figure; the source of one that differs from the whole machine's names that, too.
fn figures(machine: &Machine, tree: &Value, whole: &Value) -> Table {
    let columns = [("figure", "figure"), ("value", "value"), ("unit", "unit"), ("source", "source")];
    let mut table = Table::new("figures", &columns);
    let (mut leaves, mut whole_leaves) = (Vec::new(), Vec::new());
    collect(tree, String::new(), &mut leaves);
    collect(whole, String::new(), &mut whole_leaves);
    let whole: HashMap<String, String> = whole_leaves.into_iter().collect();
    for (path, value) in leaves {
        let key = path.rsplit('.').next().unwrap_or_default();
        if matches!(path.split('.').next(), Some("sources" | "name" | "summary" | "calibrated"))
            || key == "name"
        {
            continue;
        }
        let source = match whole.get(&path) {
            None => format!("computed from the slice: {}", machine.source_of(&path)),
            Some(before) if *before != value => {
                format!("reduced from {before}: {}", machine.source_of(&path))
            }
            _ => machine.source_of(&path).to_owned(),
        };
        table.rows.push(vec![
            Cell::text(&path),
            Cell::text(value),
            Cell::text(unit(key, is_dram(&path))),
            Cell::text(source),
        ]);
    }
    table
}

/// All figures below a value with their dotted paths; list entries by name.
fn collect(value: &Value, path: String, leaves: &mut Vec<(String, String)>) {
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match value {
        Value::Object(table) => table.iter().for_each(|(key, value)| collect(value, below(key), leaves)),
        Value::Array(list) if list.iter().any(Value::is_object) => {
            for (index, entry) in list.iter().enumerate() {
                collect(entry, below(&name_of(entry, index)), leaves);
            }
        }
        Value::Array(list) => {
            let words: Vec<String> = list.iter().map(plain).collect();
            leaves.push((path, words.join(" ")));
        }
        Value::Null => {}
        leaf => leaves.push((path, plain(leaf))),
    }
}

/// An entry's name: a link's is composed of its ends, an unnamed entry's is its number.
fn name_of(entry: &Value, index: usize) -> String {
    match (entry.get("name"), entry.get("between")) {
        (Some(name), _) => plain(name),
        (None, Some(Value::Array(ends))) => ends.iter().map(plain).collect::<Vec<_>>().join("-"),
        _ => index.to_string(),
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Whether a path is of a figure in a node's table `dram`, and not of a node with that name.
fn is_dram(path: &str) -> bool {
    let mut parts = path.split('.');
    parts.next() == Some("node") && parts.nth(1) == Some("dram")
}

/// The unit at the end of a figure's name.
pub(super) fn unit(key: &str, dram: bool) -> &'static str {
    let cycles =
        ["burst", "cl", "cwl", "rcd", "rp", "ras", "faw", "wr", "rtp", "rfc", "refi", "turnaround", "select"];
    let starts = ["ccd_", "rrd_", "wtr_", "rank_switch", "rp_"];
    match unit_of(key) {
        None | Some("cycles")
            if dram
                && (cycles.contains(&key)
                    || key.ends_with("_cycles")
                    || starts.iter().any(|start| key.starts_with(start))) =>
        {
            "tCK"
        }
        unit => unit.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use memtide_core::machine::bundled;

    use super::*;

    #[test]
    fn every_figure_of_every_bundled_machine_has_a_source() {
        for name in bundled::names() {
            let machine = bundled::machine(name).unwrap().unwrap();
            let tree = serde_json::to_value(&machine).unwrap();
            let table = figures(&machine, &tree, &tree);
            assert!(table.rows.len() > 30, "{name} shows only {} figures", table.rows.len());
            for row in &table.rows {
                let [_, _, _, Cell::Text(source)] = row.as_slice() else { panic!("{name}: {row:?}") };
                assert!(source.len() > 3, "{name}: {row:?} has no source");
            }
        }
    }

    #[test]
    fn units_follow_from_names() {
        assert_eq!(unit("read_latency_ns", false), "ns");
        assert_eq!(unit("cl", true), "tCK");
        assert_eq!(unit("ccd_l_wr", true), "tCK");
        assert_eq!(unit("latency_cycles", false), "cycles");
        assert_eq!(unit("channels", true), "");
    }
}

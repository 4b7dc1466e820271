//! `memtide machine list`.

use memtide_core::Machine;
use memtide_core::machine::bundled;

use crate::failure::Failure;
use crate::options::Common;
use crate::output::{Cell, Document, Table};

/// Prints all bundled machines.
pub fn run(common: Common) -> Result<(), Failure> {
    let columns = [
        ("name", "name"),
        ("cpus", "CPUs"),
        ("nodes", "nodes, fastest tier first"),
        ("slice", "slice"),
        ("scale", "scale"),
        ("summary", "summary"),
    ];
    let mut table = Table::new("machines", &columns);
    for machine in bundled::names().into_iter().filter_map(bundled::machine) {
        table.rows.push(row(&machine.map_err(|error| Failure::Input(error.to_string()))?));
    }
    Document::of(table).print(common.output)
}

fn row(machine: &Machine) -> Vec<Cell> {
    let mut nodes: Vec<_> = machine.nodes.iter().collect();
    nodes.sort_by_key(|node| node.tier);
    vec![
        Cell::text(&machine.name),
        Cell::Whole(machine.cpus() as u64),
        Cell::List(nodes.iter().map(|node| node.name.clone()).collect()),
        Cell::Whole(machine.slice.into()),
        Cell::Whole(machine.scale.into()),
        Cell::text(&machine.summary),
    ]
}

//! `memtide machine check`.

use clap::ValueHint;
use memtide_core::Machine;

use crate::failure::Failure;
use crate::machines;
use crate::options::Common;
use crate::output::{Cell, Document, Table};

/// Its arguments.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Machine files, or names of bundled machines
    #[arg(required = true, value_name = "MACHINE", value_hint = ValueHint::FilePath)]
    machines: Vec<String>,
    #[command(flatten)]
    common: Common,
}

/// Reads all of them: a row each, and what is wrong with the refused ones in the end.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let common = arguments.common;
    let columns = [
        ("file", "file"),
        ("name", "machine"),
        ("cpus", "CPUs"),
        ("nodes", "nodes"),
        ("tiers", "tiers"),
        ("verdict", "verdict"),
    ];
    let mut table = Table::new("checked", &columns);
    let mut faults = Vec::new();
    for name in &arguments.machines {
        match machines::load(name) {
            Ok(machine) => table.rows.push(accepted(name, &machine)),
            Err(Failure::Input(fault)) => {
                table.rows.push(refused(name));
                faults.push(fault);
            }
            Err(other) => return Err(other),
        }
    }
    Document::of(table).print(common.output)?;
    if faults.is_empty() { Ok(()) } else { Err(Failure::Input(faults.join("\n"))) }
}

fn accepted(name: &str, machine: &Machine) -> Vec<Cell> {
    vec![
        Cell::text(name),
        Cell::text(&machine.name),
        Cell::Whole(machine.cpus() as u64),
        Cell::Whole(machine.nodes.len() as u64),
        Cell::Whole(machine.tiers() as u64),
        Cell::text("sound"),
    ]
}

fn refused(name: &str) -> Vec<Cell> {
    let unknown = [Cell::Absent, Cell::Absent, Cell::Absent, Cell::Absent];
    [Cell::text(name)].into_iter().chain(unknown).chain([Cell::text("refused")]).collect()
}

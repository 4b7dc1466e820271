//! `memtide machine check`.

use clap::ValueHint;

use crate::answer::{Answer, Cell, Table};
use crate::cli::Common;
use crate::failure::Failure;
use crate::machines;

/// Its arguments.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Machine files, or names of bundled machines
    #[arg(required = true, value_name = "MACHINE", value_hint = ValueHint::FilePath)]
    machines: Vec<String>,
    #[command(flatten)]
    common: Common,
}

/// Reads all of them; the first fault ends it.
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
    for given in &arguments.machines {
        let machine = machines::load(given)?;
        table.rows.push(vec![
            Cell::text(given),
            Cell::text(&machine.name),
            Cell::Whole(machine.cpus() as u64),
            Cell::Whole(machine.nodes.len() as u64),
            Cell::Whole(machine.tiers() as u64),
            Cell::text("sound"),
        ]);
    }
    Answer::of(table).print(common.output)
}

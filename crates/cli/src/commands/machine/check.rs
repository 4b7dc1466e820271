//! `memtide machine check`.

use clap::ValueHint;
use memtide_core::{FileError, Machine};

use crate::failure::Failure;
use crate::machines;
use crate::options::Common;
use crate::output::{Cell, Document, Format, Table};

/// Its arguments.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Machine files, or names of bundled machines
    #[arg(required = true, value_name = "MACHINE", value_hint = ValueHint::FilePath)]
    machines: Vec<String>,
    #[command(flatten)]
    common: Common,
}

/// Checks all files: a row each, warnings, and at the end the errors of refused ones.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let common = arguments.common;
    let columns = [
        ("file", "file"),
        ("name", "machine"),
        ("cpus", "CPUs"),
        ("nodes", "nodes"),
        ("tiers", "tiers"),
        ("verdict", "verdict"),
        ("warnings", "warnings"),
    ];
    let mut checked = Table::new("checked", &columns);
    let (mut warnings, mut faults) = (Vec::new(), Vec::new());
    for name in &arguments.machines {
        match machines::load_with_warnings(name) {
            Ok((machine, of_machine)) => {
                checked.rows.push(accepted(name, &machine, of_machine.len()));
                warnings.extend(of_machine);
            }
            Err(fault) => {
                checked.rows.push(refused(name));
                faults.push(fault);
            }
        }
    }
    print(common.output, checked, &warnings)?;
    all(faults)
}

/// In the table format, warnings are paragraphs; CSV has one table, so they go to standard error.
fn print(format: Format, checked: Table, warnings: &[FileError]) -> Result<(), Failure> {
    let notes: Vec<String> = warnings.iter().map(|warning| format!("warning: {warning}")).collect();
    match format {
        Format::Table => Document { notes, ..Document::of(checked) }.print(format),
        Format::Json => {
            let tables = vec![checked, table(warnings)];
            Document { tables, ..Document::default() }.print(format)
        }
        Format::Csv => {
            notes.iter().for_each(|note| message!("memtide: {note}"));
            Document::of(checked).print(format)
        }
    }
}

fn table(warnings: &[FileError]) -> Table {
    let columns = [("file", "file"), ("line", "line"), ("field", "field"), ("message", "warning")];
    let mut table = Table::new("warnings", &columns);
    let row = |warning: &FileError| {
        let FileError { file, line, field, message } = warning;
        vec![Cell::text(file), Cell::Whole(*line as u64), Cell::text(field), Cell::text(message)]
    };
    table.rows = warnings.iter().map(row).collect();
    table
}

/// All failures as one, with the code of a refused file if there is one.
fn all(faults: Vec<Failure>) -> Result<(), Failure> {
    let of_file = faults.iter().any(|fault| matches!(fault, Failure::Input(_)));
    let messages: Vec<String> = faults.iter().map(Failure::to_string).collect();
    match messages.join("\n") {
        none if none.is_empty() => Ok(()),
        messages if of_file => Err(Failure::Input(messages)),
        messages => Err(Failure::Usage(messages)),
    }
}

fn accepted(name: &str, machine: &Machine, warnings: usize) -> Vec<Cell> {
    vec![
        Cell::text(name),
        Cell::text(&machine.name),
        Cell::Whole(machine.cpus() as u64),
        Cell::Whole(machine.nodes.len() as u64),
        Cell::Whole(machine.tiers() as u64),
        Cell::text("sound"),
        Cell::Whole(warnings as u64),
    ]
}

fn refused(name: &str) -> Vec<Cell> {
    let unknown = || vec![Cell::Absent; 4];
    [vec![Cell::text(name)], unknown(), vec![Cell::text("refused"), Cell::Absent]].concat()
}

//! `memtide workload`.

use clap::Subcommand;
use memtide_core::suggest;
use memtide_workloads::{Info, Parameter, list as workloads};

use crate::failure::Failure;
use crate::options::Common;
use crate::output::{Cell, Document, Table};

/// Its subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List all workloads
    List(Common),
    /// Print a workload's behaviour, source and parameters
    Show {
        /// Name of a workload
        name: String,
        #[command(flatten)]
        common: Common,
    },
}

/// Runs a subcommand.
pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::List(common) => list().print(common.output),
        Command::Show { name, common } => show(&name)?.print(common.output),
    }
}

fn list() -> Document {
    let columns = [("name", "name"), ("summary", "summary"), ("stresses", "tests")];
    let mut table = Table::new("workloads", &columns);
    let row = |info: &Info| vec![Cell::text(info.name), Cell::text(info.summary), Cell::text(info.stresses)];
    table.rows = workloads().iter().map(row).collect();
    let note = "Run one as NAME[:PARAMETER=VALUE,..], such as stream:kernel=triad,threads=8.";
    Document { notes: vec![note.to_owned()], ..Document::of(table) }
}

fn show(name: &str) -> Result<Document, Failure> {
    let Some(info) = workloads().iter().find(|info| info.name == name) else {
        let known: Vec<&str> = workloads().iter().map(|info| info.name).collect();
        return Err(Failure::Usage(suggest::unknown("workload", name, &known)));
    };
    let columns = [
        ("name", "parameter"),
        ("unit", "unit"),
        ("default", "default"),
        ("allowed", "allowed"),
        ("help", "what it is"),
    ];
    let mut table = Table::new("parameters", &columns);
    table.rows = info.parameters.iter().map(row).collect();
    let about = vec![
        ("workload", Cell::text(info.name)),
        ("summary", Cell::text(info.summary)),
        ("stresses", Cell::text(info.stresses)),
        ("source", Cell::text(info.source)),
    ];
    Ok(Document { about, ..Document::of(table) })
}

fn row(parameter: &Parameter) -> Vec<Cell> {
    vec![
        Cell::text(parameter.name),
        Cell::text(parameter.unit),
        Cell::text(parameter.default()),
        Cell::text(parameter.range()),
        Cell::text(parameter.help),
    ]
}

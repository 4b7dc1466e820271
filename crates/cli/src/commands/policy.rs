//! `memtide policy`.

use clap::Subcommand;
use memtide_policies::{Info, Parameter, migrations, placements};

use crate::answer::{Answer, Cell, Table};
use crate::cli::Common;
use crate::failure::Failure;
use crate::suggest;

/// Its subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List all policies
    List(Common),
    /// Show what a policy does, where it comes from, and its parameters
    Show {
        /// The policy's name
        name: String,
        #[command(flatten)]
        common: Common,
    },
}

/// Carries one out.
pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::List(common) => list().print(common.output),
        Command::Show { name, common } => show(&name)?.print(common.output),
    }
}

fn kinds() -> impl Iterator<Item = (&'static str, &'static Info)> {
    placements().map(|info| ("placement", info)).chain(migrations().map(|info| ("migration", info)))
}

fn list() -> Answer {
    let mut table = Table::new("policies", &[("name", "name"), ("kind", "kind"), ("summary", "summary")]);
    table.rows = kinds()
        .map(|(kind, info)| vec![Cell::text(info.name), Cell::text(kind), Cell::text(info.summary)])
        .collect();
    let note = "Run one as PLACEMENT[:PARAMETER=VALUE..][+MIGRATION[:PARAMETER=VALUE..]], such as bw-local+bw-migration.";
    Answer { notes: vec![note.to_owned()], ..Answer::of(table) }
}

fn show(name: &str) -> Result<Answer, Failure> {
    let Some((kind, info)) = kinds().find(|(_, info)| info.name == name) else {
        let known: Vec<&str> = kinds().map(|(_, info)| info.name).collect();
        return Err(Failure::Usage(suggest::unknown("policy", name, &known)));
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
        ("policy", Cell::text(info.name)),
        ("kind", Cell::text(kind)),
        ("summary", Cell::text(info.summary)),
        ("source", Cell::text(info.source)),
    ];
    Ok(Answer { about, ..Answer::of(table) })
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

//! `memtide policy`.

use clap::Subcommand;
use memtide_core::suggest;
use memtide_policies::{Info, Parameter, migrations, placements};

use crate::failure::Failure;
use crate::options::Common;
use crate::output::{Cell, Document, Table};
use crate::runs;

/// Its subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List all policies
    List(Common),
    /// Print a policy's behaviour, source and parameters
    Show {
        /// Policy, such as local+anb or ratio:weights=4:1
        #[arg(value_name = "POLICY")]
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

fn list() -> Document {
    let mut table = Table::new("policies", &[("name", "name"), ("kind", "kind"), ("summary", "summary")]);
    table.rows = kinds()
        .map(|(kind, info)| vec![Cell::text(info.name), Cell::text(kind), Cell::text(info.summary)])
        .collect();
    let note = "Run one as PLACEMENT[:PARAMETER=VALUE..][+MIGRATION[:PARAMETER=VALUE..]], such as bw-local+bw-migration.";
    Document { notes: vec![note.to_owned()], ..Document::of(table) }
}

fn show(name: &str) -> Result<Document, Failure> {
    let shown = match kinds().find(|(_, info)| info.name == name) {
        Some(one) => vec![one],
        None if name.contains([':', '+']) => parts(name)?,
        None => {
            let known: Vec<&str> = kinds().map(|(_, info)| info.name).collect();
            return Err(Failure::Usage(suggest::unknown("policy", name, &known)));
        }
    };
    let columns = [
        ("name", "parameter"),
        ("unit", "unit"),
        ("default", "default"),
        ("allowed", "allowed"),
        ("help", "what it is"),
    ];
    let mut table = Table::new("parameters", &columns);
    table.rows = shown.iter().flat_map(|(_, info)| info.parameters).map(row).collect();
    let of_each = |what: fn(&(&'static str, &'static Info)) -> &'static str, between: &str| {
        Cell::text(shown.iter().map(what).collect::<Vec<_>>().join(between))
    };
    let about = vec![
        ("policy", Cell::text(name)),
        ("kind", of_each(|(kind, _)| kind, " + ")),
        ("summary", of_each(|(_, info)| info.summary, "; then ")),
        ("source", of_each(|(_, info)| info.source, "; ")),
    ];
    Ok(Document { about, ..Document::of(table) })
}

/// The placement of a policy, and its migration if it names one.
fn parts(text: &str) -> Result<Vec<(&'static str, &'static Info)>, Failure> {
    if let Some((_, info)) = kinds().find(|(_, info)| Some(info.name) == text.strip_prefix('+')) {
        return Ok(vec![("migration", info)]);
    }
    let policy = runs::policy(text)?;
    let migration = text.contains('+').then(|| ("migration", policy.migration_info()));
    Ok([("placement", policy.placement_info())].into_iter().chain(migration).collect())
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

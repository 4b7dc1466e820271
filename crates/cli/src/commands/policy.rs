//! `memtide policy`.

use clap::Subcommand;
use memtide_core::params::Values;
use memtide_core::suggest;
use memtide_policies::{Info, Parameter, migrations, placements};

use crate::failure::Failure;
use crate::options::Common;
use crate::output::{Cell, Document, Format, Table};
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

/// Runs a subcommand.
pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::List(common) => list(common.output).print(common.output),
        Command::Show { name, common } => show(&name)?.print(common.output),
    }
}

fn kinds() -> impl Iterator<Item = (&'static str, &'static Info)> {
    placements().map(|info| ("placement", info)).chain(migrations().map(|info| ("migration", info)))
}

fn list(format: Format) -> Document {
    let mut table = Table::new("policies", &[("name", "name"), ("kind", "kind"), ("summary", "summary")]);
    table.rows = kinds()
        .map(|(kind, info)| vec![Cell::text(info.name), Cell::text(kind), Cell::text(info.summary)])
        .collect();
    let mut when = Table::new("when", &[("name", "name"), ("when", "when to use it")]);
    when.rows = kinds().map(|(_, info)| vec![Cell::text(info.name), Cell::text(info.when)]).collect();
    let tables = match format {
        Format::Csv => vec![table.join(when)],
        _ => vec![table, when],
    };
    let note = "Run one as PLACEMENT[:PARAMETER=VALUE..][+MIGRATION[:PARAMETER=VALUE..]], such as \
        bw-local+bw-migration.";
    Document { tables, main: "policies", notes: vec![note.to_owned()], ..Document::default() }
}

/// A part of a policy: its kind, description, and effective parameters.
type Part = (&'static str, &'static Info, Option<Values>);

fn show(name: &str) -> Result<Document, Failure> {
    let shown = match kinds().find(|(_, info)| info.name == name) {
        Some((kind, info)) => vec![(kind, info, None)],
        None if name.contains([':', '+']) => parts(name)?,
        None => {
            let known: Vec<&str> = kinds().map(|(_, info)| info.name).collect();
            return Err(Failure::Usage(suggest::unknown("policy", name, &known)));
        }
    };
    let columns = [
        ("name", "parameter"),
        ("unit", "unit"),
        ("value", "value"),
        ("default", "default"),
        ("allowed", "allowed"),
        ("help", "what it is"),
    ];
    let mut table = Table::new("parameters", &columns);
    table.rows = shown
        .iter()
        .flat_map(|(_, info, values)| {
            info.parameters.iter().map(move |parameter| row(parameter, values.as_ref()))
        })
        .collect();
    let of_each = |what: fn(&Part) -> &'static str, between: &str| {
        Cell::text(shown.iter().map(what).collect::<Vec<_>>().join(between))
    };
    let about = vec![
        ("policy", Cell::text(name)),
        ("kind", of_each(|(kind, ..)| kind, " + ")),
        ("summary", of_each(|(_, info, _)| info.summary, "; then ")),
        ("when", of_each(|(_, info, _)| info.when, "; then ")),
        ("source", of_each(|(_, info, _)| info.source, "; ")),
    ];
    Ok(Document { about, ..Document::of(table) })
}

/// The placement of a policy, and its migration if it names one; of `+MIGRATION` the migration alone.
fn parts(text: &str) -> Result<Vec<Part>, Failure> {
    let alone = text.starts_with('+');
    let policy = if alone { runs::policy(&format!("local{text}"))? } else { runs::policy(text)? };
    let placement = ("placement", policy.placement_info(), Some(policy.placement_values().clone()));
    let migration = ("migration", policy.migration_info(), Some(policy.migration_values().clone()));
    Ok(match text.contains('+') {
        _ if alone => vec![migration],
        true => vec![placement, migration],
        false => vec![placement],
    })
}

fn row(parameter: &Parameter, values: Option<&Values>) -> Vec<Cell> {
    let default = parameter.default();
    // Weights have no value until the machine is known.
    let value = values.map(|values| values.get(parameter.name).to_string()).filter(|value| !value.is_empty());
    vec![
        Cell::text(parameter.name),
        Cell::text(parameter.unit),
        Cell::text(value.unwrap_or_else(|| default.clone())),
        Cell::text(default),
        Cell::text(parameter.range()),
        Cell::text(parameter.help),
    ]
}

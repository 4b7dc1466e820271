//! `memtide simulate`.

use memtide_policies::Policy;
use memtide_sim::Comparison;

use crate::failure::Failure;
use crate::options::Common;
use crate::output::{self, Cell, Document, Format, Table};
use crate::progress::Progress;
use crate::report::HeatMapFile;
use crate::runs::{self, RunOptions, Runs};
use crate::tables::verdict::{full_nodes, without_occasion};
use crate::tables::{mix, reduction, regions, simulated};

/// Its arguments.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    setting: RunOptions,
    #[command(flatten)]
    common: Common,
    /// PLACEMENT[:KEY=VALUE,..][+MIGRATION[:KEY=VALUE,..]]
    #[arg(short, long, default_value = "local")]
    policy: String,
    #[command(flatten)]
    heat_map: HeatMapFile,
}

/// Runs the simulation and prints all figures.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let common = arguments.common;
    let policy = runs::policy(&arguments.policy)?;
    let runs = arguments.setting.runs(common.seed)?;
    arguments.heat_map.check()?;
    let comparison = simulated(&runs, policy, arguments.setting.has_run_file())?;
    let (names, report) = (&comparison.names, &comparison.reports[0]);
    let mut notes = without_occasion(names, &comparison.reports);
    notes.extend(full_nodes(names, &comparison.reports));
    notes.extend(simulated::region_note(&comparison.reports));
    notes.extend(regions::ended_before(report));
    notes.extend(reduction::notes_of_runs(&runs.machine, &comparison.reports));
    notes.extend(arguments.heat_map.write(report)?);
    let mut about = runs.about();
    about.push(("policy", Cell::text(&names[0])));
    if common.output == Format::Json {
        let tables = match comparison.alone_ms.is_empty() {
            true => Vec::new(),
            false => vec![mix::programs(&comparison), mix::levels(&comparison)],
        };
        let mut whole = Document { about, tables, ..Document::default() }.json();
        whole["report"] = serde_json::to_value(report).map_err(|error| Failure::Run(error.to_string()))?;
        whole["notes"] = notes.into();
        return output::print(&output::pretty(&whole));
    }
    let mut measured = Table::new("measured", &[("figure", "figure"), ("value", "value"), ("unit", "unit")]);
    let slowdowns = match common.output {
        Format::Csv => mix::of_programs(&comparison, 0),
        _ => Vec::new(),
    };
    let figures =
        [simulated::of_run(report), mix::of_run(&comparison, 0), simulated::counts(report), slowdowns];
    for (key, title, cell) in figures.into_iter().flatten() {
        let (title, unit) = title.rsplit_once(", ").unwrap_or((title.as_str(), ""));
        let (name, unit) = match (common.output, &cell) {
            (Format::Table, _) => (title, unit),
            (_, Cell::Percent(_)) => (key.as_str(), ""),
            _ => (key.as_str(), unit),
        };
        measured.rows.push(vec![Cell::text(name), cell, Cell::text(unit)]);
    }
    let tables = match common.output {
        Format::Table => vec![
            measured,
            mix::copies(&comparison),
            mix::levels(&comparison),
            simulated::stages(report),
            simulated::nodes(report),
            simulated::energy(report),
            simulated::banks(report),
            simulated::sensors(report),
        ],
        _ => vec![measured],
    };
    Document { about, tables, notes, ..Document::default() }.print(common.output)
}

/// Runs the programs under a policy, and each of a run file alone, too.
fn simulated(runs: &Runs, policy: Policy, with_alone: bool) -> Result<Comparison, Failure> {
    let alone = if with_alone { Some(runs.alone(1, false)?) } else { None };
    let parts = alone.as_ref().map_or(0, |alone| alone.parts(1));
    let progress = Progress::new("simulating", 1 + parts);
    let policies = [policy];
    let report = runs.run(&policies[0], &progress, 0)?;
    let alone_ms = alone.map(|alone| alone.times_ms(&policies, &progress, 1)).transpose()?;
    let names = vec![policies[0].name().to_owned()];
    Ok(Comparison {
        alone_ms: alone_ms.unwrap_or_default(),
        priorities: runs.priorities(),
        ..Comparison::new(&runs.machine, names, vec![report])
    })
}

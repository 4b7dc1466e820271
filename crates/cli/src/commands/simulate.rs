//! `memtide simulate`.

use crate::failure::Failure;
use crate::options::Common;
use crate::output::{self, Cell, Document, Format, Table};
use crate::progress::Progress;
use crate::report::HeatMapFile;
use crate::runs::{self, RunOptions};
use crate::tables::verdict::without_occasion;
use crate::tables::{reduction, regions, simulated};

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
    let progress = Progress::new("simulating", 1);
    let report = runs.run(&policy, &progress, 0)?;
    drop(progress);
    let mut notes = without_occasion(&[policy.name().to_owned()], std::slice::from_ref(&report));
    notes.extend(simulated::region_note(std::slice::from_ref(&report)));
    notes.extend(regions::ended_before(&report));
    notes.extend(reduction::notes_of_runs(&runs.machine, std::slice::from_ref(&report)));
    notes.extend(arguments.heat_map.write(&report)?);
    let mut about = runs.about();
    about.push(("policy", Cell::text(policy.name())));
    if common.output == Format::Json {
        let mut whole = Document { about, ..Document::default() }.json();
        whole["report"] = serde_json::to_value(&report).map_err(|error| Failure::Run(error.to_string()))?;
        whole["notes"] = notes.into();
        return output::print(&output::pretty(&whole));
    }
    let mut measured = Table::new("measured", &[("figure", "figure"), ("value", "value"), ("unit", "unit")]);
    for (key, title, cell) in simulated::of_run(&report).into_iter().chain(simulated::counts(&report)) {
        let (title, unit) = title.rsplit_once(", ").unwrap_or((title.as_str(), ""));
        let (name, unit) = match (common.output, &cell) {
            (Format::Table, _) => (title, unit),
            (_, Cell::Percent(_)) => (key.as_str(), ""),
            _ => (key.as_str(), unit),
        };
        measured.rows.push(vec![Cell::text(name), cell, Cell::text(unit)]);
    }
    let tables = match common.output {
        Format::Table => {
            let of_run = [measured, simulated::stages(&report), simulated::nodes(&report)];
            let of_memory = [simulated::energy(&report), simulated::banks(&report)];
            let all = of_run.into_iter().chain(of_memory).chain([simulated::sensors(&report)]);
            all.collect()
        }
        _ => vec![measured],
    };
    Document { about, tables, notes, ..Document::default() }.print(common.output)
}

//! `memtide simulate`.

use crate::answer::{self, Answer, Cell, Format, Table};
use crate::cli::Common;
use crate::columns;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::runs::{self, Setting};

/// Its arguments.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    setting: Setting,
    #[command(flatten)]
    common: Common,
    /// The policy, as PLACEMENT[:KEY=VALUE,..][+MIGRATION[:KEY=VALUE,..]]
    #[arg(short, long, default_value = "local")]
    policy: String,
}

/// Runs it and prints all that was measured.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let common = arguments.common;
    let policy = runs::policy(&arguments.policy)?;
    let runs = arguments.setting.runs(common.seed)?;
    let progress = Progress::new("simulating", 1);
    let report = runs.run(&policy, &progress, 0)?;
    drop(progress);
    let mut about = runs.about();
    about.push(("policy", Cell::text(policy.name())));
    if common.output == Format::Json {
        let mut whole = Answer { about, ..Answer::default() }.json();
        whole["report"] = serde_json::to_value(&report).map_err(|error| Failure::Run(error.to_string()))?;
        return answer::print(&answer::pretty(&whole));
    }
    let mut measured = Table::new("measured", &[("figure", "figure"), ("value", "value"), ("unit", "unit")]);
    for (key, title, cell) in columns::of_run(&report).into_iter().chain(columns::counts(&report)) {
        let (title, unit) = title.rsplit_once(", ").unwrap_or((title.as_str(), ""));
        let (name, unit) = match (common.output, &cell) {
            (Format::Table, _) => (title, unit),
            (_, Cell::Percent(_)) => (key.as_str(), ""),
            _ => (key.as_str(), unit),
        };
        measured.rows.push(vec![Cell::text(name), cell, Cell::text(unit)]);
    }
    let tables = match common.output {
        Format::Table => vec![measured, columns::nodes(&report, &runs.machine)],
        _ => vec![measured],
    };
    Answer { about, tables, notes: Vec::new() }.print(common.output)
}

//! `memtide compare`.

use memtide_policies::default_comparison;
use memtide_sim::{Comparison, Report};

use crate::failure::Failure;
use crate::options::Common;
use crate::output::{self, Cell, Document, Format, Table};
use crate::progress::Progress;
use crate::report::{self, ReportFile};
use crate::runs::{self, RunOptions};
use crate::tables::verdict::verdict;
use crate::tables::{reduction, regions, simulated};

/// Its arguments.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    setting: RunOptions,
    #[command(flatten)]
    common: Common,
    /// Policies, separated by commas [default: each placement and migration]
    #[arg(short, long, value_name = "POLICIES")]
    policies: Vec<String>,
    /// Simulate each policy by itself, slower
    ///
    /// By default, what no policy changes runs once for all of them.
    #[arg(long)]
    exact: bool,
    #[command(flatten)]
    report: ReportFile,
}

/// Runs every policy, on all cores, and prints a row per policy.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let common = arguments.common;
    let policies = match arguments.policies.as_slice() {
        [] => default_comparison(),
        texts => runs::policies(texts)?,
    };
    let runs = arguments.setting.runs(common.seed)?;
    let draft = arguments.report.draft()?;
    let progress = Progress::new("simulating", policies.len());
    let reports = runs.run_each(&policies, &progress, arguments.exact)?;
    drop(progress);
    let names = policies.iter().map(|policy| policy.name().to_owned()).collect();
    let comparison = Comparison::new(&runs.machine, names, reports);
    let mut notes: Vec<String> = simulated::region_note(&comparison.reports).into_iter().collect();
    notes.extend(regions::notes(&comparison.names, &comparison.reports));
    notes.extend(reduction::notes_of_runs(&runs.machine, &comparison.reports));
    let document_as = |format| Document {
        about: runs.about(),
        tables: tables(&comparison, format),
        notes: [verdict(&comparison), notes.clone()].concat(),
        ..Document::default()
    };
    if let Some(draft) = draft {
        draft.write(&report::of_simulation(&runs, &comparison, &document_as(Format::Table)))?;
    }
    let document = document_as(common.output);
    if common.output == Format::Json {
        let mut whole = document.json();
        whole["verdict"] = verdict(&comparison).join(" ").into();
        whole["notes"] = notes.into();
        return output::print(&output::pretty(&whole));
    }
    document.print(common.output)
}

/// One wide table, split into parts in the table format.
fn tables(comparison: &Comparison, format: Format) -> Vec<Table> {
    let mut runs = Table::new("policies", &[("policy", "policy")]);
    let mut nodes = Table::new("nodes", &[("policy", "policy")]);
    let mut links = Table::new("links", &[("policy", "policy")]);
    let speedup = format!("speed-up over {}", comparison.baseline_name());
    let swapped = |report: &Report| report.pages.swapped_out + report.pages.swapped_in;
    let shows_swap = format != Format::Table || comparison.reports.iter().any(|report| swapped(report) > 0);
    for (index, report) in comparison.reports.iter().enumerate() {
        let mut of_run = simulated::of_run(report);
        of_run.insert(1, ("speedup".to_owned(), speedup.clone(), Cell::Real(comparison.speedup(index), 2)));
        if shows_swap {
            let pages = Cell::Whole(swapped(report));
            of_run.push(("swapped_pages".to_owned(), "pages swapped".to_owned(), pages));
        }
        let (of_nodes, of_links) = (simulated::of_nodes(report), simulated::of_links(report));
        for (table, figures) in [(&mut runs, of_run), (&mut nodes, of_nodes), (&mut links, of_links)] {
            let mut row = vec![Cell::text(&comparison.names[index])];
            for (key, title, cell) in figures {
                if index == 0 {
                    table.column(key, title);
                }
                row.push(cell);
            }
            table.rows.push(row);
        }
    }
    let stages = simulated::stages_of_all(&comparison.names, &comparison.reports);
    let sensors = simulated::sensors_of_all(&comparison.names, &comparison.reports);
    match format {
        // A machine without links has no columns for them.
        Format::Table if links.columns.len() == links.keys => vec![runs, stages, nodes, sensors],
        Format::Table => vec![runs, stages, nodes, links, sensors],
        Format::Json => vec![runs.join(nodes).join(links), stages, sensors],
        Format::Csv => vec![runs.join(nodes).join(links)],
    }
}

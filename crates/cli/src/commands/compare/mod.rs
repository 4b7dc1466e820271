//! `memtide compare`.

pub mod several;

use memtide_policies::{Policy, default_comparison};
use memtide_sim::{Comparison, Report};
use serde_json::Value;

use crate::failure::Failure;
use crate::options::Common;
use crate::output::{self, Cell, Document, Format, Table};
use crate::progress::Progress;
use crate::report::{self, Draft, ReportFile};
use crate::runs::{self, RunOptions, Runs};
use crate::tables::verdict::verdict;
use crate::tables::{bound, mix, oracle, reduction, regions, simulated};

/// Its arguments.
#[derive(Debug, clap::Args)]
#[command(mut_arg("machine", |machine| machine.value_name("MACHINES").help(MACHINES)))]
pub struct Arguments {
    #[command(flatten)]
    setting: RunOptions,
    #[command(flatten)]
    common: Common,
    /// Policies, separated by commas
    ///
    /// [default: all but bind, preferred and those of special sensors]
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

const MACHINES: &str = "Bundled machines or machine files, separated by commas";

impl Arguments {
    /// The format of the output.
    pub fn format(&self) -> Format {
        self.common.output
    }

    /// Runs every policy on every machine, on all cores, and writes the report, if requested.
    pub fn compared(&self) -> Result<Vec<Compared>, Failure> {
        let policies = match self.policies.as_slice() {
            [] => default_comparison(),
            texts => runs::policies(texts)?,
        };
        let runs = several::on_each(&self.setting, self.common.seed)?;
        for (runs, policy) in runs.iter().flat_map(|runs| policies.iter().map(move |policy| (runs, policy))) {
            runs.check(policy)?;
        }
        let draft = self.report.draft()?;
        let compared = runs.into_iter().map(|runs| Compared::new(runs, &policies, self.exact));
        let compared = compared.collect::<Result<Vec<_>, _>>()?;
        if let Some(draft) = draft {
            match &compared[..] {
                [one] => one.write(draft)?,
                _ => several::write(&compared, draft)?,
            }
        }
        Ok(compared)
    }
}

/// Prints a row for each policy and machine.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.compared()?[..] {
        [one] => one.print(arguments.format()),
        all => several::print(all, arguments.format()),
    }
}

/// The policies on a machine.
pub struct Compared {
    /// The programs and the machine.
    pub runs: Runs,
    /// Their runs.
    pub comparison: Comparison,
    /// On the bound, regions and the reduction of the machine.
    pub notes: Vec<String>,
}

impl Compared {
    fn new(runs: Runs, policies: &[Policy], exact: bool) -> Result<Compared, Failure> {
        let alone = runs.alone(policies.len(), exact)?;
        let first = policies.len() + 1;
        let oracle_part = first + alone.parts(policies.len());
        let parts = oracle_part + runs::ORACLE_PARTS;
        let progress = Progress::new(&format!("simulating {}", runs.machine.name), parts);
        let (reports, ideal) = runs.run_each(policies, &progress, exact)?;
        let alone_ms = alone.times_ms(policies, &progress, first)?;
        let oracle = match &ideal {
            Ok(ideal) => runs.oracle(&ideal.windows, &progress, oracle_part, exact)?,
            Err(_) => None,
        };
        drop(progress);
        let bounded = ideal.map(|ideal| ideal.bound);
        let names = policies.iter().map(|policy| policy.name().to_owned()).collect();
        let comparison = Comparison::new(&runs.machine, names, reports);
        let priorities = runs.priorities();
        let comparison = Comparison { bound: bounded.ok(), oracle, alone_ms, priorities, ..comparison };
        let mut notes = vec![bound::note(bounded)];
        notes.extend(oracle::note(&comparison));
        notes.extend(regions::notes(&comparison.names, &comparison.reports));
        notes.extend(reduction::notes_of_runs(&runs.machine, &comparison.reports));
        Ok(Compared { runs, comparison, notes })
    }

    /// Notes on the tables of this machine alone.
    fn notes(&self) -> Vec<String> {
        simulated::region_note(&self.comparison.reports).into_iter().chain(self.notes.clone()).collect()
    }

    fn document(&self, format: Format) -> Document {
        Document {
            about: self.runs.about(),
            tables: tables(&self.comparison, format),
            notes: [verdict(&self.comparison), self.notes()].concat(),
            ..Document::default()
        }
    }

    fn json(&self) -> Value {
        let mut whole = self.document(Format::Json).json();
        whole["verdict"] = verdict(&self.comparison).join(" ").into();
        whole["notes"] = self.notes().into();
        whole["bound"] = bound::json(self.comparison.bound);
        whole
    }

    fn write(&self, draft: Draft<'_>) -> Result<(), Failure> {
        let document = self.document(Format::Table);
        draft.write(&report::of_simulation(&self.runs, &self.comparison, &document))
    }

    fn print(&self, format: Format) -> Result<(), Failure> {
        match format {
            Format::Json => output::print(&output::pretty(&self.json())),
            _ => self.document(format).print(format),
        }
    }
}

/// One wide table, split into parts in the table format.
fn tables(comparison: &Comparison, format: Format) -> Vec<Table> {
    let mut runs = Table::new("policies", &[("policy", "policy")]);
    let mut nodes = Table::new("nodes", &[("policy", "policy")]);
    let mut links = Table::new("links", &[("policy", "policy")]);
    let speedup = format!("speed-up over {}", comparison.baseline_name());
    let swaps = |report: &Report| report.pages.swapped_out + report.pages.swapped_in > 0;
    let shows_swap = format != Format::Table || comparison.reports.iter().any(swaps);
    for (index, (name, report)) in comparison.runs().enumerate() {
        let mut of_run = simulated::of_run(report);
        of_run.insert(1, ("speedup".to_owned(), speedup.clone(), Cell::Real(comparison.speedup(index), 2)));
        of_run.insert(2, bound::over(comparison, index));
        of_run.splice(3..3, mix::of_run(comparison, index));
        if format == Format::Csv {
            of_run.extend(mix::of_programs(comparison, index));
        }
        if shows_swap {
            of_run.push(simulated::swapped(report));
        }
        let (of_nodes, of_links) = (simulated::of_nodes(report), simulated::of_links(report));
        for (table, figures) in [(&mut runs, of_run), (&mut nodes, of_nodes), (&mut links, of_links)] {
            let mut row = vec![Cell::text(name)];
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
    let programs = match format {
        Format::Table => mix::copies(comparison),
        Format::Json | Format::Csv => mix::programs(comparison),
    };
    let levels = mix::levels(comparison);
    match format {
        // A machine without links has no columns for them.
        Format::Table if links.columns.len() == links.keys => {
            vec![runs, programs, levels, stages, nodes, sensors]
        }
        Format::Table => vec![runs, programs, levels, stages, nodes, links, sensors],
        Format::Json => vec![runs.join(nodes).join(links), programs, levels, stages, sensors],
        Format::Csv => vec![runs.join(nodes).join(links)],
    }
}

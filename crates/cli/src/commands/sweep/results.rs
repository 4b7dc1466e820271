//! Results of a sweep's runs, and the table of them.

use memtide_lab::Interval;
use memtide_policies::Policy;
use memtide_sim::Report;
use serde::{Deserialize, Serialize};

use super::journal::Known;
use super::plan::{Plan, Run};
use crate::failure::Failure;
use crate::output::{Cell, Format, Table};
use crate::tables::reduction::Load;
use crate::tables::regions;
use crate::tables::simulated::{self, Figure, SWAPPED};
use crate::tables::verdict::without_occasion;

/// Columns of the figures of every run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Columns {
    /// Key and title of each.
    pub titles: Vec<(String, String)>,
    /// How many of them, at the start, are not of nodes and links.
    pub of_run: usize,
}

/// What a run gave.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Its figures.
    Figures {
        cells: Vec<Cell>,
        /// Whether they are of a region of interest.
        marked: bool,
        load: Load,
        notes: Notes,
    },
    /// Why it has none.
    Failure(String),
}

/// What is to say about a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Notes {
    /// That its policy had no occasion to migrate.
    pub idle_migration: Option<String>,
    /// That programs ended before the region of interest.
    pub ended_before: Option<String>,
}

impl Notes {
    fn of(policy: &str, report: &Report) -> Notes {
        let idle = || without_occasion(&[policy.to_owned()], std::slice::from_ref(report)).pop();
        let idle_migration = if report.nodes.len() > 1 { idle() } else { None };
        Notes { idle_migration, ended_before: regions::ended_before(report) }
    }
}

/// Key of the figure that charts and knees are of.
const TIME: &str = "time_ms";

impl Outcome {
    /// Of a run's report, with the columns of its figures; of a run that failed by its own, the reason.
    pub fn of(policy: &str, run: Result<Report, Failure>) -> Result<(Option<Columns>, Outcome), Failure> {
        let report = match run {
            Ok(report) => report,
            Err(Failure::Run(why)) => return Ok((None, Outcome::Failure(why))),
            Err(other) => return Err(other),
        };
        let mut figures = simulated::of_run(&report);
        figures.push(simulated::swapped(&report));
        let of_run = figures.len();
        figures.extend(simulated::of_nodes(&report));
        figures.extend(simulated::of_links(&report));
        let (titles, cells) =
            figures.into_iter().map(|(key, title, cell): Figure| ((key, title), cell)).unzip();
        let notes = Notes::of(policy, &report);
        let outcome = Outcome::Figures { cells, marked: report.marked, load: Load::from(&report), notes };
        Ok((Some(Columns { titles, of_run }), outcome))
    }

    /// Whether it has a figure for each column.
    pub fn fits(&self, columns: Option<&Columns>) -> bool {
        match self {
            Outcome::Figures { cells, .. } => {
                columns.is_some_and(|columns| columns.titles.len() == cells.len())
            }
            Outcome::Failure(_) => true,
        }
    }

    fn cells(&self) -> Option<&[Cell]> {
        match self {
            Outcome::Figures { cells, .. } => Some(cells),
            Outcome::Failure(_) => None,
        }
    }

    /// What it asked of the machine.
    pub fn load(&self) -> Option<&Load> {
        match self {
            Outcome::Figures { load, .. } => Some(load),
            Outcome::Failure(_) => None,
        }
    }

    /// What is to say about it.
    pub fn notes(&self) -> Option<&Notes> {
        match self {
            Outcome::Figures { notes, .. } => Some(notes),
            Outcome::Failure(_) => None,
        }
    }

    /// Whether its figures are of a region of interest.
    pub fn is_marked(&self) -> bool {
        matches!(self, Outcome::Figures { marked: true, .. })
    }

    /// Its failure.
    pub fn failure(&self) -> Option<&str> {
        match self {
            Outcome::Figures { .. } => None,
            Outcome::Failure(why) => Some(why),
        }
    }
}

/// Runs that differ in their seeds alone.
pub struct Group<'a> {
    /// The first of them.
    pub run: Run<'a>,
    outcomes: Vec<&'a Outcome>,
}

impl Group<'_> {
    /// Mean and interval of a numeric figure over the runs that have it.
    pub fn interval(&self, column: usize) -> Option<Interval> {
        let numbers: Vec<f64> = self.cells(column).filter_map(Cell::number).collect();
        (!numbers.is_empty()).then(|| Interval::of(&numbers))
    }

    /// Whether a figure is a share, printed as per cent.
    pub fn is_share(&self, column: usize) -> bool {
        self.cells(column).any(|cell| matches!(cell, Cell::Percent(_)))
    }

    fn cells(&self, column: usize) -> impl Iterator<Item = &Cell> {
        self.outcomes.iter().filter_map(move |outcome| outcome.cells()).map(move |cells| &cells[column])
    }

    /// The mean, printed as the figures are.
    fn mean(&self, column: usize) -> Cell {
        let several = self.outcomes.len() > 1;
        match (self.cells(column).find(|cell| !cell.is_blank()), self.interval(column)) {
            (Some(Cell::Percent(_)), Some(over)) => Cell::Percent(over.mean),
            (Some(Cell::Real(_, digits)), Some(over)) => Cell::Real(over.mean, *digits),
            (Some(_), Some(over)) if several => Cell::Real(over.mean, 1),
            (cell, _) => cell.cloned().unwrap_or(Cell::Absent),
        }
    }
}

/// The runs that have ended, in groups.
pub fn groups<'a>(plan: &'a Plan, known: &'a Known) -> Vec<Group<'a>> {
    let seeds = plan.seeds.len();
    let group = |index: usize| {
        let numbers = index * seeds..(index + 1) * seeds;
        let outcomes: Vec<&Outcome> =
            known.outcomes.range(numbers.clone()).map(|(_, outcome)| outcome).collect();
        (!outcomes.is_empty()).then(|| Group { run: plan.run(numbers.start), outcomes })
    };
    (0..plan.runs() / seeds).filter_map(group).collect()
}

impl Known {
    /// Number of the column of the run's time.
    pub fn time(&self) -> Option<usize> {
        self.columns.as_ref()?.titles.iter().position(|(key, _)| key == TIME)
    }
}

/// Notes on the runs: for each policy the first that had no occasion to migrate, and how many more had none.
pub fn notes(plan: &Plan, known: &Known) -> Vec<String> {
    let of_runs = || known.outcomes.iter().filter_map(|(number, outcome)| Some((*number, outcome.notes()?)));
    let of_policy = |policy: &Policy| {
        let idle = |(number, notes): (usize, &Notes)| {
            let is_of = plan.run(number).policy.name() == policy.name();
            is_of.then(|| Some((number, notes.idle_migration.clone()?)))?
        };
        let mut idle = of_runs().filter_map(idle);
        let (number, note) = idle.next()?;
        let more = match idle.count() {
            0 => String::new(),
            1 => " The same for 1 more run of this policy.".to_owned(),
            more => format!(" The same for {more} more runs of this policy."),
        };
        Some(format!("{}: {note}{more}", plan.describe(number)))
    };
    let mut notes: Vec<String> = plan.policies.iter().filter_map(of_policy).collect();
    notes.extend(of_runs().find_map(|(_, notes)| notes.ended_before.clone()));
    notes
}

/// A row per run; in the table format, per group, without figures of nodes and links.
pub fn points(plan: &Plan, known: &Known, format: Format) -> Table {
    match format {
        Format::Table => of_groups(plan, known),
        _ => of_runs(plan, known),
    }
}

fn of_groups(plan: &Plan, known: &Known) -> Table {
    let mut table = keyed(plan, false);
    let titles = known.columns.as_ref().map_or(&[][..], |columns| &columns.titles[..columns.of_run]);
    let several = plan.seeds.len() > 1;
    let groups = groups(plan, known);
    let swaps =
        |column: usize| groups.iter().filter_map(|group| group.interval(column)).any(|of| of.mean > 0.0);
    let shown: Vec<(usize, &(String, String))> =
        titles.iter().enumerate().filter(|(column, (key, _))| key != SWAPPED || swaps(*column)).collect();
    for (_, (key, title)) in &shown {
        table.column(key, title);
        if several && key == TIME {
            table.column("from_ms", "from, ms");
            table.column("to_ms", "to, ms");
        }
    }
    for group in &groups {
        let mut row = plan.keys(group.run);
        for &(column, (key, _)) in &shown {
            let mean = group.mean(column);
            let ends = group.interval(column).map(|over| [over.low, over.high]);
            row.push(mean);
            if several && key == TIME {
                row.extend(
                    ends.map_or([Cell::Absent, Cell::Absent], |ends| ends.map(|ms| Cell::Real(ms, 3))),
                );
            }
        }
        table.rows.push(row);
    }
    table
}

fn of_runs(plan: &Plan, known: &Known) -> Table {
    let mut table = keyed(plan, true);
    let titles = known.columns.as_ref().map_or(&[][..], |columns| &columns.titles);
    titles.iter().for_each(|(key, title)| table.column(key, title));
    table.column("failure", "failure");
    for (&number, outcome) in &known.outcomes {
        let run = plan.run(number);
        let mut row = plan.keys(run);
        row.push(Cell::Whole(run.seed));
        let figures = outcome.cells().map(<[Cell]>::to_vec);
        row.extend(figures.unwrap_or_else(|| vec![Cell::Absent; titles.len()]));
        row.push(outcome.failure().map_or(Cell::Absent, Cell::text));
        table.rows.push(row);
    }
    table
}

/// A table with the columns of a run's keys.
fn keyed(plan: &Plan, with_seed: bool) -> Table {
    let mut columns = plan.key_columns();
    if with_seed {
        columns.push(("seed".to_owned(), "seed".to_owned()));
    }
    let columns: Vec<(&str, &str)> =
        columns.iter().map(|(key, title)| (key.as_str(), title.as_str())).collect();
    Table::new("points", &columns).with_keys(columns.len())
}

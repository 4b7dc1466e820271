//! `memtide sweep`.

use memtide_core::machine::Setting;
use memtide_policies::Policy;
use memtide_sim::Report;

use crate::failure::Failure;
use crate::options::{Common, Overrides, Settings};
use crate::output::{Cell, Document, Format, Table};
use crate::parallel;
use crate::progress::Progress;
use crate::runs::{self, RunOptions, Runs};
use crate::tables::{reduction, simulated};

/// Its arguments.
#[derive(Debug, clap::Args)]
#[command(mut_arg("set", |set| set.value_name("FIGURE=VALUES").help(SET).long_help(SET_LONG).required(true)))]
pub struct Arguments {
    #[command(flatten)]
    options: RunOptions,
    #[command(flatten)]
    common: Common,
    /// Policies, separated by commas
    #[arg(short, long, value_name = "POLICIES", default_value = "local")]
    policies: Vec<String>,
    /// Values of a range A..B
    #[arg(long, value_name = "N", default_value_t = 10,
        value_parser = clap::value_parser!(u16).range(2..=1000))]
    points: u16,
}

const SET: &str = "Values of a figure of the machine file; repeatable";
const SET_LONG: &str = "Values of a figure of the machine file; repeatable\n\n\
    A list A,B,C or a range A..B; of several figures, every combination.\n\n\
    FIGURE is its path in `machine show`; its unit may be left out.\n\n\
    A value: such as 4096, 4GiB, or 50% of the file's.";

/// Maximum number of runs: a day of runs of a second.
const RUNS_MAX: usize = 100_000;

/// A time up to this many times the shortest counts as good as it.
const AS_GOOD: f64 = 1.05;

/// A combination of values, and its runs.
struct Point {
    /// The values of the swept figures, as given.
    values: Vec<String>,
    runs: Runs,
}

/// Simulates every combination of values under every policy, on all cores, and prints a row for each.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let policies = runs::policies(&arguments.policies)?;
    let (fixed, swept) = axes(arguments)?;
    let combinations = swept.iter().map(Vec::len).fold(policies.len(), usize::saturating_mul);
    if combinations > RUNS_MAX {
        let message = format!("--set stands for {combinations} runs; at most {RUNS_MAX} in one sweep");
        return Err(Failure::Usage(message));
    }
    let runs =
        |set| arguments.options.runs_with(&with(&arguments.options.overrides, set), arguments.common.seed);
    let base = runs(fixed.clone())?;
    let point = |set: Vec<Setting>| -> Result<Point, Failure> {
        let values = set.iter().map(|setting| setting.value().to_owned()).collect();
        Ok(Point { values, runs: runs([&fixed[..], &set].concat())? })
    };
    let points = product(&swept).into_iter().map(point).collect::<Result<Vec<_>, _>>()?;
    let jobs: Vec<(&Point, &Policy)> =
        points.iter().flat_map(|point| policies.iter().map(move |policy| (point, policy))).collect();
    let progress = Progress::new("simulating", jobs.len());
    let reports = parallel::map(&jobs, |index, (point, policy)| point.runs.run(policy, &progress, index));
    drop(progress);
    let reports = reports.into_iter().collect::<Result<Vec<Report>, Failure>>()?;

    let paths: Vec<&str> = swept.iter().map(|settings| settings[0].path()).collect();
    let rows = table(&paths, &jobs, &reports, arguments.common.output);
    let marked = reports.iter().any(|report| report.marked);
    let mut notes: Vec<String> =
        marked.then(|| "Figures are of the region of interest.".to_owned()).into_iter().collect();
    notes.extend(reduction::notes_of_runs(&base.machine, &reports));
    let mut tables = vec![rows];
    if let [path] = paths[..] {
        notes.push(format!(
            "Good from: the first value from which on the time is within {:.0} % of the policy's shortest.",
            (AS_GOOD - 1.0) * 100.0
        ));
        tables.push(knees(path, &policies, &points, &reports));
    }
    let document = Document { about: base.about(), tables, main: "points", notes };
    document.print(arguments.common.output)
}

/// Settings of one value, and the values of each figure with several.
fn axes(arguments: &Arguments) -> Result<(Vec<Setting>, Vec<Vec<Setting>>), Failure> {
    let set = &arguments.options.overrides.settings.set;
    let values = set.iter().map(|setting| setting.values(arguments.points.into()));
    let values = values.collect::<Result<Vec<_>, _>>();
    let values = values.map_err(|error| Failure::Usage(format!("--set {error}")))?;
    let (swept, fixed): (Vec<_>, Vec<_>) = values.into_iter().partition(|values| values.len() > 1);
    if swept.is_empty() {
        let message =
            "--set: a sweep needs a list or a range of values, such as node.dram.capacity=10%..100%";
        return Err(Failure::Usage(message.to_owned()));
    }
    Ok((fixed.concat(), swept))
}

fn with(overrides: &Overrides, set: Vec<Setting>) -> Overrides {
    Overrides { settings: Settings { set }, ..overrides.clone() }
}

/// Every combination of a value of each figure; those of the last figure change fastest.
fn product(swept: &[Vec<Setting>]) -> Vec<Vec<Setting>> {
    swept.iter().fold(vec![Vec::new()], |combinations, values| {
        let longer = |before: Vec<Setting>| {
            values.iter().map(move |value| [&before[..], std::slice::from_ref(value)].concat())
        };
        combinations.into_iter().flat_map(longer).collect()
    })
}

/// A row per combination and policy.
fn table(paths: &[&str], jobs: &[(&Point, &Policy)], reports: &[Report], format: Format) -> Table {
    let keys: Vec<_> = paths.iter().map(|path| (*path, *path)).chain([("policy", "policy")]).collect();
    let mut table = Table::new("points", &keys).with_keys(keys.len());
    for ((point, policy), report) in jobs.iter().zip(reports) {
        let mut figures = simulated::of_run(report);
        if format != Format::Table {
            figures.extend(simulated::of_nodes(report));
            figures.extend(simulated::of_links(report));
        }
        if table.rows.is_empty() {
            figures.iter().for_each(|(key, title, _)| table.column(key, title));
        }
        let names = point.values.iter().map(Cell::text).chain([Cell::text(policy.name())]);
        table.rows.push(names.chain(figures.into_iter().map(|(.., cell)| cell)).collect());
    }
    table
}

/// From which value on each policy's time is as good as its shortest.
fn knees(path: &str, policies: &[Policy], points: &[Point], reports: &[Report]) -> Table {
    let columns = [
        ("policy", "policy"),
        ("shortest_ms", "shortest, ms"),
        ("good_from", &format!("{path}, good from")),
        ("good_ms", "time there, ms"),
    ];
    let mut table = Table::new("knees", &columns);
    for (index, policy) in policies.iter().enumerate() {
        let times_ms: Vec<f64> =
            reports.iter().skip(index).step_by(policies.len()).map(|report| report.time_ms).collect();
        let shortest_ms = times_ms.iter().copied().fold(f64::INFINITY, f64::min);
        let good = knee(&times_ms);
        table.rows.push(vec![
            Cell::text(policy.name()),
            Cell::Real(shortest_ms, 3),
            good.map_or(Cell::Absent, |good| Cell::text(&points[good].values[0])),
            good.map_or(Cell::Absent, |good| Cell::Real(times_ms[good], 3)),
        ]);
    }
    table
}

/// Index of the first time from which on all are as good as the shortest, if the last is.
fn knee(times: &[f64]) -> Option<usize> {
    let shortest = times.iter().copied().fold(f64::INFINITY, f64::min);
    let good_at_end = times.iter().rev().take_while(|&&time| time <= AS_GOOD * shortest).count();
    (good_at_end > 0).then(|| times.len() - good_at_end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knee_is_first_of_the_good_times_at_the_end() {
        assert_eq!(knee(&[9.0, 5.0, 4.1, 4.0, 4.2]), Some(2));
        assert_eq!(knee(&[4.0, 9.0, 4.1]), Some(2));
        assert_eq!(knee(&[4.0, 4.0]), Some(0));
        assert_eq!(knee(&[4.0, 9.0]), None, "grows worse");
    }

    #[test]
    fn combinations_change_their_last_figure_fastest() {
        let values = |text: &str| text.parse::<Setting>().unwrap().values(2).unwrap();
        let all = product(&[values("a.x=1,2"), values("a.y=3..5")]);
        let text = |set: &Vec<Setting>| set.iter().map(Setting::value).collect::<Vec<_>>().join(" ");
        assert_eq!(all.iter().map(text).collect::<Vec<_>>(), ["1 3", "1 5", "2 3", "2 5"]);
    }
}

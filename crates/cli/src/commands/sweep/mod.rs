//! `memtide sweep`.

mod charts;
mod file;
mod journal;
mod knees;
mod plan;
mod results;
mod shard;

use std::path::Path;

use memtide_core::machine::Setting;
use memtide_lab::LEAST_FOR_T;
use serde_json::{Value, json};

use self::file::ResultsFile;
use self::journal::Known;
use self::plan::{Plan, Settings};
use self::results::Outcome;
use self::shard::Shard;
use crate::failure::Failure;
use crate::options::{Common, Overrides};
use crate::output::{self, Cell, Document, Format};
use crate::progress::Progress;
use crate::report::ReportFile;
use crate::runs::{self, RunOptions, Runs};
use crate::tables::reduction::{self, Load};
use crate::{machines, options, parallel};

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
    /// Values of a range A..B [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=1000))]
    points: Option<u16>,
    /// Runs of each point, with seeds from --seed on
    ///
    /// Tables have means, and intervals of the time.
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=1000))]
    seeds: u16,
    #[command(flatten)]
    out: ResultsFile,
    /// Run part I of N of the runs only
    ///
    /// For job arrays: the part that ends last writes FILE.
    #[arg(long, value_name = "I/N", requires = "out", default_value = "1/1", hide_default_value = true)]
    shard: Shard,
    #[command(flatten)]
    report: ReportFile,
}

const SET: &str = "Values of a figure of the machine file; repeatable";
const SET_LONG: &str = "Values of a figure of the machine file; repeatable\n\n\
    A list A,B,C or a range A..B; of several figures, every combination.\n\n\
    Values that are equal in other units count once.\n\n\
    FIGURE is its path in `machine show`; its unit may be left out.\n\n\
    A value: such as 4096, 4GiB, or 50% of the file's.";

/// Failed runs that are listed.
const FAILURES_SHOWN: usize = 5;

/// Simulates every combination of values under every policy, on all cores, and prints a row for each.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let Arguments { options, common, .. } = arguments;
    if options.machine.contains(',') && !Path::new(&options.machine).exists() {
        let message = format!("--machine {}: a sweep takes one; `compare` takes several", options.machine);
        return Err(Failure::Usage(message));
    }
    arguments.report.check_differs("--out", arguments.out.path())?;
    let set = &options.overrides.settings.set;
    let settings = Settings::new(set, arguments.points)?;
    let fixed = Overrides {
        settings: options::Settings { set: settings.fixed.clone() },
        ..options.overrides.clone()
    };
    let base = options.runs_with(&fixed, common.seed)?;
    let policies = runs::policies(&arguments.policies)?;
    policies.iter().try_for_each(|policy| base.check(policy).map(drop))?;
    let machine = |set: &[Setting]| {
        let settings = options::Settings { set: [&settings.fixed[..], set].concat() };
        machines::load_at(&options.machine, &Overrides { settings, ..options.overrides.clone() })
    };
    let seeds = (0..u64::from(arguments.seeds)).map(|index| common.seed.wrapping_add(index)).collect();
    let plan = Plan::new(&settings, policies, seeds, machine)?;
    drop(arguments.report.draft()?);
    let sweep = identity(&base, &plan)?;
    if arguments.out.is_complete(arguments.shard, &sweep) {
        return complete(arguments, &base, &plan);
    }
    // First, so that a refused sweep leaves no journal.
    let mut known = arguments.out.known(&sweep, plan.runs())?;
    let journal = arguments.out.journal(arguments.shard, &sweep)?;

    let to_run: Vec<usize> = (0..plan.runs())
        .filter(|run| arguments.shard.has(*run) && !known.outcomes.contains_key(run))
        .collect();
    let progress = Progress::new("simulating", to_run.len());
    let ended = parallel::map(&to_run, |index, &number| {
        let run = plan.run(number);
        let runs = base.with(machine(&plan.points[run.point].set)?, run.seed);
        let (columns, outcome) = Outcome::of(run.policy.name(), runs.run(run.policy, &progress, index))?;
        if let Some(journal) = &journal {
            journal.add(number, columns.as_ref(), &outcome)?;
        }
        Ok((number, columns, outcome))
    });
    drop(progress);
    let mut failure = None;
    for result in ended {
        match result {
            Ok((number, columns, outcome)) => {
                known.columns = known.columns.or(columns);
                known.outcomes.insert(number, outcome);
            }
            Err(why) => failure = failure.or(Some(why)),
        }
    }
    match (failure, &journal) {
        (Some(Failure::Interrupted), Some(journal)) => {
            return Err(Failure::Paused(format!(
                "interrupted; {} of {} runs are in {}; the same command does the rest",
                known.outcomes.len(),
                plan.runs(),
                journal.path().display()
            )));
        }
        (Some(failure), _) => return Err(failure),
        (None, _) => {}
    }
    finish(arguments, &base, &plan, known)
}

/// Says that other shards have written all results.
fn complete(arguments: &Arguments, base: &Runs, plan: &Plan) -> Result<(), Failure> {
    let path = arguments.out.path().map(|path| path.display().to_string()).unwrap_or_default();
    let note = format!("All results are in {path}; other parts have done the runs.");
    if arguments.common.output != Format::Table {
        output::print_to_stderr(&format!("{note}\n"));
    }
    let mut about = base.about();
    about.retain(|(key, _)| !plan.sweeps(key));
    Document { about, notes: vec![note], ..Document::default() }.print(arguments.common.output)
}

/// Writes and prints the results.
fn finish(arguments: &Arguments, base: &Runs, plan: &Plan, mut known: Known) -> Result<(), Failure> {
    let format = arguments.common.output;
    if arguments.out.path().is_some() {
        // Other shards have gone on in the meantime.
        let all = arguments.out.known(&identity(base, plan)?, plan.runs())?;
        known.columns = known.columns.or(all.columns);
        known.outcomes.extend(all.outcomes);
    }
    let failures: Vec<(usize, &str)> =
        known.outcomes.iter().filter_map(|(number, outcome)| Some((*number, outcome.failure()?))).collect();
    if let [(number, why), ..] = failures[..]
        && failures.len() == known.outcomes.len()
    {
        return Err(Failure::Run(format!("{}: {why}", plan.describe(number))));
    }
    let is_complete = known.outcomes.len() == plan.runs();
    if is_complete && !arguments.out.path().is_some_and(Path::exists) {
        let results = document(base, plan, &known, Format::Csv);
        arguments.out.write(&results, arguments.shard, &identity(base, plan)?)?;
    }
    let mut shown = document(base, plan, &known, format);
    shown.notes.extend(failed(plan, &failures));
    if let Some(path) = arguments.out.path() {
        let path = path.display();
        shown.notes.push(match plan.runs() - known.outcomes.len() {
            0 => format!("All results are in {path}."),
            _ if arguments.out.path().is_some_and(Path::exists) => format!("All results are in {path}."),
            1 => format!("1 run of another part is missing; {path} follows with it."),
            missing => format!("{missing} runs of other parts are missing; {path} follows with the last."),
        });
    }
    if let Some(draft) = arguments.report.draft()? {
        draft.write(&charts::page(base, plan, &known, &document(base, plan, &known, Format::Table)))?;
    }
    shown.print(format)?;
    match failures.len() {
        0 => Ok(()),
        failed => Err(Failure::Run(format!("{failed} of {} runs failed", plan.runs()))),
    }
}

/// Everything but notes on how the command went.
fn document(base: &Runs, plan: &Plan, known: &Known, format: Format) -> Document {
    let mut about: Vec<_> = base.about();
    // Rows for programs have their own.
    about.retain(|(key, _)| !plan.sweeps(key) && (*key != "seed" || format == Format::Json));
    if format == Format::Table {
        let seeds = [plan.seeds.first(), plan.seeds.last()].map(|seed| seed.copied().unwrap_or_default());
        about.push(match seeds {
            [first, last] if first == last => ("seed", Cell::Whole(first)),
            [first, last] => ("seeds", Cell::text(format!("{first} to {last}"))),
        });
    }
    let loads = known.outcomes.values().filter_map(Outcome::load).cloned();
    let mut notes = results::notes(plan, known);
    if known.outcomes.values().any(Outcome::is_marked) {
        notes.push("Figures are of the region of interest.".to_owned());
    }
    // They are of one slice and scale.
    if !["slice", "scale"].iter().any(|figure| plan.sweeps(figure)) {
        notes.extend(reduction::notes_of_load(&base.machine, &Load::greatest(loads)));
    }
    if plan.seeds.len() > 1 {
        notes.push(intervals(plan.seeds.len()).to_owned());
    }
    let mut tables = vec![results::points(plan, known, format)];
    if let Some(table) = knees::knees(plan, known)
        && known.outcomes.len() == plan.runs()
    {
        tables.push(table);
        notes.push(knees::note(plan));
    }
    Document { about, tables, main: "points", notes }
}

/// What intervals over this many seeds are.
fn intervals(seeds: usize) -> &'static str {
    match seeds < LEAST_FOR_T {
        true => "Means over the seeds; from, to: their minimum and maximum.",
        false => "Means over the seeds; from, to: 95 % confidence interval of the mean (Student's t).",
    }
}

/// Notes on failed runs.
fn failed(plan: &Plan, failures: &[(usize, &str)]) -> Vec<String> {
    let shown = failures.iter().take(FAILURES_SHOWN);
    let mut notes: Vec<String> =
        shown.map(|(number, why)| format!("{}: {why}", plan.describe(*number))).collect();
    if failures.len() > FAILURES_SHOWN {
        notes.push(format!("{} more runs failed.", failures.len() - FAILURES_SHOWN));
    }
    notes
}

/// What must be the same for results to be of one sweep.
fn identity(base: &Runs, plan: &Plan) -> Result<Value, Failure> {
    let about: serde_json::Map<String, Value> =
        base.about().into_iter().map(|(key, cell)| (key.to_owned(), cell.json())).collect();
    let values: Vec<String> =
        plan.points.iter().flat_map(|point| &point.set).map(Setting::to_string).collect();
    let policies: Vec<&str> = plan.policies.iter().map(|policy| policy.name()).collect();
    let machine = serde_json::to_value(&base.machine).map_err(|error| Failure::Run(error.to_string()))?;
    let mut identity = json!({
        "machine_file": machine,
        "traces": base.traces()?,
        "values": values,
        "policies": policies,
        "seeds": plan.seeds,
    });
    identity.as_object_mut().expect("an object").extend(about);
    Ok(identity)
}

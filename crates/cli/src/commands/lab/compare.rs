//! `memtide lab compare`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ValueHint, builder::RangedU64ValueParser};
use memtide_core::Machine;
use memtide_daemon::TIME_SCALE_MAX;
use memtide_lab::{
    Comparison, LabError, Policies, RegionOfInterest, SUBJECTS, Step, Subject, TimeScale, results_folder,
};

use super::{figures, guest, memory, region_options, rows};
use crate::failure::Failure;
use crate::options::Common;
use crate::report::{self, ReportFile};
use crate::{advice, interrupt};

/// Its arguments.
#[derive(Debug, clap::Args)]
#[command(after_long_help = subjects_help())]
pub struct Arguments {
    #[command(flatten)]
    guest: guest::GuestOptions,
    #[command(flatten)]
    memory: memory::MemoryOptions,
    #[command(flatten)]
    region_options: region_options::RegionOptions,
    /// Subjects, separated by commas; the first is the baseline
    #[arg(long, required = true, value_name = "SUBJECTS")]
    subjects: Vec<String>,
    /// Runs per subject, each with another memory layout
    ///
    /// Each run has other addresses, order of free memory and seeds.
    ///
    /// Prints the mean and an interval.
    #[arg(long, default_value_t = 1, value_name = "K",
        value_parser = RangedU64ValueParser::<u32>::new().range(1..=1000))]
    layouts: u32,
    /// Divide the subjects' times and limits per interval by S
    ///
    /// A program is through with 1/S of the memory in 1/S of the time.
    ///
    /// The kernel and daemons act too slowly for it at their own times.
    ///
    /// Divided: khugepaged, NUMA balancing, damo, memtide's daemon.
    #[arg(long, default_value_t = 1, value_name = "S",
        value_parser = RangedU64ValueParser::<u32>::new().range(1..=TIME_SCALE_MAX.into()))]
    time_scale: u32,
    /// Folder with results of finished runs, which are not run again
    ///
    /// [default: memtide/lab/results in the cache folder]
    #[arg(long, visible_alias = "resume", value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    results: Option<PathBuf>,
    #[command(flatten)]
    report: ReportFile,
    /// Program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM", value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
    #[command(flatten)]
    common: Common,
}

fn subjects_help() -> String {
    let width = SUBJECTS.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines: Vec<String> =
        SUBJECTS.iter().map(|(name, what)| format!("\n  {name:width$}  {what}")).collect();
    format!("Subjects:{}\n\n{}", lines.concat(), crate::failure::EXIT_CODES)
}

/// Runs every subject in a virtual machine of its own and prints a row for each.
pub fn run(arguments: Arguments) -> Result<(), Failure> {
    let common = arguments.common;
    let subjects =
        arguments.subjects.iter().map(|list| Subject::parse_list(list)).collect::<Result<Vec<_>, _>>();
    let subjects = subjects.map_err(|error| Failure::Usage(advice::lab::message(&error)))?.concat();
    refuse_equal(&subjects)?;
    let draft = arguments.report.draft()?;
    let (options, tools) = arguments.guest.options(arguments.command, common.seed).map_err(failure)?;
    subjects
        .iter()
        .filter_map(Subject::policies)
        .try_for_each(|policies| check(policies, &options.machine, arguments.time_scale))?;
    let results = arguments.results.map_or_else(results_folder, Ok).map_err(guest::failure)?;
    let comparison = Comparison {
        options: arguments.memory.of(arguments.region_options.of(options)),
        subjects,
        layouts: arguments.layouts,
        time_scale: TimeScale::new(arguments.time_scale),
        results: results.clone(),
    };
    let region = comparison.options.region;
    let mut done = 0;
    let mut report_step = |step: &Step| {
        done = step.done;
        message!("memtide: {}", progress(step, region));
    };
    let compared =
        comparison.run(&tools, &mut report_step, &interrupt::requested).map_err(|error| match error {
            LabError::Interrupted => Failure::Paused(format!(
                "interrupted; {done} of {} runs are kept in {}; run the same command to resume",
                comparison.subjects.len() * comparison.layouts as usize,
                results.display()
            )),
            other => failure(guest::failure(other)),
        })?;
    let document = rows::document(&comparison, &compared, common);
    if let Some(draft) = draft {
        let options = &comparison.options;
        let runs = rows::lab_runs(&comparison, &compared);
        draft.write(&report::of_lab(&guest::line(&options.command), &options.machine, &runs, &document))?;
    }
    document.print(common.output)
}

fn refuse_equal(subjects: &[Subject]) -> Result<(), Failure> {
    let is_equal = |(index, subject): &(usize, &Subject)| {
        subjects[..*index].iter().any(|other| other.name() == subject.name())
    };
    match subjects.iter().enumerate().find(is_equal) {
        Some((_, twice)) => {
            Err(Failure::Usage(format!("subject '{}' is named twice; name it once", twice.name())))
        }
        None => Ok(()),
    }
}

/// Refuses unavailable policies before boot.
fn check(policies: &Policies, machine: &Machine, time_scale: u32) -> Result<(), Failure> {
    let text = |migration| format!("{}+{migration}", policies.placement);
    memtide_policies::parse(&text("none")).map_err(|error| Failure::Usage(error.to_string()))?;
    let Some(migration) = &policies.migration else { return Ok(()) };
    memtide_daemon::migration(migration, machine).map(drop).map_err(|error| advice::on_policy(&error))?;
    match memtide_policies::at_time_scale(migration, time_scale) {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::Usage(format!("--time-scale {time_scale}: {error}"))),
    }
}

fn progress(step: &Step, region: RegionOfInterest) -> String {
    let (name, done, of) = (step.subject.name(), step.done, step.of);
    let guest_ms = figures::guest_ns(step.outcome, region) / 1e6;
    match step.took {
        Some(took) => {
            let left = match of - done {
                0 => String::new(),
                left => format!("; about {:.0} s left", took.as_secs_f64() * left as f64),
            };
            format!(
                "{done} of {of}: {name}, {guest_ms:.1} ms in the guest, {:.1} s here{left}",
                took.as_secs_f64()
            )
        }
        None => format!("{done} of {of}: {name}, {guest_ms:.1} ms in the guest, result of an earlier run"),
    }
}

/// The program's exit status is not passed on: a program that cannot run is a failed run.
fn failure(failure: Failure) -> Failure {
    match failure {
        Failure::NotRun(message) | Failure::NotFound(message) | Failure::NotExecutable(message) => {
            Failure::Run(message)
        }
        other => other,
    }
}

//! `memtide validate`.
//!
//! Measures this system, makes its machine file from nothing else, and runs workloads natively and on the
//! machine. No figure of the machine comes from a workload.

mod parts;
mod tables;

use std::fs;
use std::path::{Path, PathBuf};

use clap::ValueHint;
use memtide_core::Machine;
use memtide_core::params::split_name;
use memtide_linux::measure::{RegionFigures, in_base_pages};
use memtide_linux::topology::{MeasuredFile, System};
use memtide_sim::Report;
use memtide_workloads::{Pace, Params};

use crate::failure::Failure;
use crate::options::Common;
use crate::output::pretty;
use crate::progress::Progress;
use crate::report::{ReportFile, ValidatedRun, of_validation};
use crate::runs::{self, Runs};
use crate::{interrupt, memory_guard};

use super::measure::{self, doubts};
use parts::Cause;

/// Its arguments.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Folder for the figures, the machine file and the report
    #[arg(long, value_name = "DIR", default_value = "validation", value_hint = ValueHint::DirPath)]
    out: PathBuf,
    /// Native runs per workload; the median counts
    #[arg(long, value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Memory per workload, in MiB
    ///
    /// [default: 256 or 4 x last cache; less if less is free]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(8..=1_048_576))]
    size: Option<u32>,
    #[command(flatten)]
    common: Common,
}

/// Deviation from the native time up to which the model counts as right.
const RIGHT: f64 = 0.25;

/// Number of workloads.
const WORKLOADS: usize = 8;

/// Accesses of the random workloads per MiB: one for each line.
const LINES_PER_MIB: u64 = 16_384;

/// A workload, run natively and simulated.
pub struct Outcome {
    /// `NAME[:KEY=VALUE,..]`.
    pub workload: String,
    /// The native run with the median time.
    pub native: RegionFigures,
    /// Range of the native times over the median; `None` for a single run.
    pub spread: Option<f64>,
    /// The simulated run.
    pub simulated: Report,
    /// The modelled part that the deviation points to, if there is a deviation and a part.
    pub cause: Option<Cause>,
}

impl Outcome {
    /// Native time of the region, in ms.
    pub fn native_ms(&self) -> f64 {
        self.native.region.as_secs_f64() * 1e3
    }

    /// Simulated over native time.
    pub fn ratio(&self) -> f64 {
        self.simulated.time_ms / self.native_ms()
    }

    /// Name of the workload.
    pub fn name(&self) -> &str {
        split_name(&self.workload).0
    }
}

/// Measures, runs and simulates, and prints both sides.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let unwritable = |path: &Path, error| Failure::unwritable(path.display(), &error);
    let out = &arguments.out;
    fs::create_dir_all(out).map_err(|error| unwritable(out, error))?;
    let report = ReportFile::at(out.join("report.html"));
    keep_foreign_files(out)?;
    let draft = report.draft()?;
    let write = |name: &str, text: &str| {
        let path = out.join(name);
        fs::write(&path, text).map_err(|error| unwritable(&path, error))
    };
    memory_guard::start();
    let (machine, doubts) = machine(arguments, &write)?;
    let mut outcomes = Vec::new();
    let ended = workloads(arguments, &machine, |outcome| {
        outcomes.push(outcome);
        let document = tables::document(&outcomes, &machine, arguments.common.seed, &doubts);
        write("figures.json", &pretty(&document.json()))
    });
    let ended = ended.map_err(|failure| match failure {
        Failure::Interrupted => Failure::Paused(format!(
            "interrupted; {} has the measurements and {} of {WORKLOADS} workloads",
            out.display(),
            outcomes.len()
        )),
        failure => failure,
    });
    if outcomes.is_empty() {
        return ended;
    }
    let document = tables::document(&outcomes, &machine, arguments.common.seed, &doubts);
    if let Some(draft) = draft {
        let runs: Vec<ValidatedRun> = outcomes
            .iter()
            .map(|outcome| ValidatedRun {
                name: outcome.name(),
                ratio: outcome.ratio(),
                part: outcome.cause.as_ref().map(|cause| cause.part),
            })
            .collect();
        draft.write(&of_validation(&machine, &runs, &document))?;
    }
    document.print(arguments.common.output)?;
    ended
}

/// Files written beside the report.
const FILES: [&str; 3] = ["measured.json", "machine.toml", "figures.json"];

/// Refuses a folder with files of these names that no validation has made: those have a report beside them.
fn keep_foreign_files(out: &Path) -> Result<(), Failure> {
    let foreign = FILES.map(|name| out.join(name)).into_iter().find(|path| path.exists());
    match foreign.filter(|_| !out.join("report.html").exists()) {
        Some(path) => Err(Failure::Usage(format!(
            "{} exists, and no report of a validation is beside it: name another folder with --out",
            path.display()
        ))),
        None => Ok(()),
    }
}

/// Measures this system and makes its machine; with notes on doubtful figures.
fn machine(
    arguments: &Arguments,
    write: &impl Fn(&str, &str) -> Result<(), Failure>,
) -> Result<(Machine, Vec<String>), Failure> {
    let host = System::read().map_err(|error| Failure::Run(error.to_string()))?;
    let progress = Progress::new("measuring", 1);
    let measured =
        measure::everything(arguments.size, arguments.common.seed, |share| progress.set(0, share))?;
    drop(progress);
    let text = pretty(&measured.json());
    write("measured.json", &text)?;
    let invalid = |why: String| Failure::Run(format!("the measurements give no machine: {why}"));
    let file = MeasuredFile::parse(text.as_bytes()).map_err(|error| invalid(error.to_string()))?;
    let machine = host.machine("host", &file.figures()).map_err(|error| invalid(error.to_string()))?;
    write("machine.toml", &machine.to_toml())?;
    let doubts: Vec<String> = doubts(&file, "--size").collect();
    doubts.iter().for_each(|doubt| message!("memtide: doubtful machine file: {doubt}"));
    Ok((machine, doubts))
}

/// Runs all workloads on both sides, and passes each outcome on.
fn workloads(
    arguments: &Arguments,
    machine: &Machine,
    mut done: impl FnMut(Outcome) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let seed = arguments.common.seed;
    let texts = texts(size_mib(arguments, machine), machine.initiators[0].cpus);
    for (number, workload) in texts.iter().enumerate() {
        let message = format!("{} ({} of {})", split_name(workload).0, number + 1, texts.len());
        let progress = Progress::new(&message, 2);
        let mut rounds = Vec::new();
        for round in 0..arguments.rounds {
            rounds.push(native(workload, seed)?);
            progress.set(0, f64::from(round + 1) / f64::from(arguments.rounds));
        }
        let (native, spread) = median(rounds);
        let simulated = simulate(machine, workload, seed, (&progress, 1))?;
        drop(progress);
        let mut outcome = Outcome { workload: workload.clone(), native, spread, simulated, cause: None };
        outcome.cause = parts::cause(machine, &outcome, seed)?;
        done(outcome)?;
    }
    Ok(())
}

/// MiB per workload: as given, else as much as was measured.
fn size_mib(arguments: &Arguments, machine: &Machine) -> u64 {
    let last_mib = machine.caches.last().map_or(0, |cache| cache.capacity_kib.div_ceil(1024));
    let free_mib = machine.nodes.iter().map(|node| node.capacity_mib).max().unwrap_or(0) / 4;
    arguments.size.map_or_else(|| (4 * last_mib).max(256).min(free_mib.max(8)), u64::from)
}

/// The workloads: dependent, independent, skewed and sequential accesses, and four algorithms.
fn texts(mib: u64, cpus: u16) -> [String; WORKLOADS] {
    let random = ["chase", "gups", "uniform", "zipf"];
    let operations = mib * LINES_PER_MIB;
    let random = random.map(|name| format!("{name}:footprint_mib={mib},operations={operations},threads=1"));
    let stream = format!("stream:kernel=triad,footprint_mib={mib},iterations=2,threads={cpus}");
    let algorithms =
        ["is", "cg", "pagerank"].map(|name| format!("{name}:footprint_mib={mib},iterations=1,threads=1"));
    let [chase, gups, uniform, zipf] = random;
    let [is, cg, pagerank] = algorithms;
    [chase, gups, uniform, zipf, stream, is, cg, pagerank]
}

/// Runs a workload on this system.
fn native(workload: &str, seed: u64) -> Result<RegionFigures, Failure> {
    let (name, params) = split_name(workload);
    let name = name.to_owned();
    let invalid = |error: String| Failure::Run(format!("workload '{workload}': {error}"));
    let params: Params = params.parse().map_err(|error| invalid(format!("{error}")))?;
    let (result, figures) = interrupt::interruptible(move || {
        Ok(in_base_pages(|meter| {
            memtide_workloads::native(&name, &params, seed, Pace::FULL, &|mark| meter.mark(mark))
        }))
    })?;
    result.map_err(|error| invalid(error.to_string()))?;
    Ok(figures)
}

/// The run with the median time, and the range of the times over it.
fn median(mut rounds: Vec<RegionFigures>) -> (RegionFigures, Option<f64>) {
    rounds.sort_by_key(|round| round.region);
    let median = rounds[rounds.len() / 2];
    let range = rounds[rounds.len() - 1].region - rounds[0].region;
    let spread = range.as_secs_f64() / median.region.as_secs_f64();
    (median, (rounds.len() > 1).then_some(spread))
}

/// Runs a workload on a machine, its pages placed as Linux does.
fn simulate(
    machine: &Machine,
    workload: &str,
    seed: u64,
    progress: (&Progress, usize),
) -> Result<Report, Failure> {
    let (progress, part) = progress;
    Runs::of_workloads(machine.clone(), &[workload.to_owned()], 1, seed)?.run(
        &runs::policy("local")?,
        progress,
        part,
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn workloads_are_known_and_their_parameters_allowed() {
        for text in texts(8, 2) {
            let (name, params) = split_name(&text);
            let params: Params = params.parse().expect("parameters");
            memtide_workloads::program(name, &params, 1).unwrap_or_else(|error| panic!("{text}: {error}"));
        }
    }

    #[test]
    fn median_run_is_one_of_the_runs() {
        let run = |ms| RegionFigures { region: Duration::from_millis(ms), ..RegionFigures::default() };
        assert_eq!(median(vec![run(30), run(10), run(20)]), (run(20), Some(1.0)));
        assert_eq!(median(vec![run(10)]), (run(10), None));
    }
}

//! Simulated runs: options, programs, and running them.

mod alone;
mod oracle;
mod run_file;
mod source;

use std::iter;
use std::panic;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use clap::{ArgGroup, Args, ValueHint};
use memtide_core::params::split_list;
use memtide_core::policy::Placement;
use memtide_core::{CpuId, Machine, NodeId, Time, suggest};
use memtide_policies::{Policy, PolicyError};
use memtide_sim::{IdealRun, Job, Report, SimError, Unbounded};
use memtide_trace::{ReplayOptions, Trace};
use memtide_workloads::START_MAX_MS;

pub use self::oracle::ORACLE_PARTS;
use self::source::{Source, open};
use crate::failure::Failure;
use crate::options::Overrides;
use crate::output::Cell;
use crate::output::VERSION;
use crate::progress::Progress;
use crate::{interrupt, machines, memory_guard, parallel};

/// A machine and the programs to run on it.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("programs").args(["workload", "trace", "run"]).required(true).multiple(true)))]
#[command(group(ArgGroup::new("traces").args(["trace", "run"]).multiple(true)))]
pub struct RunOptions {
    /// Name of a bundled machine, or machine file
    #[arg(short, long, value_hint = ValueHint::FilePath)]
    pub machine: String,
    /// Workload, such as stream:kernel=triad,threads=8; repeatable
    #[arg(short, long, value_name = "WORKLOAD")]
    workload: Vec<String>,
    /// Recorded trace; repeatable
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    trace: Vec<PathBuf>,
    /// Run file: programs with starts, priorities and locks
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath,
        conflicts_with_all = ["workload", "trace", "start_ms"])]
    run: Option<PathBuf>,
    #[command(flatten)]
    pub overrides: Overrides,
    /// Copies of every program to run at once
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..=1024))]
    copies: u64,
    /// When each program starts, in simulated ms: workloads, then traces
    ///
    /// Separated by commas. Programs without a time start at once.
    #[arg(long, value_name = "MS", value_delimiter = ',', value_parser = start)]
    start_ms: Vec<Time>,
    /// Accesses to omit at the start of traces
    #[arg(long, value_name = "N", default_value_t = 0, requires = "traces")]
    skip: u64,
    /// Maximum number of accesses to replay per trace [default: all]
    #[arg(long, value_name = "N", requires = "traces", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Accesses to run before the region of interest
    ///
    /// Of all threads, after --skip, or after a workload's initialisation.
    #[arg(long, value_name = "N", default_value_t = 0)]
    warmup: u64,
}

/// Checked options. Can be run any number of times.
pub struct Runs {
    /// The whole machine, with the slice and scale to simulate.
    pub machine: Machine,
    programs: Arc<[Source]>,
    /// When each program starts.
    starts: Arc<[Time]>,
    /// CPUs of the threads; all in turn if empty.
    cpus: Vec<CpuId>,
    copies: u64,
    options: ReplayOptions,
    seed: u64,
}

/// Why an option is refused without a trace.
pub fn for_traces(option: &str) -> String {
    format!("{option} is for traces; give one by --trace FILE, or leave it out")
}

impl RunOptions {
    /// Checks the options.
    pub fn runs(&self, seed: u64) -> Result<Runs, Failure> {
        self.runs_on(&self.machine, seed)
    }

    /// As [`RunOptions::runs`], on another machine.
    pub fn runs_on(&self, machine: &str, seed: u64) -> Result<Runs, Failure> {
        self.runs_of(machines::load_at(machine, &self.overrides)?, seed)
    }

    /// As [`RunOptions::runs`], with other overrides.
    pub fn runs_with(&self, overrides: &Overrides, seed: u64) -> Result<Runs, Failure> {
        self.runs_of(machines::load_at(&self.machine, overrides)?, seed)
    }

    fn runs_of(&self, machine: Machine, seed: u64) -> Result<Runs, Failure> {
        let (programs, starts) = self.programs(seed)?;
        for path in programs.iter().filter_map(Source::trace) {
            self.check_left(&open(path)?)?;
        }
        if programs.iter().all(|program| program.trace().is_none()) {
            self.refuse_options_of_traces()?;
        }
        let limit = self.limit.unwrap_or(u64::MAX);
        let options = ReplayOptions { skip: self.skip, limit, warm_up: self.warmup, cpus: false };
        memory_guard::start();
        let (programs, copies) = (programs.into(), self.copies);
        let runs = Runs { machine, programs, starts, cpus: Vec::new(), copies, options, seed };
        runs.jobs()?;
        Ok(runs)
    }

    /// The programs, and the start of each.
    fn programs(&self, seed: u64) -> Result<(Vec<Source>, Arc<[Time]>), Failure> {
        if let Some(path) = &self.run {
            return run_file::programs(path, seed);
        }
        let workloads = self.workload.iter().map(|text| Source::workload(text));
        let traces = self.trace.iter().map(|path| Ok(Source::of_trace(path)));
        let programs = workloads.chain(traces).collect::<Result<Vec<_>, _>>()?;
        let starts = self.starts(programs.len())?;
        Ok((programs, starts))
    }

    /// Whether the programs are those of a run file.
    pub fn has_run_file(&self) -> bool {
        self.run.is_some()
    }

    /// The start of each program.
    fn starts(&self, programs: usize) -> Result<Arc<[Time]>, Failure> {
        let given = self.start_ms.len();
        if given > programs {
            let message =
                format!("--start-ms has {given} times for {programs} program(s); give one for each");
            return Err(Failure::Usage(message));
        }
        let at_once = iter::repeat_n(Time::ZERO, programs - given);
        Ok(self.start_ms.iter().copied().chain(at_once).collect())
    }

    /// Refuses what would be ignored: no program is a trace.
    fn refuse_options_of_traces(&self) -> Result<(), Failure> {
        let given = [("--skip", self.skip > 0), ("--limit", self.limit.is_some())];
        match given.into_iter().find(|(_, is_given)| *is_given) {
            Some((option, _)) => Err(Failure::Usage(for_traces(option))),
            None => Ok(()),
        }
    }

    /// Refuses a trace with no accesses left to run.
    fn check_left(&self, trace: &Trace) -> Result<(), Failure> {
        let (path, accesses) = (trace.path().display(), trace.totals().accesses);
        let left = accesses.saturating_sub(self.skip).min(self.limit.unwrap_or(u64::MAX));
        match (accesses > self.skip, accesses) {
            (true, _) if self.warmup < left => Ok(()),
            (true, _) => Err(Failure::Usage(format!(
                "--warmup {}: {path} has {left} accesses to run; the region of interest needs some of them",
                self.warmup
            ))),
            (false, 0) => {
                Err(Failure::Input(format!("{path}: a trace without accesses; there is nothing to run")))
            }
            (false, _) => {
                let skip = self.skip;
                Err(Failure::Usage(format!("--skip {skip}: {path} has {accesses} accesses; skip fewer")))
            }
        }
    }
}

impl Runs {
    /// Copies of workloads on a machine at its scale.
    pub fn of_workloads(machine: Machine, texts: &[String], copies: u64, seed: u64) -> Result<Runs, Failure> {
        let programs: Arc<[Source]> =
            texts.iter().map(|text| Source::workload(text)).collect::<Result<_, _>>()?;
        let starts = programs.iter().map(|_| Time::ZERO).collect();
        let options = ReplayOptions::default();
        Ok(Runs { machine, programs, starts, cpus: Vec::new(), copies, options, seed })
    }

    /// The same programs with another seed, on a machine with other figures.
    pub fn with(&self, machine: Machine, seed: u64) -> Runs {
        let (programs, starts, cpus) = (self.programs.clone(), self.starts.clone(), self.cpus.clone());
        Runs { machine, programs, starts, cpus, copies: self.copies, options: self.options, seed }
    }

    /// Name and size in bytes of the traces.
    pub fn traces(&self) -> Result<Vec<(String, u64)>, Failure> {
        let size = |source: &Source| {
            let path = source.trace()?;
            Some(open(path).map(|trace| (source.name.clone(), trace.bytes())))
        };
        self.programs.iter().filter_map(size).collect()
    }

    /// Service level of each program, copies included; `None` of those without one.
    pub fn priorities(&self) -> Vec<Option<u8>> {
        let copies = |source: &Source| iter::repeat_n(source.priority, self.copies as usize);
        self.programs.iter().flat_map(copies).collect()
    }

    /// Refuses a policy that the machine does not fit.
    pub fn check(&self, policy: &Policy) -> Result<Box<dyn Placement>, Failure> {
        policy.placement(&self.machine).map_err(|error| Failure::Usage(error.to_string()))
    }

    /// Description of the programs, for tables and reports.
    pub fn program_names(&self) -> String {
        let each = |(source, start): (&Source, &Time)| {
            let part = source.trace().map(|_| self.part()).unwrap_or_default();
            let name = format!("{}{part}", source.text);
            let start_ms = start.0 as f64 / Time::from_ms(1).0 as f64;
            if *start > Time::ZERO { format!("{name} from {start_ms} ms") } else { name }
        };
        let names: Vec<String> = self.programs.iter().zip(&*self.starts).map(each).collect();
        let names = match (self.copies, &names[..]) {
            (1, names) => names.join(" and "),
            (copies, [name]) => format!("{copies} x {name}"),
            (copies, names) => format!("{copies} x ({})", names.join(" and ")),
        };
        match self.options.warm_up {
            0 => names,
            warm_up => format!("{names} after a warm-up of {warm_up} accesses"),
        }
    }

    /// Range of replayed accesses, unless all.
    fn part(&self) -> String {
        let ReplayOptions { skip, limit, .. } = self.options;
        match (skip, limit) {
            (0, u64::MAX) => String::new(),
            (skip, u64::MAX) => format!(" from access {skip}"),
            (skip, limit) => format!(" [{limit} accesses from {skip}]"),
        }
    }

    /// Facts common to all runs.
    pub fn about(&self) -> Vec<(&'static str, Cell)> {
        let mut about = machines::about(&self.machine);
        about.extend([
            ("slice", Cell::Whole(self.machine.slice.into())),
            ("scale", Cell::Whole(self.machine.scale.into())),
            ("program", Cell::text(self.program_names())),
            ("seed", Cell::Whole(self.seed)),
            ("memtide", Cell::text(VERSION)),
        ]);
        about
    }

    /// Runs the programs under a policy.
    pub fn run(&self, policy: &Policy, progress: &Progress, part: usize) -> Result<Report, Failure> {
        interrupt::check()?;
        let mut watch = watcher(progress, part);
        let simulated = self.simulated(policy)?;
        let report = memtide_sim::run(&self.machine, self.jobs()?, simulated, self.seed, &mut watch);
        progress.set(part, 1.0);
        report.map_err(|error| self.failure(policy, error))
    }

    /// Runs the programs under each policy, and computes their bound: in one pass if each of their threads
    /// has a CPU, else, or if `exact`, or for a single policy, one by one on all cores. The policies are
    /// parts of the progress from the first, and the bound is the part after them.
    pub fn run_each(
        &self,
        policies: &[Policy],
        progress: &Progress,
        exact: bool,
    ) -> Result<(Vec<Report>, Result<IdealRun, Unbounded>), Failure> {
        let jobs = self.jobs()?;
        if exact || policies.len() == 1 || !memtide_sim::can_share(&self.machine, &jobs) {
            let (reports, bound) = thread::scope(|scope| {
                let mut watch = watcher(progress, policies.len());
                let bound =
                    scope.spawn(move || memtide_sim::bound(&self.machine, jobs, self.seed, &mut watch));
                let reports = parallel::map(policies, |part, policy| self.run(policy, progress, part));
                (reports, bound.join().unwrap_or_else(|panic| panic::resume_unwind(panic)))
            });
            let reports = reports.into_iter().collect::<Result<_, _>>()?;
            return Ok((reports, self.bound(bound)?));
        }
        let simulated = self.all_simulated(policies)?;
        let watch = |part: usize, done: Option<f64>| watcher(progress, part)(done);
        let (reports, bound) =
            memtide_sim::run_shared_with_bound(&self.machine, jobs, simulated, self.seed, &watch);
        Ok((self.reports(policies, reports)?, self.bound(bound)?))
    }

    /// As [`Runs::run_each`], without a bound, with the policies' parts of the progress from `first` on, and
    /// in one pass for a single policy, too: so that a report does not depend on which others are missing.
    pub fn run_parts(
        &self,
        policies: &[Policy],
        progress: &Progress,
        first: usize,
        exact: bool,
    ) -> Result<Vec<Report>, Failure> {
        let jobs = self.jobs()?;
        if exact || !memtide_sim::can_share(&self.machine, &jobs) {
            drop(jobs);
            let reports = parallel::map(policies, |part, policy| self.run(policy, progress, first + part));
            return reports.into_iter().collect();
        }
        let simulated = self.all_simulated(policies)?;
        let watch = |part: usize, done: Option<f64>| watcher(progress, first + part)(done);
        let reports = memtide_sim::run_shared(&self.machine, jobs, simulated, self.seed, &watch);
        self.reports(policies, reports)
    }

    fn all_simulated(&self, policies: &[Policy]) -> Result<Vec<memtide_sim::Policy>, Failure> {
        policies.iter().map(|policy| self.simulated(policy)).collect()
    }

    fn reports(
        &self,
        policies: &[Policy],
        reports: Vec<Result<Report, SimError>>,
    ) -> Result<Vec<Report>, Failure> {
        let reports = policies.iter().zip(reports);
        reports.map(|(policy, report)| report.map_err(|error| self.failure(policy, error))).collect()
    }

    fn bound(
        &self,
        bound: Result<Result<IdealRun, Unbounded>, SimError>,
    ) -> Result<Result<IdealRun, Unbounded>, Failure> {
        bound.map_err(|error| self.failure_of("bound", error))
    }

    fn simulated(&self, policy: &Policy) -> Result<memtide_sim::Policy, Failure> {
        let migrates = policy.migration_info().name != "none";
        let migration = migrates.then(|| policy.simulated_migration(&self.machine));
        Ok(memtide_sim::Policy::new(self.check(policy)?, migration))
    }

    fn failure(&self, policy: &Policy, error: SimError) -> Failure {
        self.failure_of(policy.name(), error)
    }

    fn failure_of(&self, policy: &str, error: SimError) -> Failure {
        match error {
            SimError::Interrupted => Failure::Interrupted,
            SimError::Program(error) => Failure::Input(error.to_string()),
            SimError::NoRegion { .. } if self.options.warm_up > 0 => {
                Failure::Usage(format!("--warmup {}: {error}", self.options.warm_up))
            }
            SimError::Bound { nodes } => Failure::Run(format!(
                "out of memory: policy '{}' binds the program to {}, without free memory; use a smaller \
                 workload or scale, or a placement that spills, such as 'preferred'",
                policy,
                self.names_of(&nodes).join(", ")
            )),
            other => Failure::Run(other.to_string()),
        }
    }

    fn names_of(&self, nodes: &[NodeId]) -> Vec<&str> {
        nodes.iter().map(|node| self.machine.nodes[node.index()].name.as_str()).collect()
    }

    fn jobs(&self) -> Result<Vec<Job<'static>>, Failure> {
        let mut jobs = Vec::new();
        for (source, &start) in self.programs.iter().zip(&*self.starts) {
            for program in source.copies(self.copies, self.options, self.seed)? {
                jobs.push(Job { start, cpus: self.cpus.clone(), ..Job::new(source.name.clone(), program) });
            }
        }
        Ok(jobs)
    }
}

/// Shows a part's progress, and ends it at an interrupt.
fn watcher(progress: &Progress, part: usize) -> impl Fn(Option<f64>) -> bool + '_ {
    move |done| {
        progress.set(part, done.unwrap_or_default());
        !interrupt::requested()
    }
}

/// A time of at least 0, in ms.
fn start(text: &str) -> Result<Time, String> {
    let ms = text.trim().parse::<f64>().ok().filter(|ms| (0.0..=START_MAX_MS).contains(ms));
    let ms = ms.ok_or_else(|| format!("expected a number of ms from 0 to {START_MAX_MS}"))?;
    Ok(Time::from_ns(ms * 1e6))
}

/// Parses lists of distinct policies.
pub fn policies(lists: &[String]) -> Result<Vec<Policy>, Failure> {
    let texts: Vec<&str> = lists.iter().flat_map(|list| split_list(list)).collect();
    if texts.iter().any(|text| text.trim().is_empty()) {
        let lists = lists.join(" ");
        return Err(Failure::Usage(format!("--policies '{lists}': a name is empty; is a comma too many?")));
    }
    let policies: Vec<Policy> = texts.into_iter().map(policy).collect::<Result<_, _>>()?;
    for (index, policy) in policies.iter().enumerate() {
        let same = |other: &&Policy| without_none(other.name()) == without_none(policy.name());
        if let Some(other) = policies[..index].iter().find(same) {
            return Err(Failure::Usage(match other.name() == policy.name() {
                true => format!("policy '{policy}' is named twice; name it once"),
                false => format!("policies '{other}' and '{policy}' are the same; name one of them"),
            }));
        }
    }
    Ok(policies)
}

/// A policy's name without the migration policy that never migrates.
fn without_none(name: &str) -> &str {
    name.strip_suffix("+none").unwrap_or(name)
}

/// Parses a policy.
pub fn policy(text: &str) -> Result<Policy, Failure> {
    memtide_policies::parse(text.trim()).map_err(|error| {
        Failure::Usage(match &error {
            PolicyError::Unknown { kind, name, known, hint: "" } => {
                suggest::unknown(&format!("{kind} policy"), name, known)
            }
            other => other.to_string(),
        })
    })
}

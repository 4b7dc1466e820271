//! The runs of experiments. They get plans only: what a paper reports is not known here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use memtide_core::machine::Setting;
use memtide_experiments::{Case, Experiment, Plan, Results, Row};
use memtide_policies::Policy;
use memtide_sim::Report;

use super::cache::{self, Cache};
use crate::failure::Failure;
use crate::machines;
use crate::options::{Overrides, Settings};
use crate::parallel;
use crate::progress::Progress;
use crate::runs::{self, Runs};

/// Results at an experiment's scale, and at half of it if that was run.
pub type Both = (Results, Option<Results>);

/// A program in a variant of the machine, under each policy.
struct Group {
    program: String,
    variant: String,
    runs: Runs,
    policies: Vec<(String, Policy)>,
    /// Keys in the cache, by policy.
    keys: Vec<String>,
}

/// Runs what is not in the cache.
pub fn run(experiments: &[Experiment], cache: &Cache, seed: u64, half: bool) -> Result<Vec<Both>, Failure> {
    let plans = experiments.iter().map(|experiment| {
        let named = |failure| of_file(&experiment.file, failure);
        let full = groups(&experiment.plan, seed).map_err(named)?;
        let half = half.then(|| halved(&experiment.plan).and_then(|plan| groups(&plan, seed)));
        Ok((full, half.transpose().map_err(named)?))
    });
    let plans: Vec<(Vec<Group>, Option<Vec<Group>>)> = plans.collect::<Result<_, Failure>>()?;
    let all = plans.iter().flat_map(|(full, half)| full.iter().chain(half.iter().flatten()));
    let mut known = Known { cache, reports: BTreeMap::new() };
    known.complete(&all.collect::<Vec<_>>())?;
    let results = |plan: &Plan, groups: &[Group]| Results::new(plan, known.rows(groups));
    let both = experiments.iter().zip(&plans).map(|(experiment, (full, half))| {
        let half = half.as_deref().map(|half| results(&experiment.plan, half));
        (results(&experiment.plan, full), half)
    });
    Ok(both.collect())
}

/// The plan at half its scale.
fn halved(plan: &Plan) -> Result<Plan, Failure> {
    let scale = machines::load(&plan.machine)?.scale;
    plan.halved(scale).map_err(Failure::Run)
}

fn groups(plan: &Plan, seed: u64) -> Result<Vec<Group>, Failure> {
    let policies = plan.policies.iter().map(|named| Ok((named.name.clone(), runs::policy(&named.policy)?)));
    let policies = policies.collect::<Result<Vec<_>, Failure>>()?;
    plan.cases().into_iter().map(|case| group(plan, case, &policies, seed)).collect()
}

fn group(plan: &Plan, case: Case<'_>, policies: &[(String, Policy)], seed: u64) -> Result<Group, Failure> {
    let Case { program, variant } = case;
    let name = variant.and_then(|variant| variant.machine.as_deref()).unwrap_or(&plan.machine);
    let texts = plan.set.iter().chain(variant.iter().flat_map(|variant| &variant.set));
    let set = texts.map(|text| text.parse::<Setting>().map_err(Failure::Usage));
    let settings = Settings { set: set.collect::<Result<_, _>>()? };
    let overrides = Overrides { settings, slice: plan.slice, scale: plan.scale };
    let runs = Runs::of_workloads(machines::load_at(name, &overrides)?, &program.run, program.copies, seed)?;
    let machine = runs.machine.to_toml();
    let (programs, copies, seed) = (program.run.join("\n"), program.copies.to_string(), seed.to_string());
    let key = |(_, policy): &(String, Policy)| {
        runs.check(policy)?;
        Ok(cache::key(&[&machine, &programs, &copies, &seed, policy.name()]))
    };
    let keys = policies.iter().map(key).collect::<Result<_, Failure>>()?;
    let variant = variant.map_or_else(String::new, |variant| variant.name.clone());
    Ok(Group { program: program.name.clone(), variant, runs, policies: policies.to_vec(), keys })
}

/// Runs of a group.
struct Job<'g> {
    group: &'g Group,
    keys: Vec<&'g String>,
    policies: Vec<Policy>,
    /// Number of the first of them among all runs.
    first: usize,
}

/// Reports by key.
struct Known<'a> {
    cache: &'a Cache,
    reports: BTreeMap<String, Report>,
}

impl Known<'_> {
    /// Reads or makes the reports of all groups.
    fn complete(&mut self, groups: &[&Group]) -> Result<(), Failure> {
        for key in groups.iter().flat_map(|group| &group.keys) {
            if !self.reports.contains_key(key)
                && let Some(report) = self.cache.find(key)
            {
                self.reports.insert(key.clone(), report);
            }
        }
        let (jobs, missing) = self.jobs(groups);
        let progress = Progress::new("simulating", missing);
        let made = AtomicUsize::new(0);
        let run = |job: &Job<'_>| {
            let reports = job.group.runs.run_parts(&job.policies, &progress, job.first, false)?;
            for (key, report) in job.keys.iter().zip(&reports) {
                self.cache.store(key, report)?;
            }
            made.fetch_add(reports.len(), Ordering::Relaxed);
            Ok(reports)
        };
        // Each uses several cores, but not to its end, and needs memory.
        let at_once = (parallel::cores() / 8).clamp(2, 8);
        let reports = parallel::map_some(&jobs, at_once, |_, job| run(job));
        let made = made.into_inner();
        for (job, reports) in jobs.iter().zip(reports) {
            let reports = reports.map_err(|failure| match failure {
                Failure::Interrupted => Failure::Paused(format!(
                    "interrupted after {made} of {missing} runs; the same command does the rest"
                )),
                other => named(&job.group.program, other),
            })?;
            self.reports.extend(job.keys.iter().map(|&key| key.clone()).zip(reports));
        }
        Ok(())
    }

    /// The runs that are missing, each once, by group; and their number.
    fn jobs<'g>(&self, groups: &[&'g Group]) -> (Vec<Job<'g>>, usize) {
        let mut missing = BTreeSet::new();
        let job = |&group: &&'g Group| {
            let first = missing.len();
            let (keys, policies): (Vec<_>, Vec<_>) = (group.keys.iter().zip(&group.policies))
                .filter(|&(key, _)| !self.reports.contains_key(key) && missing.insert(key))
                .map(|(key, (_, policy))| (key, policy.clone()))
                .unzip();
            (!keys.is_empty()).then_some(Job { group, keys, policies, first })
        };
        let jobs = groups.iter().filter_map(job).collect();
        (jobs, missing.len())
    }

    fn rows(&self, groups: &[Group]) -> Vec<Row> {
        let of = |group: &Group| {
            let each = group.policies.iter().zip(&group.keys).map(|((policy, _), key)| Row {
                program: group.program.clone(),
                variant: group.variant.clone(),
                policy: policy.clone(),
                report: self.reports[key].clone(),
            });
            each.collect::<Vec<_>>()
        };
        groups.iter().flat_map(of).collect()
    }
}

/// A failure of a plan's text, with its file.
fn of_file(file: &str, failure: Failure) -> Failure {
    match failure {
        Failure::Run(why) | Failure::Usage(why) | Failure::Input(why) => {
            Failure::Input(format!("{file}: {why}"))
        }
        other => other,
    }
}

/// A failure with what it is of.
fn named(of: &str, failure: Failure) -> Failure {
    match failure {
        Failure::Run(why) | Failure::Usage(why) | Failure::Input(why) => Failure::Run(format!("{of}: {why}")),
        other => other,
    }
}

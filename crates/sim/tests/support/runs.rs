//! Runs programs under policies.

#![allow(dead_code, reason = "each test file uses its part")]

use memtide_core::{CpuId, Machine};
use memtide_sim::{Job, Policy, Report, SimError, run};

use crate::support::Script;

/// A policy by its name on the command line.
pub fn policy(machine: &Machine, name: &str) -> Policy {
    let policy = memtide_policies::parse(name).expect("a known policy");
    Policy::new(
        policy.placement(machine).expect("a policy that fits the machine"),
        Some(policy.simulated_migration(machine)),
    )
}

/// A job that runs on these CPUs, or on all.
pub fn job(script: Script, cpus: &[u16]) -> Job<'static> {
    Job { cpus: cpus.iter().copied().map(CpuId).collect(), ..Job::new("script", Box::new(script)) }
}

/// Runs jobs under a policy.
pub fn try_jobs(machine: &Machine, name: &str, jobs: Vec<Job<'_>>) -> Result<Report, SimError> {
    run(machine, jobs, policy(machine, name), 1, &mut |_| true)
}

/// Runs one program on all CPUs.
pub fn try_run(machine: &Machine, name: &str, script: Script) -> Result<Report, SimError> {
    try_jobs(machine, name, vec![job(script, &[])])
}

/// Runs one program on all CPUs, which must succeed.
pub fn simulate(machine: &Machine, name: &str, script: Script) -> Report {
    try_run(machine, name, script).unwrap_or_else(|error| panic!("{error}"))
}

/// Checks that a figure is within a share of the expected one.
#[track_caller]
pub fn assert_near(found: f64, expected: f64, tolerance: f64, what: &str) {
    let error = (found / expected - 1.0).abs();
    assert!(error <= tolerance, "{what}: {found} instead of {expected}: {:.2} % off", 100.0 * error);
}

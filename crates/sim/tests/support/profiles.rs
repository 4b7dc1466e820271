//! Runs a profile alone on its machine.

use std::fs;
use std::path::Path;

use memtide_core::Machine;
use memtide_sim::{Job, Policy, run};
use memtide_workloads::{Params, Profile};

/// Seed of the runs; profiles are calibrated with it.
pub const SEED: u64 = 1;

/// Bandwidth that a profile draws, in MB/s.
#[derive(Clone, Copy, Debug)]
pub struct Drawn {
    pub reads: f64,
    pub writes: f64,
}

/// The bandwidth of a profile alone on its machine with default parameters, under Linux's default policy.
pub fn draw(profile: &Profile, instructions_per_line: f64, seed: u64) -> Drawn {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../machines")
        .join(format!("{}.toml", profile.machine));
    let text = fs::read_to_string(path).expect("the profile's machine file");
    let machine = Machine::parse(&profile.machine, &text).expect("a bundled machine");
    let mut params = Params::new();
    params.set("instructions_per_line", instructions_per_line).expect("given once");
    let program = memtide_workloads::program(&profile.name, &params, seed).expect("a workload");
    let placement = memtide_policies::parse("local").expect("a policy").placement(&machine).expect("it fits");
    let policy = Policy::new(placement, None);
    let job = Job::new(profile.name.clone(), program);
    let report = run(&machine, vec![job], policy, seed, &mut |_| true).expect("a run");
    let reads = report.nodes.iter().map(|n| n.read_bandwidth_mbps).sum();
    let all: f64 = report.nodes.iter().map(|n| n.bandwidth_mbps).sum();
    Drawn { reads, writes: all - reads }
}

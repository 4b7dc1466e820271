//! Ratios to `local` of the same whole program on a machine at several reductions.

use memtide_core::Machine;
use memtide_core::machine::bundled;
use memtide_sim::{Job, Policy, run};
use memtide_workloads::Params;

/// A program, by what it has at the file's slice and scale.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    pub name: &'static str,
    /// Its parameters, such as `kernel=triad`; empty for none.
    pub params: &'static str,
    /// Its parameter for the number of operations, if it does not grow with the footprint.
    pub operations: Option<&'static str>,
}

pub const SEED: u64 = 1;

/// A machine reduced `less` times less than its file says, a power of two: first the scale, then the slice.
/// `None` if its file does not reduce it so much.
pub fn less_reduced(name: &str, less: u32) -> Option<Machine> {
    let mut machine = bundled::machine(name).expect("a bundled machine").expect("a checked machine");
    let mut left = less;
    while left > 1 && machine.scale.is_multiple_of(2) {
        (machine.scale, left) = (machine.scale / 2, left / 2);
    }
    while left > 1 && machine.slice.is_multiple_of(2) {
        (machine.slice, left) = (machine.slice / 2, left / 2);
    }
    (left == 1).then_some(machine)
}

/// Times of the region of interest of a workload under policies, in ms of the simulated machine, on a machine
/// reduced `less` times less than its file says. `footprint_mib` is that at the file's reduction; a thread
/// runs on each CPU.
pub fn times_ms(
    machine: &Machine,
    less: u32,
    workload: Workload,
    footprint_mib: u64,
    policies: &[&str],
) -> Vec<f64> {
    let time = |policy: &&str| {
        let parsed = memtide_policies::parse(policy).expect("a policy");
        let placement = parsed.placement(machine).expect("it fits");
        let migration = policy.contains('+').then(|| parsed.simulated_migration(machine));
        let job = Job::new(workload.name, program(machine, less, workload, footprint_mib));
        let report = run(machine, vec![job], Policy::new(placement, migration), SEED, &mut |_| true);
        report.expect("a run").time_ms
    };
    policies.iter().map(time).collect()
}

fn program(
    machine: &Machine,
    less: u32,
    workload: Workload,
    footprint_mib: u64,
) -> memtide_workloads::BoxedProgram {
    let less = u64::from(less);
    let mut params: Params = workload.params.parse().expect("parameters");
    params.set("footprint_mib", footprint_mib * less).expect("given once");
    params.set("threads", machine.reduced().cpus() as u64).expect("given once");
    if let Some(operations) = workload.operations {
        params.set(operations, operations_of(footprint_mib) * less).expect("given once");
    }
    memtide_workloads::program(workload.name, &params, SEED).expect("a workload")
}

/// Operations at the file's reduction: two for each line.
fn operations_of(footprint_mib: u64) -> u64 {
    footprint_mib << 15
}

/// Largest relative difference between ratios to the first policy's time and those at other reductions.
pub fn deviation(times_ms: &[Vec<f64>]) -> f64 {
    let ratio = |times: &[f64], policy: usize| times[policy] / times[0];
    let (default, others) = times_ms.split_first().expect("a reduction");
    let off = |other: &Vec<f64>| {
        (1..default.len())
            .map(|policy| (ratio(default, policy) / ratio(other, policy) - 1.0).abs())
            .fold(0.0, f64::max)
    };
    others.iter().map(off).fold(0.0, f64::max)
}

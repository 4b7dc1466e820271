//! The oracle: placements made with the future known.

use memtide_core::Machine;
use memtide_core::machine::bundled;
use memtide_sim::{Job, Policy, Report, bound, oracle_policies, run};
use memtide_workloads::Params;

const SEED: u64 = 1;

fn machine(name: &str, dram_mib: u64) -> Machine {
    let mut machine = bundled::machine(name).expect("a bundled machine").expect("a checked machine");
    machine.nodes[0].capacity_mib = dram_mib * machine.reduction();
    machine
}

fn workload(text: &str) -> Job<'static> {
    let (name, params) = text.split_once(':').expect("parameters");
    let params: Params = params.parse().expect("parameters");
    Job::new(name, memtide_workloads::program(name, &params, SEED).expect("a bundled workload"))
}

fn placed(machine: &Machine, job: Job<'static>, placement: &str) -> Report {
    let policy = memtide_policies::parse(placement).expect("a policy");
    let policy = Policy::new(policy.placement(machine).expect("it fits"), None);
    run(machine, vec![job], policy, SEED, &mut |_| true).expect("a run")
}

/// The runs of all plans, and the bound.
fn planned(machine: &Machine, text: &str) -> (Vec<Report>, f64) {
    let ideal = bound(machine, vec![workload(text)], SEED, &mut |_| true).expect("a run").expect("a bound");
    let policies = oracle_policies(machine, &ideal.reads);
    let runs = policies
        .into_iter()
        .map(|policy| run(machine, vec![workload(text)], policy, SEED, &mut |_| true).expect("a run"));
    (runs.collect(), ideal.bound.time_ms())
}

fn fastest(runs: &[Report]) -> &Report {
    runs.iter().min_by(|a, b| a.time_ms.total_cmp(&b.time_ms)).expect("plans")
}

#[test]
fn hot_pages_get_the_fast_node() {
    // DRAM has room for half of the pages, and one thread does not use its bandwidth. Hot lines lie scattered
    // and caches keep the hottest: the fastest plan reaches 65 % on DRAM, local has 50.
    let (machine, text) = (machine("hinuma", 8), "zipf:threads=1,footprint_mib=16,operations=400000");
    let (runs, bound_ms) = planned(&machine, text);
    let oracle = fastest(&runs);
    let local = placed(&machine, workload(text), "local");
    assert!(oracle.nodes[0].demand_share > local.nodes[0].demand_share + 0.12);
    assert!(oracle.time_ms < 0.93 * local.time_ms, "{} {}", oracle.time_ms, local.time_ms);
    assert!(runs.iter().all(|run| run.time_ms >= bound_ms));
    assert!(runs.iter().all(|run| run.pages.migrated == 0 && run.pages.swapped_out == 0));
}

#[test]
fn evenly_used_pages_are_placed_by_bandwidth_where_it_is_short() {
    let (machine, text) = (machine("bmpm-2", 1024), "stream:threads=8,footprint_mib=32");
    let (runs, _) = planned(&machine, text);
    let (oracle, aware) = (fastest(&runs), placed(&machine, workload(text), "bw-local"));
    assert!((oracle.nodes[0].access_share - 2.0 / 3.0).abs() < 0.03, "{}", oracle.nodes[0].access_share);
    assert!(oracle.time_ms < 1.03 * aware.time_ms, "{} {}", oracle.time_ms, aware.time_ms);
}

#[test]
fn plans_are_the_same_each_time() {
    let (machine, text) = (machine("bmpm-5", 4), "gups:threads=2,footprint_mib=8,operations=20000");
    let times = || planned(&machine, text).0.iter().map(|run| run.time_ms).collect::<Vec<_>>();
    assert_eq!(times(), times());
}

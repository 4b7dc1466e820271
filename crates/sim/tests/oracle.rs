//! The oracle: placements and moves made with the future known.

use crate::support::{MachineText, Marked, Script, after, alone, doing, follow, touch};
use memtide_core::machine::bundled;
use memtide_core::{Machine, Mark, Then};
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
    planned_for(machine, || workload(text))
}

fn planned_for(machine: &Machine, job: impl Fn() -> Job<'static>) -> (Vec<Report>, f64) {
    let ideal = bound(machine, vec![job()], SEED, &mut |_| true).expect("a run").expect("a bound");
    let policies = oracle_policies(machine, &ideal.windows);
    let runs = policies
        .into_iter()
        .map(|policy| run(machine, vec![job()], policy, SEED, &mut |_| true).expect("a run"));
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
    assert!(runs.iter().all(|run| run.pages.swapped_out == 0));
    assert!(runs[..3].iter().all(|run| run.pages.migrated == 0));
}

#[test]
fn evenly_used_pages_are_placed_by_bandwidth_where_it_is_short() {
    let (machine, text) = (machine("bmpm-2", 1024), "stream:threads=8,footprint_mib=32");
    let (runs, _) = planned(&machine, text);
    let (oracle, aware) = (fastest(&runs), placed(&machine, workload(text), "bw-local"));
    assert!((oracle.nodes[0].access_share - 2.0 / 3.0).abs() < 0.03, "{}", oracle.nodes[0].access_share);
    assert!(oracle.time_ms < 1.03 * aware.time_ms, "{} {}", oracle.time_ms, aware.time_ms);
}

/// DRAM for 256 of the pages, at 100 ns, and NVM at 300 ns.
fn two_tiers() -> Machine {
    MachineText::new("unmap_ns = 500\nshootdown_ns = 500\nremap_ns = 500\n")
        .last_level(64, 2)
        .socket("s0", 2)
        .node("dram", 0, "s0", 1, 100.0, 10_000.0)
        .node("nvm", 1, "s0", 16, 300.0, 10_000.0)
        .machine()
}

/// Follows pointers through each of these sets of pages in turn, after all pages have been touched.
fn hot_sets(sets: &[u64], pages: u64) -> Script {
    let first = after(touch(256, 4 * pages).accesses, Then::Mark(Mark::Begin));
    let rounds = sets.iter().flat_map(|&set| {
        (0..40).map(move |round: u64| {
            // Lines in an order that no prefetcher follows, and that no cache remembers.
            let lines = (0..2000).map(|at| (at + round * 2000) * 7919 % (pages * 64));
            doing(lines.map(|line| follow((256 + set * pages) * 4096 + line * 64)).collect::<Vec<_>>())
        })
    });
    alone(std::iter::once(first).chain(rounds))
}

#[test]
fn pages_move_when_others_become_hot() {
    let machine = two_tiers();
    let job = |sets: &'static [u64]| move || Job::new("sets", Box::new(Marked(hot_sets(sets, 200))));
    let (runs, bound_ms) = planned_for(&machine, job(&[0, 1, 2, 3]));
    let [placed @ .., moving] = &runs[..] else { panic!("no plans") };
    // A quarter of the reads is on DRAM without moves: 250 ns a read; with them nearly all, once a set's
    // pages have moved.
    let best = fastest(placed);
    assert_eq!(placed.len(), 3);
    assert!(moving.pages.migrated >= 600, "{}", moving.pages.migrated);
    assert!(moving.time_ms < 0.7 * best.time_ms, "{} {}", moving.time_ms, best.time_ms);
    assert!(moving.time_ms >= bound_ms);

    let (runs, _) = planned_for(&machine, job(&[2, 2, 2, 2]));
    assert_eq!(runs.len(), 3, "no page is worth a move where the same pages stay hot");
}

#[test]
fn plans_are_the_same_each_time() {
    let (machine, text) = (machine("bmpm-5", 4), "gups:threads=2,footprint_mib=8,operations=20000");
    let times = || planned(&machine, text).0.iter().map(|run| run.time_ms).collect::<Vec<_>>();
    assert_eq!(times(), times());
}

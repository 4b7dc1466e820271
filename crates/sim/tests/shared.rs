//! One pass for all policies gives the results of runs of their own.

use memtide_core::Machine;
use memtide_core::machine::bundled;
use memtide_sim::{Job, Policy, Report, can_share, run, run_shared};
use memtide_workloads::Params;

const SEED: u64 = 1;

/// Largest deviation of time, bandwidth and latency.
const TOLERANCE: f64 = 0.01;

/// Largest deviation of private hits where pages move: their lines stay in the shared front's caches.
const MOVED_TOLERANCE: f64 = 0.001;

fn machine(name: &str) -> Machine {
    bundled::machine(name).expect("a bundled machine").expect("a checked machine")
}

fn job(workload: &str) -> Job<'static> {
    let (name, params) = workload.split_once(':').unwrap_or((workload, ""));
    let params: Params = params.parse().expect("parameters");
    let program = memtide_workloads::program(name, &params, SEED).expect("a bundled workload");
    Job::new(name, memtide_workloads::begin_later(program, 0))
}

fn policy(machine: &Machine, text: &str) -> Policy {
    let policy = memtide_policies::parse(text).expect("a known policy");
    let migrates = policy.migration_info().name != "none";
    let migration = migrates.then(|| policy.simulated_migration(machine));
    Policy::new(policy.placement(machine).expect("a policy that fits the machine"), migration)
}

/// Reports of each policy: of its own run, and of one pass for all.
fn both(machine: &Machine, workload: &str, policies: &[&str]) -> Vec<(Report, Report)> {
    let alone = |text: &&str| {
        run(machine, vec![job(workload)], policy(machine, text), SEED, &mut |_| true).expect("a run")
    };
    let alone: Vec<Report> = policies.iter().map(alone).collect();
    assert!(can_share(machine, &[job(workload)]));
    let all = policies.iter().map(|text| policy(machine, text)).collect();
    let shared = run_shared(machine, vec![job(workload)], all, SEED, &|_, _| true);
    alone.into_iter().zip(shared.into_iter().map(|report| report.expect("a run"))).collect()
}

fn bandwidth(report: &Report) -> f64 {
    report.nodes.iter().map(|node| node.bandwidth_mbps).sum()
}

fn deviation(alone: f64, shared: f64) -> f64 {
    if alone == shared { 0.0 } else { (shared / alone - 1.0).abs() }
}

#[test]
fn figures_are_those_of_runs_of_their_own() {
    let policies = [
        "local",
        "interleave",
        "bw-random",
        "interleave+anb",
        "bw-local+bw-migration",
        "local+linux-tiering",
    ];
    for (name, workload) in [
        ("ddr5-cxl", "zipf:threads=2,footprint_mib=16,operations=200000"),
        ("ddr5-cxl", "stream:kernel=triad,threads=2,footprint_mib=24,iterations=1"),
        ("ddr5-cxl", "stream:threads=1,footprint_mib=12,iterations=1,stores=non-temporal"),
        ("ddr5-cxl", "gups:threads=1,footprint_mib=16,operations=100000,page=2MiB"),
        ("bmpm-5", "chase:footprint_mib=16,operations=100000"),
        ("bmpm-5", "ycsb-a:threads=2,footprint_mib=16,operations=50000"),
        ("pms", "stream:kernel=triad,threads=1,footprint_mib=12,iterations=1"),
        ("hinuma", "uniform:threads=2,footprint_mib=16,operations=100000"),
    ] {
        let machine = machine(name);
        for (policy, (alone, shared)) in policies.iter().zip(both(&machine, workload, &policies)) {
            let what = format!("{workload} on {name} under {policy}");
            let counts = |of: &Report| (of.instructions, of.accesses, of.pages.faults, of.pages.huge_faults);
            assert_eq!(counts(&alone), counts(&shared), "{what}");
            for (alone_hits, shared_hits) in alone.private_hits.iter().zip(&shared.private_hits) {
                let same = deviation(*alone_hits as f64, *shared_hits as f64);
                let limit = if alone.pages.migrated > 0 { MOVED_TOLERANCE } else { 0.0 };
                assert!(same <= limit, "{what}: private hits {alone_hits} {shared_hits}");
            }
            let latency = |of: &Report| of.latency.mean_ns.unwrap_or_default();
            for (figure, of) in [
                ("time", (alone.time_ms, shared.time_ms)),
                ("bandwidth", (bandwidth(&alone), bandwidth(&shared))),
                ("latency", (latency(&alone), latency(&shared))),
            ] {
                assert!(deviation(of.0, of.1) < TOLERANCE, "{what}: {figure} {of:?}");
            }
        }
    }
}

#[test]
fn results_do_not_depend_on_which_policies_run_together() {
    let machine = machine("bmpm-5");
    let policies = ["local", "interleave", "local+anb"];
    let workload = "ycsb-a:threads=2,footprint_mib=8,operations=20000";
    let shared = |texts: &[&str]| -> Vec<Report> {
        let all = texts.iter().map(|text| policy(&machine, text)).collect();
        let reports = run_shared(&machine, vec![job(workload)], all, SEED, &|_, _| true);
        reports.into_iter().map(|report| report.expect("a run")).collect()
    };
    let together = shared(&policies);
    for (text, together) in policies.iter().zip(together) {
        let alone = shared(&[text]).remove(0);
        let json = |report: &Report| serde_json::to_string(report).expect("plain data");
        assert_eq!(json(&alone), json(&together), "{text}");
    }
}

#[test]
fn failure_of_one_policy_leaves_the_others() {
    let machine = machine("memos");
    let text = "gups:threads=1,footprint_mib=400,operations=1000";
    let all = ["bind:node=dram", "local"].map(|text| policy(&machine, text)).into();
    let reports = run_shared(&machine, vec![job(text)], all, SEED, &|_, _| true);
    assert!(reports[0].as_ref().is_err_and(|error| error.to_string().contains("out of memory")));
    assert!(reports[1].as_ref().is_ok_and(|report| report.time_ms > 0.0));
}

#[test]
fn interrupt_ends_all_policies() {
    let machine = machine("memos");
    let all = ["interleave", "local"].map(|text| policy(&machine, text)).into();
    let endless = job("gups:threads=1,footprint_mib=16,operations=1000000000000");
    let reports =
        run_shared(&machine, vec![endless], all, SEED, &|_, done| done.is_none_or(|done| done == 0.0));
    assert!(
        reports.iter().all(|report| report.as_ref().is_err_and(|error| error.to_string() == "interrupted"))
    );
}

#[test]
fn threads_that_share_a_cpu_are_not_shared() {
    let machine = machine("memos");
    let cpus = machine.reduced().cpus();
    let threads = |threads: usize| job(&format!("gups:threads={threads},footprint_mib=4"));
    assert!(can_share(&machine, &[threads(cpus)]));
    assert!(!can_share(&machine, &[threads(cpus), threads(1)]));
    assert_eq!(threads(3).program.threads(), 3);
}

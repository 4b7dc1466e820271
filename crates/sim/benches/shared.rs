//! One pass for all policies against runs of their own: elapsed time, and deviations of results. The default
//! policies of `memtide compare`, on all processors. A last part is how far runs of their own deviate if the
//! cores' clock is 1 MHz higher: threads then touch pages in another order.
//!
//! `cargo bench -p memtide-sim --bench shared -- [PROGRAM..]`, PROGRAM a bundled trace or a workload.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use memtide_core::Machine;
use memtide_core::machine::bundled;
use memtide_policies::{Policy, default_comparison};
use memtide_sim::{Job, Report, run, run_shared};
use memtide_trace::{ReplayOptions, Trace};
use memtide_workloads::Params;

const MACHINE: &str = "bmpm-5";
const SEED: u64 = 1;

const PROGRAMS: [&str; 10] = [
    "redis.parquet",
    "sqlite3.parquet",
    "sort.parquet",
    "kmeans:threads=4",
    "ocean:threads=4",
    "is:threads=4",
    "pagerank:threads=4",
    "zipf:threads=4",
    "gups:threads=4,operations=1000000",
    "stream:threads=4",
];

fn main() {
    // Cargo passes options of its own.
    let named: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let is_test = std::env::args().any(|word| word == "--test");
    let machine = bundled::machine(MACHINE).expect("a bundled machine").expect("a checked machine");
    let policies = default_comparison();
    println!("{} policies on {MACHINE}, seed {SEED}, {} processors", policies.len(), processors());
    println!(
        "| program | alone, s | one pass, s | ratio | time, % | of policy | bandwidth, % | latency, % | time \
         of another clock, % | latency, % |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    let all: Vec<String> = PROGRAMS.map(str::to_owned).into();
    let programs = if named.is_empty() { all } else { named };
    for program in programs.iter().take(if is_test { 1 } else { programs.len() }) {
        println!("{}", row(&machine, &policies, program));
    }
}

fn row(machine: &Machine, policies: &[Policy], program: &str) -> String {
    let (alone, alone_time) = timed(|| each(machine, policies, program));
    let (shared, shared_time) = timed(|| {
        let all = policies.iter().map(|policy| simulated(machine, policy)).collect();
        let reports = run_shared(machine, vec![job(program)], all, SEED, &|_, _| true);
        reports.into_iter().map(|report| report.expect("a run")).collect::<Vec<Report>>()
    });
    let mut other = machine.clone();
    other.core.clock_mhz += 1.0;
    let other = each(&other, policies, program);
    let figures: [fn(&Report) -> f64; 3] = [
        |report| report.time_ms,
        |report| report.nodes.iter().map(|node| node.bandwidth_mbps).sum(),
        |report| report.latency.mean_ns.unwrap_or_default(),
    ];
    let [(time, at), (bandwidth, _), (latency, _)] = figures.map(|figure| largest(&alone, &shared, figure));
    let [(other_time, _), _, (other_latency, _)] = figures.map(|figure| largest(&alone, &other, figure));
    let policy = policies[at].name();
    let [alone_s, shared_s] = [alone_time, shared_time].map(|time| time.as_secs_f64());
    let ratio = alone_s / shared_s;
    let speed = format!("{alone_s:.2} | {shared_s:.2} | {ratio:.1}");
    let sensitivity = format!("{other_time:.2} | {other_latency:.2}");
    format!("| {program} | {speed} | {time:.2} | {policy} | {bandwidth:.2} | {latency:.2} | {sensitivity} |")
}

/// Largest deviation of a figure, in %, and the number of its policy.
fn largest(alone: &[Report], others: &[Report], figure: fn(&Report) -> f64) -> (f64, usize) {
    let pairs = alone.iter().zip(others).map(|(alone, other)| (figure(alone), figure(other)));
    let deviations = pairs.map(|(alone, other)| ((other / alone - 1.0) * 100.0).abs());
    deviations.zip(0..).fold((0.0, 0), |most, of| if of.0 > most.0 { of } else { most })
}

/// A run of each policy, on all processors.
fn each(machine: &Machine, policies: &[Policy], program: &str) -> Vec<Report> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..processors() {
            scope.spawn(|| {
                while let Some((index, policy)) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| Some((at, policies.get(at)?)))
                {
                    let policy = simulated(machine, policy);
                    let report = run(machine, vec![job(program)], policy, SEED, &mut |_| true);
                    done.lock().expect("no holder panics").push((index, report.expect("a run")));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("no holder panicked");
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, report)| report).collect()
}

fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    (work(), start.elapsed())
}

fn simulated(machine: &Machine, policy: &Policy) -> memtide_sim::Policy {
    let migrates = policy.migration_info().name != "none";
    let migration = migrates.then(|| policy.simulated_migration(machine));
    memtide_sim::Policy::new(policy.placement(machine).expect("a policy that fits the machine"), migration)
}

fn job(program: &str) -> Job<'static> {
    let made: Box<dyn memtide_core::Program + Send> = if program.ends_with(".parquet") {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces").join(program);
        let trace = Trace::open(&path).expect("a bundled trace");
        Box::new(trace.program(ReplayOptions::default()).expect("a trace"))
    } else {
        let (name, params) = program.split_once(':').unwrap_or((program, ""));
        let params: Params = params.parse().expect("parameters");
        memtide_workloads::program(name, &params, SEED).expect("a bundled workload")
    };
    Job::new(program, made)
}

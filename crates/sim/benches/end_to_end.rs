//! Accesses per second of CPU time through the whole simulated machine: 16 cores, caches, TLB, page tables,
//! dram nodes.
#![allow(missing_docs, reason = "criterion's macros")]

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use memtide_core::Machine;
use memtide_sim::{Job, Policy, run};
use memtide_workloads::Params;
use rustix::time::{ClockId, clock_gettime};

const SEED: u64 = 1;

/// The workload, and the operations of its 16 threads together.
const WORKLOADS: [(&str, u64); 3] = [("zipf", 8_000_000), ("uniform", 4_000_000), ("cached", 8_000_000)];

fn machine() -> Machine {
    let text = include_str!("../../../machines/bmpm-1.toml");
    let machine = Machine::parse("bmpm-1.toml", text).expect("a bundled machine");
    Machine { scale: 1, ..machine }
}

fn simulate(machine: &Machine, workload: &str, operations: u64) -> Duration {
    let mut params = Params::new();
    params.set("operations", operations).expect("a parameter given once");
    let program = memtide_workloads::program(workload, &params, SEED).expect("a bundled workload");
    let policy = memtide_policies::parse("local").expect("a known policy");
    let policy = Policy::new(policy.placement(machine).expect("a policy that fits the machine"), None);
    let job = Job::new(workload, program);
    let start = processor_time();
    run(machine, vec![job], policy, SEED, &mut |_| true).expect("a run");
    processor_time() - start
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn end_to_end(criterion: &mut Criterion) {
    let machine = machine();
    let mut group = criterion.benchmark_group("end-to-end");
    group.sample_size(10);
    for (workload, operations) in WORKLOADS {
        group.throughput(Throughput::Elements(operations));
        group.bench_with_input(BenchmarkId::from_parameter(workload), &operations, |bencher, &operations| {
            bencher.iter_custom(|times| (0..times).map(|_| simulate(&machine, workload, operations)).sum());
        });
    }
    group.finish();
}

criterion_group!(benches, end_to_end);
criterion_main!(benches);

//! Speed of one DRAM channel in CPU time, independent of host load: the DDR4-2400 configuration of the
//! accuracy tests, with FR-FCFS and refresh.
#![allow(missing_docs, reason = "criterion's macros")]

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use memtide_core::Time;
use memtide_core::machine::{Dram, Machine};
use memtide_memory::channel::{AddressMap, Channel, Place};
use memtide_memory::node::Completion;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::time::{ClockId, clock_gettime};

const REQUESTS: usize = 400_000;

/// Requests per batch.
const BATCH: usize = 256;

struct Request {
    at: Time,
    place: Place,
    write: bool,
}

fn device() -> Dram {
    let text = include_str!("../../../machines/ddr4-2400.toml");
    let machine = Machine::parse("ddr4-2400.toml", text).expect("the repository's machine is right");
    machine.nodes[0].dram.clone().expect("a dram node")
}

/// Poisson arrivals at a share of the bus's peak.
fn requests(dram: &Dram, load: f64, random: bool, writes: f64) -> Vec<Request> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut unit = move || (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    let map = AddressMap::new(dram);
    let mean_ps = dram.cycles(dram.burst.into()).0 as f64 / load;
    let mut at_ps = 0.0;
    let request = |i| {
        at_ps -= mean_ps * libm::log(1.0 - unit());
        let line = if random { (unit() * map.lines() as f64) as u64 } else { i as u64 };
        Request { at: Time(at_ps as u64), place: map.locate(line).1, write: unit() < writes }
    };
    (0..REQUESTS).map(request).collect()
}

fn serve(dram: &Dram, requests: &[Request], done: &mut Vec<Completion>) -> u64 {
    let mut channel = Channel::new(dram);
    let mut reads = 0;
    for (batch, requests) in requests.chunks(BATCH).enumerate() {
        for (i, request) in requests.iter().enumerate() {
            channel.push(request.at, request.place, request.write, (batch * BATCH + i) as u64);
        }
        channel.advance(requests[requests.len() - 1].at, done);
        reads += done.len() as u64;
        done.clear();
    }
    reads
}

fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn channel(criterion: &mut Criterion) {
    let dram = device();
    let mut group = criterion.benchmark_group("channel");
    group.throughput(Throughput::Elements(REQUESTS as u64)).sample_size(20);
    let mut done = Vec::new();
    let cases = [
        ("random reads, 75 % load", 0.75, true, 0.0),
        ("random reads, 85 % load", 0.85, true, 0.0),
        ("random, 1 write to 2 reads, 60 % load", 0.60, true, 1.0 / 3.0),
        ("sequential reads, 60 % load", 0.60, false, 0.0),
    ];
    for (name, load, random, writes) in cases {
        let requests = requests(&dram, load, random, writes);
        let mut measured = |iterations| {
            let start = processor_time();
            for _ in 0..iterations {
                black_box(serve(&dram, &requests, &mut done));
            }
            processor_time() - start
        };
        group.bench_function(name, |bencher| bencher.iter_custom(&mut measured));
    }
    group.finish();
}

criterion_group!(benches, channel);
criterion_main!(benches);

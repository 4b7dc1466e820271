//! An epoch of `relative-heat` on a host of 1,000 processes and 1 TB, of which a quarter is on fast memory:
//! 20,000 access samples, as 1 % of a core takes them in half a second, and its decision.
//!
//! Every process has 1 GiB in eight regions, half of them of huge pages. Nine tenths of the samples are in a
//! hot tenth of its pages. Moves and splits take place at once. The first epochs fill the table of pages that
//! were sampled; it prints the size of the saved state after them.
#![allow(missing_docs, reason = "criterion's macros")]

use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use memtide_core::machine::bundled;
use memtide_core::policy::{
    AccessSample, Action, Completion, Event, Migration, NodeView, Outcome, Plan, Region, View,
};
use memtide_core::{NodeId, PageSize, TaskId, ThreadId, Time, Vpn};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::time::{ClockId, clock_gettime};

const TASKS: u32 = 1000;
const REGIONS: u64 = 8;
const REGION_PAGES: u64 = 1 << 15;
const SAMPLES: usize = 20_000;
const WARM_UP: usize = 60;

/// A task's pages begin at multiples of this.
const START: u64 = 1 << 20;

fn node(node: u8, pages: u64, free_pages: u64) -> NodeView {
    NodeView::new(NodeId(node), pages, free_pages)
}

fn view() -> View {
    let all = u64::from(TASKS) * REGIONS * REGION_PAGES;
    let mut view = View { nodes: vec![node(0, all / 4, 0), node(1, all, all / 4)], ..View::default() };
    for task in (0..TASKS).map(TaskId) {
        for region in 0..REGIONS {
            let size = if region % 2 == 0 { PageSize::Base } else { PageSize::Huge };
            let start = Vpn(START + region * REGION_PAGES);
            let node = NodeId(u8::from(region >= REGIONS / 4));
            let pages = REGION_PAGES / size.base_pages();
            view.regions.push(Region { task, start, pages, size, node, reads: 0, writes: 0, age: 0 });
        }
    }
    view
}

fn sample(random: &mut Xoshiro256PlusPlus) -> Event {
    let task = TaskId(random.next_u32() % TASKS);
    let pages = REGIONS * REGION_PAGES;
    // One page of ten is hot.
    let page = match random.next_u32() % 10 {
        0 => random.next_u64() % pages,
        _ => random.next_u64() % (pages / 10) * 10,
    };
    let region = page / REGION_PAGES;
    Event::AccessSample(AccessSample {
        time: Time::ZERO,
        task,
        thread: ThreadId(0),
        page: Vpn(START + page),
        size: if region.is_multiple_of(2) { PageSize::Base } else { PageSize::Huge },
        node: NodeId(u8::from(region >= REGIONS / 4)),
        latency: Some(Time::from_ns(if region >= REGIONS / 4 { 250.0 } else { 110.0 })),
        period: 10_000,
        write: false,
    })
}

/// CPU time of this thread, which does not depend on the host's load.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().expect("it is not negative")
}

/// An epoch; returns the CPU time of the policy alone.
fn epoch(policy: &mut dyn Migration, view: &View, random: &mut Xoshiro256PlusPlus) -> Duration {
    let samples: Vec<Event> = (0..SAMPLES).map(|_| sample(random)).collect();
    let mut plan = Plan::default();
    let begin = cpu_time();
    samples.iter().for_each(|event| policy.on_event(event, view, &mut plan));
    policy.decide(view, &mut plan);
    for planned in plan.actions().iter().filter(|planned| matches!(planned.action, Action::Move(_))) {
        let done = Completion { time: Time::ZERO, planned: planned.clone(), outcome: Outcome::MADE };
        policy.on_event(&Event::Completion(done), view, &mut Plan::default());
    }
    cpu_time() - begin
}

fn large_host(criterion: &mut Criterion) {
    let machine = bundled::machine("ddr5-cxl").expect("a bundled machine").expect("a checked machine");
    let mut policy = memtide_policies::parse("local+relative-heat").expect("a policy").migration(&machine);
    let (view, mut random) = (view(), Xoshiro256PlusPlus::seed_from_u64(1));
    let longest = (0..WARM_UP).map(|_| epoch(policy.as_mut(), &view, &mut random)).max();
    println!(
        "longest of the first {WARM_UP} epochs: {:.1} ms",
        longest.unwrap_or_default().as_secs_f64() * 1e3
    );
    println!("state: {:.1} MB of text", policy.state().len() as f64 / 1e6);
    criterion.bench_function("epoch of 1,000 processes", |bencher| {
        bencher.iter_custom(|epochs| (0..epochs).map(|_| epoch(policy.as_mut(), &view, &mut random)).sum());
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).measurement_time(Duration::from_secs(5));
    targets = large_host
}
criterion_main!(benches);

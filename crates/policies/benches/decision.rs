//! A decision of `relative-heat` on one process of 512 MiB of base pages, of which 384 MiB are on fast
//! memory, once every 32 epochs of 600 access samples each: of lines that are read with zipfian popularity.
//!
//! Decisions are as rare as they may be, as each is said to have cost a second of processor time. Moves take
//! place at once.
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

const PAGES: u64 = 1 << 17;
const FAST_PAGES: u64 = PAGES / 4 * 3;
const REGION_PAGES: u64 = 1 << 8;
const LINES: u64 = PAGES * 64;

/// Most popular lines, which a last-level cache of 1 MiB holds.
const CACHED_LINES: f64 = 16384.0;

const EPOCHS: u32 = 32;
const SAMPLES: u32 = 600;
const THREADS: u32 = 2;
const EPOCH: Time = Time::from_ms(500);
const WARM_UP: usize = 12;

struct Host {
    now: Time,
    view: View,
    nodes: Vec<NodeId>,
    random: Xoshiro256PlusPlus,
}

impl Host {
    fn new() -> Host {
        let node = |page| NodeId(u8::from(page >= FAST_PAGES));
        let nodes =
            vec![NodeView::new(NodeId(0), FAST_PAGES, 0), NodeView::new(NodeId(1), PAGES, PAGES * 3 / 4)];
        let mut view = View { nodes, ..View::default() };
        for start in (0..PAGES).step_by(REGION_PAGES as usize) {
            let (task, size, pages) = (TaskId(0), PageSize::Base, REGION_PAGES);
            let region = Region {
                task,
                start: Vpn(start),
                pages,
                size,
                node: node(start),
                reads: 0,
                writes: 0,
                age: 0,
            };
            view.regions.push(region);
        }
        Host {
            now: Time::ZERO,
            view,
            nodes: (0..PAGES).map(node).collect(),
            random: Xoshiro256PlusPlus::seed_from_u64(1),
        }
    }

    fn sample(&mut self) -> Event {
        let unit = (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        // Rank r has a share of nearly 1 / r; its line is anywhere.
        let rank = CACHED_LINES * libm::pow(LINES as f64 / CACHED_LINES, unit);
        let line = (rank as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) % LINES;
        let page = line / 64;
        let node = self.nodes[page as usize];
        self.now += Time(EPOCH.0 / u64::from(SAMPLES));
        Event::AccessSample(AccessSample {
            time: self.now,
            task: TaskId(0),
            thread: ThreadId(rank as u32 % THREADS),
            page: Vpn(page),
            size: PageSize::Base,
            node,
            latency: Some(Time::from_ns(if node == NodeId(0) { 110.0 } else { 250.0 })),
            period: 1000,
            write: false,
        })
    }

    /// As many epochs as there are from one decision to the next; returns the policy's processor time but for
    /// the events.
    fn epochs(&mut self, policy: &mut dyn Migration) -> Duration {
        let mut took = Duration::ZERO;
        for epoch in 0..EPOCHS {
            for _ in 0..SAMPLES {
                let sample = self.sample();
                policy.on_event(&sample, &self.view, &mut Plan::default());
            }
            self.view.decision_time = Some(Time::from_ms(if epoch == 0 { 1000 } else { 0 }));
            let mut plan = Plan::default();
            let begin = cpu_time();
            policy.decide(&self.view, &mut plan);
            took += cpu_time() - begin;
            self.complete(policy, &plan);
        }
        took
    }

    fn complete(&mut self, policy: &mut dyn Migration, plan: &Plan) {
        for planned in plan.actions() {
            if let Action::Move(wanted) = &planned.action {
                self.nodes[wanted.page.0 as usize] = wanted.to;
            }
            let done = Completion { time: Time::ZERO, planned: planned.clone(), outcome: Outcome::MADE };
            policy.on_event(&Event::Completion(done), &self.view, &mut Plan::default());
        }
    }
}

/// Processor time of this thread, which does not depend on the host's load.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().expect("it is not negative")
}

fn decision(criterion: &mut Criterion) {
    let machine = bundled::machine("ddr5-cxl").expect("a bundled machine").expect("a checked machine");
    let mut policy = memtide_policies::parse("local+relative-heat").expect("a policy").migration(&machine);
    let mut host = Host::new();
    (0..WARM_UP).for_each(|_| _ = host.epochs(policy.as_mut()));
    criterion.bench_function("decision on 512 MiB of base pages", |bencher| {
        bencher.iter_custom(|decisions| (0..decisions).map(|_| host.epochs(policy.as_mut())).sum());
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10).measurement_time(Duration::from_secs(3));
    targets = decision
}
criterion_main!(benches);

//! Migration by regions: the monitor finds what a program accesses, and `hot-cold` moves it to the fast tier.

use crate::runs;
use crate::support;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use memtide_core::policy::{Event, Migration, Plan, Region, Sensor, Sensors, Traffic, View, Wake};
use memtide_core::{Access, Batch, Machine, NodeId, Then};
use memtide_sim::{Policy, Report, run};

use crate::runs::job;
use crate::support::{MachineText, alone, doing, load, mixed, store, touch};

const PAGES: u64 = 2048;
/// A quarter, touched last: the fast node is full by then.
const HOT: std::ops::Range<u64> = 1536..2048;
const POLICY: &str = "local+hot-cold:epoch_ms=10:sampling_us=100:regions=60";

/// One CPU with this many TLB entries, and 4 MiB of fast memory; slow memory fits everything.
fn machine(tlb: u32) -> Machine {
    let mut machine = MachineText::new("sample_ns = 80")
        .last_level(64, 2)
        .tlb(tlb * 8, 20)
        .socket("s0", 1)
        .socket("s1", 1)
        .node("fast", 0, "s0", 32, 100.0, 10_000.0)
        .node("slow", 1, "s1", 512, 200.0, 10_000.0)
        .link("s0", "s1", 20.0, 1e6)
        .machine();
    machine.scale = 8;
    machine
}

/// An epoch's view, and the number of moves it planned.
#[derive(Clone, Debug, Default, PartialEq)]
struct Epoch {
    seen: Vec<Region>,
    traffic: Vec<Traffic>,
    moves: usize,
}

/// A policy, and a log of its epochs.
struct Recorded {
    policy: Box<dyn Migration>,
    epochs: Arc<Mutex<Vec<Epoch>>>,
}

impl Migration for Recorded {
    fn sensors(&self) -> Sensors {
        self.policy.sensors().want(Sensor::NodeTraffic)
    }

    fn on_event(&mut self, event: &Event, view: &View, plan: &mut Plan) {
        self.policy.on_event(event, view, plan);
    }

    fn decide(&mut self, view: &View, plan: &mut Plan) -> Wake {
        let wake = self.policy.decide(view, plan);
        let traffic = view.nodes.iter().filter_map(|node| node.traffic).collect();
        let epoch = Epoch { seen: view.regions.iter().collect(), traffic, moves: plan.moves().count() };
        self.epochs.lock().expect("no panic").push(epoch);
        wake
    }
}

fn simulate(machine: &Machine, batches: Vec<Batch>, seed: u64) -> (Vec<Epoch>, Report) {
    let policy = memtide_policies::parse(POLICY).expect("a known policy");
    let epochs = Arc::new(Mutex::new(Vec::new()));
    let migration = Recorded { policy: policy.simulated_migration(machine), epochs: epochs.clone() };
    let placement = policy.placement(machine).expect("a policy that fits the machine");
    let policy = Policy::new(placement, Some(Box::new(migration)));
    let job = job(alone(batches), &[0]);
    let report = run(machine, vec![job], policy, seed, &mut |_| true).expect("a sound program");
    let epochs = std::mem::take(&mut *epochs.lock().expect("no panic"));
    (epochs, report)
}

/// Touches all pages, and then accesses lines of the hot ones.
fn program(accesses: u64, access: fn(u64) -> Access) -> Vec<Batch> {
    let line = |n| HOT.start * 4096 + mixed(n) % ((HOT.end - HOT.start) * 64) * 64;
    vec![touch(0, PAGES), doing((0..accesses).map(move |n| access(line(n))))]
}

fn pages(region: &Region) -> std::ops::Range<u64> {
    region.start.0..region.start.0 + region.pages
}

/// Pages in regions that were accessed in more than a quarter of the samples.
fn found_hot(seen: &[Region]) -> BTreeSet<u64> {
    seen.iter().filter(|region| region.reads.max(region.writes) > 5).flat_map(pages).collect()
}

fn on(seen: &[Region], node: NodeId) -> BTreeSet<u64> {
    seen.iter().filter(|region| region.node == node).flat_map(pages).collect()
}

/// The share of all pages that are in both sets or in neither.
fn agreement(a: &BTreeSet<u64>, b: &BTreeSet<u64>) -> f64 {
    1.0 - a.symmetric_difference(b).count() as f64 / PAGES as f64
}

#[test]
fn hot_ends_on_fast_tier_and_cold_off_it() {
    for (what, access, seed) in
        [("read", load as fn(u64) -> Access, 1), ("read", load, 2), ("written", store, 1)]
    {
        let (epochs, report) = simulate(&machine(16), program(1_500_000, access), seed);
        let hot: BTreeSet<u64> = HOT.collect();
        let last = &epochs.last().expect("an epoch").seen;
        assert_eq!(last.iter().flat_map(pages).count() as u64, PAGES, "each page is in one region");
        let found = agreement(&found_hot(last), &hot);
        assert!(found >= 0.9, "{what}: the regions are right on {:.1} % of the pages", 100.0 * found);
        let fast = on(last, NodeId(0));
        assert!(
            agreement(&fast, &hot) >= 0.9,
            "{what}: {} of the fast pages are hot",
            fast.intersection(&hot).count()
        );
        let moves: Vec<usize> = epochs.iter().map(|epoch| epoch.moves).collect();
        let late: usize = moves[moves.len() / 2..].iter().sum();
        let all: usize = moves.iter().sum();
        assert!(all >= 1200 && late * 20 <= all, "{what}: moves should die down: {moves:?}");
        assert_eq!(report.pages.observations, Some(epochs.len() as u64));
        let written = last.iter().any(|region| region.writes > 5);
        assert_eq!(written, what == "written", "only what is written has writes");
    }
}

#[test]
fn regions_stay_within_limit_and_idle_ones_age() {
    let (epochs, _) = simulate(&machine(16), program(700_000, load), 1);
    for Epoch { seen, .. } in &epochs {
        // A region on both nodes is reported as runs.
        let regions = seen.chunk_by(|a, b| (a.reads, a.writes, a.age) == (b.reads, b.writes, b.age)).count();
        assert!(regions <= 60, "{regions} regions");
    }
    let ages = |epoch: &Epoch| {
        let cold = epoch.seen.iter().filter(|region| pages(region).end < 1000);
        cold.map(|region| region.age).min().expect("cold regions")
    };
    let [early, late] = [3, 1].map(|from_end| ages(&epochs[epochs.len() - from_end]));
    let grown = late - early;
    assert!((16..=20).contains(&grown), "two epochs of ten intervals each, rounded down by merging: {grown}");
}

#[test]
fn regions_depend_on_seed_alone() {
    let seen = |seed| simulate(&machine(16), program(200_000, load), seed);
    let [(first, report), (again, second), (other, _)] = [1, 1, 2].map(seen);
    assert_eq!((first.clone(), format!("{report:?}")), (again, format!("{second:?}")));
    assert!(!first.is_empty() && first != other);
}

#[test]
fn pages_that_the_tlb_keeps_look_idle() {
    let reads = |tlb| {
        let (epochs, _) = simulate(&machine(tlb), program(400_000, load), 1);
        epochs.last().expect("an epoch").seen.iter().map(|region| region.reads).max()
    };
    assert!(reads(16) > Some(5), "{:?} samples", reads(16));
    assert!(reads(1024) <= Some(1), "{:?} samples", reads(1024));
}

#[test]
fn short_run_or_policy_without_regions_observes_nothing() {
    let (epochs, report) = simulate(&machine(16), vec![touch(0, 10)], 1);
    assert_eq!((epochs.len(), report.pages.observations), (0, Some(0)));
    let report = runs::simulate(&machine(16), "local+anb", alone([touch(0, 10)]));
    assert_eq!(report.pages.observations, None);
}

#[test]
fn each_sample_takes_system_time_which_shrinks_with_the_scale() {
    let batches = vec![touch(0, 1), support::after([], Then::Work(100_000))];
    let (epochs, report) = simulate(&machine(16), batches, 1);
    assert_eq!(epochs.len(), 50 / 1250);
    // 50 us of work: none of the four samples sees the page, as nothing is watched before an aggregation.
    assert_eq!(report.spent.kernel_threads_ms, 0.0);
    let batches = vec![touch(0, 1), support::after([], Then::Work(2_000_000))];
    let (_, report) = simulate(&machine(16), batches, 1);
    // 1 ms has 80 samples, of which the first 10 watch nothing; one costs 80 ns / 8.
    let samples = report.spent.kernel_threads_ms * 1e6 / 10.0;
    assert!((69.0..=71.0).contains(&samples), "{samples} samples");
}

#[test]
fn node_traffic_matches_device_counters() {
    let (epochs, report) = simulate(&machine(16), program(1_500_000, store), 1);
    assert!(epochs.len() > 3, "{} epochs", epochs.len());
    for both in epochs.windows(2) {
        for (before, after) in both[0].traffic.iter().zip(&both[1].traffic) {
            assert!(before.read_bytes <= after.read_bytes && before.written_bytes <= after.written_bytes);
        }
    }
    let last = &epochs.last().expect("an epoch").traffic;
    assert_eq!(last.len(), report.nodes.len());
    for (counted, node) in last.iter().zip(&report.nodes) {
        let bytes = counted.read_bytes + counted.written_bytes;
        let all = node.bandwidth_mbps * 1e6 * report.time_ms * 1e-3;
        assert!(bytes as f64 <= 1.001 * all && bytes as f64 > 0.6 * all, "{bytes} of {all}");
    }
}

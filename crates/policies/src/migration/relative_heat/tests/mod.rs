mod collapses;
mod free_memory;
mod load;
mod samples;
mod splits;

use std::collections::BTreeSet;
use std::ops::Range;

use memtide_core::policy::{AccessSample, Page, Planned, Region};
use memtide_core::{ActionId, TaskId, ThreadId, Vpn};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;
use crate::testing::{N, machine, moves_of, node, node_view};

const FAST: NodeId = NodeId(0);
const SLOW: NodeId = NodeId(1);

/// A fast node, and one with three times its latency.
fn two() -> Machine {
    machine(&[node(0, 0, 9000.0), N { read_ns: 240.0, ..node(1, 0, 3000.0) }])
}

/// The same, whose writes take this long on the slow node.
fn with_writes(write_ns: f64) -> Machine {
    let fast = N { write_ns: 80.0, ..node(0, 0, 9000.0) };
    machine(&[fast, N { read_ns: 240.0, write_ns, ..node(1, 0, 3000.0) }])
}

fn policy(text: &str) -> Box<dyn Migration> {
    policy_on(&two(), text)
}

/// If nothing is said of it, 10 and 20 of a node's 1,000 pages stay free.
fn policy_on(machine: &Machine, text: &str) -> Box<dyn Migration> {
    let free = if text.contains("low=") { "" } else { ":low=1:high=2" };
    crate::parse(&format!("local+{text}{free}")).unwrap_or_else(|e| panic!("{e}")).migration(machine)
}

/// A region on a node: first page, pages, samples of fifty that were accesses.
fn region(start: u64, pages: u64, node: NodeId, reads: u32) -> Region {
    let (task, start, size) = (TaskId(0), Vpn(start), PageSize::Base);
    Region { task, start, pages, size, node, reads, writes: 0, age: 0 }
}

fn seen(regions: &[Region], free: u64) -> View {
    let mut view = View { nodes: vec![node_view(FAST, 1000, free)], ..View::default() };
    regions.iter().for_each(|&region| view.regions.push(region));
    view
}

/// Pages that go up and that go down in the first plan, after three epochs of the same.
fn decide(text: &str, regions: &[Region], free: u64) -> (Vec<u64>, Vec<u64>) {
    decide_on(text, &seen(regions, free))
}

fn decide_on(text: &str, view: &View) -> (Vec<u64>, Vec<u64>) {
    let (mut policy, mut plan) = (policy(text), Plan::default());
    for _ in 0..EPOCHS_MIN {
        assert!(moves_of(&plan).is_empty(), "too early");
        policy.decide(view, &mut plan);
    }
    let pages = |to| {
        let moves = moves_of(&plan).into_iter().filter(move |(m, _)| m.to == to);
        moves.map(|(m, _)| m.page.0).collect::<Vec<_>>()
    };
    (pages(FAST), pages(SLOW))
}

#[test]
fn hotter_pages_take_the_place_of_cooler_ones_whatever_their_counts() {
    // All were accessed in each tenth of the epoch: none is hot or cold by itself.
    for (slow, fast) in [(50, 20), (15, 0), (30, 5)] {
        let (up, down) =
            decide("relative-heat", &[region(0, 10, SLOW, slow), region(100, 980, FAST, fast)], 20);
        assert_eq!((up, down.len()), ((0..10).collect(), 10), "{slow} for {fast}");
    }
}

#[test]
fn nothing_moves_for_equally_hot_pages() {
    for heat in [0, 3, 25, 50] {
        let regions = [region(0, 100, SLOW, heat), region(100, 980, FAST, heat)];
        assert_eq!(decide("relative-heat", &regions, 20), (vec![], vec![]), "{heat}");
    }
    let similar = [region(0, 100, SLOW, 26), region(100, 980, FAST, 16)];
    assert_eq!(
        decide("relative-heat:deviations=0", &similar, 20),
        (vec![], vec![]),
        "0.73 and 0.39 accesses"
    );
    let chance = [region(0, 100, SLOW, 10), region(100, 980, FAST, 5)];
    assert_eq!(decide("relative-heat", &chance, 20), (vec![], vec![]), "10 and 5 of 50 may be chance");
    assert_eq!(decide("relative-heat:deviations=0", &chance, 20).0.len(), 100);
}

#[test]
fn move_that_does_not_pay_in_time_is_not_made() {
    let regions = [region(0, 10, SLOW, 1)];
    assert_eq!(decide("relative-heat", &regions, 800).0.len(), 10);
    // 0.03 accesses in 10 ms save 160 ns each: 5 ns in 10 ms. The move takes 800 ns and the copy.
    assert_eq!(decide("relative-heat:payback_ms=1000", &regions, 800).0, Vec::<u64>::new());
}

#[test]
fn huge_page_makes_room_for_base_pages_and_is_moved_whole() {
    let huge =
        |start, pages, node, reads| Region { size: PageSize::Huge, ..region(start, pages, node, reads) };
    let (up, down) = decide("relative-heat", &[region(0, 10, SLOW, 30), huge(512, 1, FAST, 1)], 20);
    assert_eq!((up, down), ((0..10).collect(), vec![512]));
    // 6,000 of 10,000 samples of a huge page are not more than 20 of each of 512 base pages, but more than
    // none.
    for (accessed, expected) in [(20, (vec![], 0)), (0, (vec![512], 512))] {
        let mut view = seen(&[huge(512, 1, SLOW, 6000), region(2048, 980, FAST, accessed)], 20);
        view.region_samples = Some(10_000);
        let (up, down) = decide_on("relative-heat", &view);
        assert_eq!((up, down.len()), expected);
    }
}

#[test]
fn resumed_policy_decides_as_the_one_that_was_saved() {
    let epochs = [
        seen(&[region(0, 600, SLOW, 9), region(600, 980, FAST, 8)], 20),
        seen(&[region(0, 300, SLOW, 40), region(300, 300, SLOW, 2), region(600, 980, FAST, 5)], 20),
    ];
    let mut saved = policy("relative-heat");
    (1..EPOCHS_MIN).for_each(|_| _ = saved.decide(&epochs[0], &mut Plan::default()));
    let mut resumed = policy("relative-heat");
    resumed.resume(&saved.state()).unwrap();
    let plans = [saved, resumed].map(|mut policy| {
        let mut plan = Plan::default();
        policy.decide(&epochs[1], &mut plan);
        moves_of(&plan)
    });
    assert!(!plans[0].is_empty());
    assert_eq!(plans[0], plans[1]);
    let mut saved = policy("relative-heat");
    let [by_chance, alike] = [(0..300).step_by(7), (0..300).step_by(1)].map(|pages| samples(pages, SLOW, 3));
    let others = samples(600..1580, FAST, 1);
    for events in [&by_chance, &alike, &others, &by_chance, &others] {
        events.iter().for_each(|event| saved.on_event(event, &epochs[1], &mut Plan::default()));
        saved.decide(&epochs[1], &mut Plan::default());
    }
    let mut resumed = policy("relative-heat");
    resumed.resume(&saved.state()).unwrap();
    for policy in [&mut saved, &mut resumed] {
        by_chance.iter().for_each(|event| policy.on_event(event, &epochs[1], &mut Plan::default()));
    }
    let plans = [&mut saved, &mut resumed].map(|policy| {
        let mut plan = Plan::default();
        policy.decide(&epochs[1], &mut plan);
        moves_of(&plan)
    });
    assert_eq!(plans[0], plans[1]);
    assert_eq!(saved.state(), resumed.state());
    for text in
        ["x", "[1]", r#"[{"task":0,"start":4,"end":4,"size":"base","node":0,"accessed":0,"samples":0}]"#]
    {
        assert!(policy("relative-heat").resume(text).is_err(), "{text}");
    }
}

#[test]
fn state_that_names_a_node_that_is_not_there_is_refused() {
    let mut saved = policy("relative-heat");
    saved.decide(&seen(&[region(0, 100, SLOW, 40)], 20), &mut Plan::default());
    let state = saved.state();
    assert_eq!(policy("relative-heat").resume(&state), Ok(()));
    let elsewhere = state.replace(r#""node":1"#, r#""node":9"#);
    assert!(elsewhere != state && policy("relative-heat").resume(&elsewhere).is_err());
}

/// Samples of these pages of a node, this many of each.
fn samples(pages: impl Iterator<Item = u64>, node: NodeId, each: u64) -> Vec<Event> {
    let latency = if node == FAST { Time::from_ns(80.0) } else { Time::from_ns(240.0) };
    let (time, task, thread, size) = (Time::ZERO, TaskId(0), ThreadId(0), PageSize::Base);
    let of = move |page| {
        let page = Vpn(page);
        Event::AccessSample(AccessSample {
            time,
            task,
            thread,
            page,
            size,
            node,
            latency: Some(latency),
            period: 1000,
            write: false,
        })
    };
    pages.flat_map(|page| (0..each).map(move |_| of(page))).collect()
}

/// Pages that go up and down in each epoch, which all have the same samples; all moves are made.
fn epochs(policy: &mut dyn Migration, view: &View, events: &[Event], epochs: i32) -> Vec<[Vec<u64>; 2]> {
    let mut all = Vec::new();
    for _ in 0..epochs {
        let mut plan = Plan::default();
        events.iter().for_each(|event| policy.on_event(event, view, &mut plan));
        policy.decide(view, &mut plan);
        let moves = moves_of(&plan);
        for (at, (made, reason)) in moves.iter().enumerate() {
            let planned = Planned { id: ActionId(at as u64), action: Action::Move(*made), reason: *reason };
            let done = Completion { time: Time::ZERO, planned, outcome: Outcome::MADE };
            policy.on_event(&Event::Completion(done), view, &mut Plan::default());
        }
        all.push(
            [FAST, SLOW].map(|to| {
                moves.iter().filter(|(made, _)| made.to == to).map(|(made, _)| made.page.0).collect()
            }),
        );
    }
    all
}

fn with_size(mut events: Vec<Event>, of: PageSize) -> Vec<Event> {
    for event in &mut events {
        let Event::AccessSample(sample) = event else { continue };
        sample.size = of;
    }
    events
}

fn as_stores(mut events: Vec<Event>) -> Vec<Event> {
    for event in &mut events {
        let Event::AccessSample(sample) = event else { continue };
        sample.write = true;
    }
    events
}

/// Accesses of a thread, of which one of `period` is sampled, one each interval.
fn of_thread(mut events: Vec<Event>, number: u32, period: u32, interval: Time) -> Vec<Event> {
    for (at, event) in (0..).zip(&mut events) {
        let Event::AccessSample(sample) = event else { continue };
        (sample.thread, sample.period, sample.time) = (ThreadId(number), period, interval * at);
    }
    events
}

/// One each 5 ms from that time on, so that the accesses of their thread do not overlap.
fn from_time(mut events: Vec<Event>, time: Time) -> Vec<Event> {
    for (at, event) in (0..).zip(&mut events) {
        let Event::AccessSample(sample) = event else { continue };
        sample.time = time + Time::from_ms(5) * at;
    }
    events
}

fn with_latency(mut events: Vec<Event>, latency_ns: f64) -> Vec<Event> {
    for event in &mut events {
        let Event::AccessSample(sample) = event else { continue };
        sample.latency = Some(Time::from_ns(latency_ns));
    }
    events
}

use super::*;
use crate::testing::{N, machine, moves_of, node, node_view};
use std::collections::BTreeSet;

use memtide_core::policy::{AccessSample, Page, Planned, Region};
use memtide_core::{ActionId, TaskId, ThreadId, Vpn};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const FAST: NodeId = NodeId(0);
const SLOW: NodeId = NodeId(1);

/// A fast node, and one with three times its latency.
fn two() -> Machine {
    machine(&[node(0, 0, 9000.0), N { read_ns: 240.0, ..node(1, 0, 3000.0) }])
}

fn policy(text: &str) -> Box<dyn Migration> {
    crate::parse(&format!("local+{text}")).unwrap_or_else(|e| panic!("{e}")).migration(&two())
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
fn idle_pages_stay_on_fast_memory_that_has_room() {
    let regions = [region(0, 100, FAST, 0), region(100, 100, SLOW, 0), region(200, 50, SLOW, 30)];
    let (up, down) = decide("relative-heat", &regions, 800);
    assert_eq!((up, down), ((200..250).collect(), vec![]));
}

#[test]
fn move_that_does_not_pay_in_time_is_not_made() {
    let regions = [region(0, 10, SLOW, 1)];
    assert_eq!(decide("relative-heat", &regions, 800).0.len(), 10);
    // 0.03 accesses in 10 ms save 160 ns each: 5 ns in 10 ms. The move takes 800 ns and the copy.
    assert_eq!(decide("relative-heat:payback_ms=1000", &regions, 800).0, Vec::<u64>::new());
}

#[test]
fn hottest_go_first_and_limits_are_kept() {
    let regions = [
        region(0, 100, SLOW, 20),
        region(100, 100, SLOW, 40),
        region(200, 700, FAST, 1),
        region(900, 100, FAST, 0),
    ];
    let (up, down) = decide("relative-heat:pages=60", &regions, 20);
    assert_eq!((up, down), ((100..160).collect(), (900..960).collect()));
    let (up, down) = decide("relative-heat:low=3:high=3", &regions[..2], 100);
    assert_eq!((up.len(), down.len()), (70, 0), "3 % of the node's 1,000 pages stay free");
    let (up, down) = decide("relative-heat:low=2:high=4", &regions[..2], 100);
    assert_eq!((up.len(), down.len()), (60, 0), "room between low and high is not for promotions");
    let victims = [region(0, 100, SLOW, 40), region(200, 5, FAST, 0), region(300, 900, FAST, 40)];
    let (up, down) = decide("relative-heat:low=2:high=4", &victims, 30);
    assert_eq!((up.len(), down.len()), (5, 5), "nor if others make room");
}

#[test]
fn full_node_is_demoted_until_high_is_free() {
    let (up, down) =
        decide("relative-heat:low=2:high=5", &[region(0, 900, FAST, 9), region(900, 90, FAST, 2)], 10);
    assert_eq!((up, down), (vec![], (900..940).collect()));
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

#[test]
fn samples_find_the_hot_pages_in_regions_of_one_heat_and_each_moves_once() {
    let view = seen(&[region(0, 1000, SLOW, 25), region(2000, 980, FAST, 25)], 20);
    let scattered = || (0..1000).step_by(100).flat_map(|start| start..start + 4);
    let mut policy = policy("relative-heat");
    let moved = epochs(policy.as_mut(), &view, &samples(scattered(), SLOW, 10), EPOCHS_MIN);
    let (last, before) = moved.split_last().unwrap();
    assert!(before.iter().all(|[up, down]| up.is_empty() && down.is_empty()), "too early");
    let [mut up, down] = last.clone();
    up.sort_unstable();
    assert_eq!(up, scattered().collect::<Vec<_>>());
    assert_eq!(down.len(), 40);
    assert!(down.iter().all(|page| (2000..2980).contains(page)));
    // The regions still say that they are on the slow node, and the policy knows better.
    let moved = epochs(policy.as_mut(), &view, &samples(scattered(), FAST, 10), 5);
    assert!(moved.iter().all(|[up, down]| up.is_empty() && down.is_empty()), "{moved:?}");
    // They cool down, and others need their place.
    let others = 510..550;
    let moved = epochs(policy.as_mut(), &view, &samples(others.clone(), SLOW, 100), 40);
    let up: BTreeSet<u64> = moved.iter().flat_map(|[up, _]| up.clone()).collect();
    assert_eq!(up, others.collect());
}

#[test]
fn equally_sampled_pages_stay_and_so_do_those_that_prefetching_hides() {
    let view = seen(&[region(0, 1000, SLOW, 0), region(2000, 980, FAST, 0)], 20);
    let fast = samples(2000..2980, FAST, 2);
    let is_still = |events: &[Event]| {
        let moved = epochs(policy("relative-heat").as_mut(), &view, events, 4);
        moved.into_iter().flatten().all(|pages| pages.is_empty())
    };
    let mut slow = samples(0..1000, SLOW, 2);
    assert!(is_still(&[fast.clone(), slow].concat()));
    slow = with_latency(samples(0..1000, SLOW, 20), 12.0);
    assert!(is_still(&[fast, slow].concat()));
}

#[test]
fn cold_pages_of_a_saturated_huge_page_yield_by_samples() {
    // Each of them has an access in every sampling interval.
    let huge = |start, node| Region { size: PageSize::Huge, ..region(start, 1, node, 50) };
    let view = seen(&[huge(512, SLOW), huge(1024, FAST)], 20);
    let events = with_size(samples(512..1024, SLOW, 10), PageSize::Huge);
    let moved = epochs(policy("relative-heat").as_mut(), &view, &events, EPOCHS_MIN);
    assert_eq!(moved.last().unwrap(), &[vec![512], vec![1024]]);
    let none = epochs(policy("relative-heat:period=0").as_mut(), &view, &[], EPOCHS_MIN);
    assert!(none.iter().flatten().all(|pages| pages.is_empty()));
}

#[test]
fn pages_that_are_never_accessed_again_stop_being_promoted_until_others_stay_hot() {
    let view = seen(&[region(0, 100_000, SLOW, 0), region(200_000, 980, FAST, 0)], 20);
    let mut policy = policy("relative-heat:half_life_ms=500");
    let mut promoted = |first: u64| {
        let mut events = samples(first..first + 10, SLOW, 20);
        for event in &mut events {
            let Event::AccessSample(sample) = event else { continue };
            sample.period = 10;
        }
        epochs(policy.as_mut(), &view, &events, 1)[0][0].len()
    };
    let changing: Vec<usize> = (0..100).map(|epoch| promoted(epoch * 300)).collect();
    assert!((30..100).contains(&changing.iter().sum::<usize>()), "{changing:?}");
    assert_eq!(changing[10..].iter().sum::<usize>(), 0, "{changing:?}");
    let steady: Vec<usize> = (0..30).map(|_| promoted(50_000)).collect();
    assert!(steady.contains(&10), "{steady:?}");
}

/// Pages that go up in 60 epochs, over and over, if pages on slow memory from 0 on, and on fast memory from
/// 10,000 on, are accessed in proportion to these weights.
fn promoted_by_chance(pages: u64, weight: impl Fn(u64) -> u64) -> Vec<u64> {
    let mut view = seen(&[region(0, pages, SLOW, 25), region(10_000, pages, FAST, 25)], 0);
    view.nodes = vec![node_view(FAST, pages + pages / 40, pages / 40)];
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut nodes: Vec<NodeId> = (0..20_000).map(|page| if page < 10_000 { SLOW } else { FAST }).collect();
    let weighted = (0..pages).chain(10_000..10_000 + pages);
    let weighted: Vec<u64> = weighted.flat_map(|page| (0..weight(page)).map(move |_| page)).collect();
    let mut policy = policy("relative-heat");
    let mut promoted = Vec::new();
    for _ in 0..60 {
        let events = (0..2000).flat_map(|_| {
            let page = weighted[random.next_u64() as usize % weighted.len()];
            samples([page].into_iter(), nodes[page as usize], 1)
        });
        let events: Vec<Event> = events.collect();
        let [up, down] = &epochs(policy.as_mut(), &view, &events, 1)[0];
        up.iter().for_each(|&page| nodes[page as usize] = FAST);
        down.iter().for_each(|&page| nodes[page as usize] = SLOW);
        promoted.extend(up);
    }
    promoted
}

#[test]
fn pages_that_are_accessed_alike_are_hardly_exchanged_by_chance() {
    let alike = promoted_by_chance(8000, |_| 1).len();
    assert!(alike < 240, "{alike} of 8000 pages: 3 % in 60 epochs");
    let is_hot = |page: u64| page < 8000 && page % 256 < 4;
    let promoted = promoted_by_chance(8000, |page| if is_hot(page) { 100 } else { 1 });
    let hot: BTreeSet<u64> = promoted.iter().copied().filter(|&page| is_hot(page)).collect();
    assert_eq!(hot.len(), 128, "of 8000 / 256 * 4 hot pages");
}

#[test]
fn memory_as_hot_as_what_may_come_is_not_freed_for_it() {
    for reads in [1, 9, 50] {
        let alike = [region(0, 900, FAST, reads), region(900, 90, FAST, reads)];
        assert_eq!(decide("relative-heat", &alike, 0), (vec![], vec![]), "{reads}");
    }
    let idle = [region(0, 990, FAST, 0)];
    assert_eq!(decide("relative-heat", &idle, 0).1.len(), 30, "idle pages are");
    let mut view = seen(&idle, 0);
    for (per_cpu_pages, freed) in [(5, 25), (20, 0), (400, 0)] {
        view.nodes[0].per_cpu_pages = per_cpu_pages;
        assert_eq!(decide_on("relative-heat", &view).1.len(), freed, "{per_cpu_pages} on per-CPU lists");
    }
}

#[test]
fn pages_of_per_cpu_lists_are_promoted_to_while_low_free_memory_is_left_beside_them() {
    let regions = [region(0, 100, SLOW, 40), region(100, 900, FAST, 40)];
    // Of 1,000 pages at least 20 free ones stay, and at least 30 free ones and those of lists together.
    for (free, per_cpu_pages, promoted) in
        [(25, 0, 0), (25, 5, 0), (25, 8, 3), (25, 100, 5), (50, 100, 30), (0, 100, 0)]
    {
        let mut view = seen(&regions, free);
        view.nodes[0].per_cpu_pages = per_cpu_pages;
        let (up, down) = decide_on("relative-heat", &view);
        assert_eq!((up.len(), down.len()), (promoted, 0), "{free} free, {per_cpu_pages} on lists");
    }
}

#[test]
fn exchange_that_costs_more_than_it_saves_is_not_made() {
    // 20 pages are demoted for free memory before one is promoted to it; 15 to 1 in accesses.
    for (hot, exchanged) in [(1, (0, 0)), (2, (2, 22)), (20, (20, 40))] {
        let regions = [region(0, hot, SLOW, 40), region(100, 970, FAST, 4)];
        let mut view = seen(&regions, 0);
        view.nodes[0].per_cpu_pages = 100;
        let (up, down) = decide_on("relative-heat", &view);
        assert_eq!((up.len() as u64, down.len()), exchanged, "{hot} hot pages");
    }
}

fn with_size(mut events: Vec<Event>, of: PageSize) -> Vec<Event> {
    for event in &mut events {
        let Event::AccessSample(sample) = event else { continue };
        sample.size = of;
    }
    events
}

#[test]
fn huge_page_yields_to_base_pages_only_if_they_are_accessed_more_than_all_of_it() {
    let huge = Region { size: PageSize::Huge, ..region(1024, 1, FAST, 50) };
    let view = seen(&[region(0, 20, SLOW, 50), huge], 20);
    let of_huge = with_size(samples(1024..1536, FAST, 2), PageSize::Huge);
    for (each, up) in [(20, 0), (200, 20)] {
        let events = [samples(0..20, SLOW, each), of_huge.clone()].concat();
        let moved = epochs(policy("relative-heat").as_mut(), &view, &events, EPOCHS_MIN);
        let [promoted, demoted] = moved.last().unwrap();
        assert_eq!((promoted.len(), demoted.len()), (up, up.min(1)), "{each} of each");
    }
}

fn with_latency(mut events: Vec<Event>, latency_ns: f64) -> Vec<Event> {
    for event in &mut events {
        let Event::AccessSample(sample) = event else { continue };
        sample.latency = Some(Time::from_ns(latency_ns));
    }
    events
}

#[test]
fn accesses_leave_a_loaded_fast_node_until_latencies_are_equal() {
    let mut view = seen(&[region(0, 500, SLOW, 0), region(2000, 980, FAST, 0)], 200);
    view.nodes.push(node_view(SLOW, 10_000, 9000));
    let down = |fast_ns, slow_ns| {
        let fast = with_latency(samples(2000..2980, FAST, 4), fast_ns);
        let slow = with_latency(samples(0..500, SLOW, 4), slow_ns);
        let moved = epochs(policy("relative-heat").as_mut(), &view, &[fast, slow].concat(), EPOCHS_MIN);
        let [up, down] = moved.last().unwrap().clone();
        (up.len(), down.len())
    };
    // The half of 1 - 240 / 480 of 980 pages that are accessed alike.
    assert_eq!(down(480.0, 240.0), (0, 245));
    assert_eq!(down(260.0, 240.0), (0, 0), "nearly equal");
    // A loaded slow node gives away a part of its accesses at once: free memory above 3 % is 170 pages.
    let (up, _) = down(80.0, 480.0);
    assert!((170..=500 * 400 / 960).contains(&up), "{up}");
    let (up, _) = down(200.0, 240.0);
    assert_eq!(up, 500 * 40 / 480, "a loaded fast node takes few");
}

#[test]
fn nodes_without_load_keep_their_pages_whichever_is_nearer() {
    // HBM, whose idle latency is above DDR5's.
    let hbm =
        machine(&[N { read_ns: 130.0, ..node(0, 0, 90_000.0) }, N { read_ns: 110.0, ..node(1, 0, 9000.0) }]);
    let policy = || crate::parse("local+relative-heat").unwrap().migration(&hbm);
    let view = seen(&[region(0, 500, SLOW, 0), region(2000, 500, FAST, 0)], 400);
    let with = |slow_ns| {
        let fast = with_latency(samples(2000..2500, FAST, 4), 130.0);
        let slow = with_latency(samples(0..500, SLOW, 4), slow_ns);
        let moved = epochs(policy().as_mut(), &view, &[fast, slow].concat(), EPOCHS_MIN);
        moved.last().unwrap().clone().map(|pages| pages.len())
    };
    assert_eq!(with(110.0), [0, 0]);
    let [up, down] = with(390.0);
    assert_eq!((up, down), (500 * 260 / 390 / 2, 0), "DDR5 is loaded");
}

/// As of streams, which wait less on fast memory than elsewhere, for prefetching hides more there.
#[test]
fn exchanges_of_pages_that_seem_hotter_on_slow_memory_alone_become_rare() {
    let view = seen(&[region(0, 1000, SLOW, 0), region(2000, 980, FAST, 0)], 20);
    let mut policy = policy("relative-heat");
    let mut fast: BTreeSet<u64> = (2000..2980).collect();
    let all: Vec<u64> = (0..1000).chain(2000..2980).collect();
    let mut moved = Vec::new();
    for _ in 0..60 {
        let (on_fast, on_slow): (Vec<u64>, Vec<u64>) = all.iter().partition(|&page| fast.contains(page));
        let events = [samples(on_fast.into_iter(), FAST, 1), samples(on_slow.into_iter(), SLOW, 4)].concat();
        let [up, down] = epochs(policy.as_mut(), &view, &events, 1).remove(0);
        moved.push(up.len() + down.len());
        down.iter().for_each(|page| _ = fast.remove(page));
        fast.extend(up);
    }
    let [first, last] = [&moved[..20], &moved[40..]].map(|part| part.iter().sum::<usize>());
    assert!(first > 500 && last * 10 < first, "{moved:?}");
}

/// The huge pages that the last of some epochs with the same samples splits, and its moves.
fn splits(policy: &mut dyn Migration, view: &View, events: &[Event]) -> (Vec<u64>, usize) {
    splits_after(policy, view, &vec![events.to_vec(); EPOCHS_MIN as usize])
}

fn splits_after(policy: &mut dyn Migration, view: &View, epochs: &[Vec<Event>]) -> (Vec<u64>, usize) {
    let mut plan = Plan::default();
    for events in epochs {
        plan = Plan::default();
        events.iter().for_each(|event| policy.on_event(event, view, &mut plan));
        policy.decide(view, &mut plan);
    }
    let split = plan.actions().iter().filter_map(|planned| match &planned.action {
        Action::Split(page) => Some(page.page.0),
        _ => None,
    });
    (split.collect(), moves_of(&plan).len())
}

#[test]
fn huge_page_with_a_hot_part_is_split_where_the_rest_makes_room() {
    let huge = |start, node| Region { size: PageSize::Huge, ..region(start, 1, node, 50) };
    let hot_quarter = |start, node| with_size(samples(start..start + 128, node, 20), PageSize::Huge);
    // Its cold part makes room for hot base pages.
    let view = seen(&[region(0, 100, SLOW, 0), huge(1024, FAST)], 20);
    let events = [samples(0..100, SLOW, 20), hot_quarter(1024, FAST)].concat();
    assert_eq!(splits(policy("relative-heat").as_mut(), &view, &events), (vec![1024], 0));
    // Its hot part takes the place of base pages that are not cold. If they are, it moves as a whole.
    let view = seen(&[huge(1024, SLOW), region(4096, 980, FAST, 0)], 20);
    let lukewarm = samples(4096..5076, FAST, 2);
    let events = [hot_quarter(1024, SLOW), lukewarm].concat();
    assert_eq!(splits(policy("relative-heat").as_mut(), &view, &events), (vec![1024], 0));
    let (split, moves) = splits(policy("relative-heat").as_mut(), &view, &hot_quarter(1024, SLOW));
    assert_eq!((split, moves), (vec![], 513));
    // There is too little free memory: the cold part is demoted. There is enough: it stays as it is.
    for (free, expected) in [(5, vec![1024]), (20, vec![])] {
        let view = seen(&[huge(1024, FAST), region(4096, 480, FAST, 50)], free);
        let events = [hot_quarter(1024, FAST), samples(4096..4576, FAST, 20)].concat();
        assert_eq!(splits(policy("relative-heat").as_mut(), &view, &events), (expected, 0), "{free} free");
    }
}

#[test]
fn huge_page_is_not_split_for_chance_nor_where_its_parts_are_alike() {
    let huge = |start, node| Region { size: PageSize::Huge, ..region(start, 1, node, 50) };
    let alike = seen(&[region(0, 512, SLOW, 0), huge(1024, FAST), huge(2048, SLOW)], 20);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut by_chance = |_| {
        let mut pages = |first| -> Vec<u64> { (0..128).map(|_| first + random.next_u64() % 512).collect() };
        let of_huge = |pages: Vec<u64>, node| with_size(samples(pages.into_iter(), node, 1), PageSize::Huge);
        let base = samples(pages(0).into_iter(), SLOW, 1);
        [base, of_huge(pages(1024), FAST), of_huge(pages(2048), SLOW)].concat()
    };
    for epochs in [3, 12, 50] {
        let epochs: Vec<Vec<Event>> = (0..epochs).map(&mut by_chance).collect();
        let changed = splits_after(policy("relative-heat").as_mut(), &alike, &epochs);
        assert_eq!(changed, (vec![], 0));
    }
    // A host that cannot split is not asked again.
    let view = seen(&[region(0, 100, SLOW, 0), huge(1024, FAST)], 20);
    let events =
        [samples(0..100, SLOW, 20), with_size(samples(1024..1152, FAST, 20), PageSize::Huge)].concat();
    let mut policy = policy("relative-heat");
    assert_eq!(splits(policy.as_mut(), &view, &events).0, [1024]);
    let page = Page { task: TaskId(0), page: Vpn(1024), size: PageSize::Huge };
    let planned = Planned { id: ActionId(0), action: Action::Split(page), reason: Reason::Uneven };
    let outcome = Outcome::Refused(Refusal::Unsupported);
    let done = Event::Completion(Completion { time: Time::ZERO, planned, outcome });
    policy.on_event(&done, &view, &mut Plan::default());
    assert_eq!(splits(policy.as_mut(), &view, &events).0, [0; 0]);
}

#[test]
fn pages_stay_where_moves_took_longer_than_they_save() {
    let view = seen(&[region(0, 1000, SLOW, 0), region(2000, 980, FAST, 0)], 20);
    let moved_after = |action_time| {
        let mut policy = policy("relative-heat");
        epochs(policy.as_mut(), &view, &samples(0..200, SLOW, 10), EPOCHS_MIN);
        let view = View { action_time, ..view.clone() };
        // 200 pages went up, and as many down.
        let up = &epochs(policy.as_mut(), &view, &samples(300..400, SLOW, 100), 1)[0][0];
        up.len()
    };
    assert_eq!(moved_after(None), 100);
    assert_eq!(moved_after(Some(Time::from_ms(1))), 100, "2.5 us a page");
    assert_eq!(moved_after(Some(Time::from_ms(60_000))), 0, "150 ms a page");
}

#[test]
fn access_samples_are_asked_for_before_regions_for_their_share_of_the_budget() {
    let sensors = policy("relative-heat:budget=2").sensors();
    let Sensor::AccessSamples(accesses) = sensors.iter().next().expect("a sensor").sensor else {
        panic!("samples come first");
    };
    assert_eq!(accesses.budget_bp, Some(80));
    let names: Vec<&str> = sensors.iter().map(|request| request.sensor.name()).collect();
    assert_eq!(names, ["access-samples", "regions"]);
}

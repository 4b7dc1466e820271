//! Way partitions of the last shared level match caches of their own; utility monitors match stack distances.

use std::num::NonZeroU16;

use memtide_core::{CacheId, CpuId, Machine, NodeId, Time};
use memtide_memory::{Access, Cache, Class, SampledSets, Uncore, UtilityMonitor, Victim, Waiter};
use proptest::prelude::*;

use crate::support::{Zipf, level, machine, node, socket};

const CACHE: CacheId = CacheId(0);
const CLASSES: [Class; 3] = [Class(3), Class(5), Class(8)];

/// Lines of each class, which share none.
const APART: u64 = 1 << 12;

/// Three CPUs with a shared cache of 16 sets and 8 ways.
fn three() -> Machine {
    machine(&format!(
        "{}{}{}{}",
        level("L1", 1, 2, 2, 1),
        level("L2", 8, 8, 20, 3),
        socket("s", 3),
        node("n", Some("s"), 100.0, 6400.0)
    ))
}

/// An uncore on which each CPU runs a class.
fn uncore() -> Uncore {
    let mut uncore = Uncore::new(&three());
    for (cpu, class) in (0..3).map(CpuId).zip(CLASSES) {
        uncore.runs(cpu, class);
    }
    uncore
}

fn set_quota(uncore: &mut Uncore, class: usize, ways: u16) {
    let owns = |line| (line / APART) as usize == class;
    uncore.set_quota(CACHE, CLASSES[class], NonZeroU16::new(ways), owns);
}

/// Whether an access of a class hits; it completes before the next.
fn hits(uncore: &mut Uncore, class: usize, line: u64, now: &mut u64) -> bool {
    *now += 1_000_000;
    let misses = uncore.counts().misses;
    let line = class as u64 * APART + line;
    uncore.demand(CpuId(class as u16), line, Time(*now), Waiter(0));
    uncore.advance(NodeId(0), Time(*now + 900_000), |_, _| {});
    uncore.counts().misses == misses
}

proptest! {
    #[test]
    fn part_of_a_cache_hits_as_a_cache_of_its_ways(
        ways in (1u16..=6, 1u16..=6).prop_filter("at most 7", |(a, b)| a + b <= 7),
        accesses in proptest::collection::vec((0usize..3, 0u64..160), 0..600),
    ) {
        let mut uncore = uncore();
        set_quota(&mut uncore, 0, ways.0);
        set_quota(&mut uncore, 1, ways.1);
        let alone = |ways: u16| Cache::new(8, 8).with_ways(ways);
        let mut alone = [alone(ways.0), alone(ways.1), alone(8 - ways.0 - ways.1)];
        let mut now = 0;
        for (class, line) in accesses {
            let expected = alone[class].access(class as u64 * APART + line, false) == Access::Hit;
            prop_assert_eq!(hits(&mut uncore, class, line, &mut now), expected);
        }
    }

    #[test]
    fn resized_cache_keeps_the_lines_used_last(
        lines in proptest::collection::vec((0u64..96, any::<bool>()), 0..300), ways in 0u16..=12,
    ) {
        let mut cache = Cache::new(6, 8);
        let mut sets = vec![Vec::<Victim>::new(); 12];
        for (line, write) in lines {
            cache.access(line, write);
            let set = &mut sets[(line % 12) as usize];
            let known = set.iter().position(|of| of.line == line).map(|at| set.remove(at));
            set.insert(0, Victim { line, dirty: write || known.is_some_and(|of| of.dirty) });
            set.truncate(8);
        }
        let dropped = cache.resize(ways);
        let expected = sets.iter().flat_map(|set| set.iter().skip(ways.into()).copied());
        prop_assert_eq!(dropped, expected.collect::<Vec<_>>());
        for set in &mut sets {
            set.truncate(ways.into());
            prop_assert!(set.iter().all(|of| cache.holds(of.line)));
        }
        let odd = cache.split_off(|line| line / 12 % 2 == 1);
        let all: Vec<u64> = sets.iter().flatten().map(|of| of.line).collect();
        prop_assert!(all.iter().all(|line| odd.holds(*line) == (line / 12 % 2 == 1)));
        prop_assert!(all.iter().all(|line| cache.holds(*line) != odd.holds(*line)));
        prop_assert_eq!(cache.append(&odd), []);
        prop_assert!(all.iter().all(|line| cache.holds(*line)));
    }

    #[test]
    fn first_hits_of_a_monitor_are_those_of_a_cache_with_as_many_ways(
        lines in proptest::collection::vec(0u64..300, 0..900), ways in 1u16..=8,
    ) {
        let whole = Cache::new(8, 8);
        let sets = SampledSets::of(&whole);
        let mut monitor = UtilityMonitor::new(&sets, 8);
        let mut cache = whole.with_ways(ways);
        let mut hits = 0;
        for line in &lines {
            monitor.see(sets.find(*line).expect("all of 16 sets are sampled"));
            hits += u64::from(cache.access(*line, false) == Access::Hit);
        }
        prop_assert_eq!(monitor.hits()[..ways.into()].iter().sum::<u64>(), hits);
        prop_assert_eq!(monitor.hits().iter().sum::<u64>() + monitor.misses(), lines.len() as u64);
    }
}

#[test]
fn sampled_sets_estimate_all_sets() {
    let mut cache = Cache::new(512, 16);
    let sets = SampledSets::of(&cache);
    let mut monitor = UtilityMonitor::new(&sets, 16);
    let mut zipf = Zipf::new(1 << 14, 0.6, 9);
    let mut hits = 0;
    for _ in 0..400_000 {
        let line = zipf.draw();
        hits += u64::from(cache.access(line, false) == Access::Hit);
        sets.find(line).into_iter().for_each(|sampled| monitor.see(sampled));
    }
    let (sampled, all) = (monitor.hits().iter().sum::<u64>(), hits as f64 / 400_000.0);
    let share = sampled as f64 / (sampled + monitor.misses()) as f64;
    assert!((share - all).abs() < 0.03, "{share:.3} instead of {all:.3}");
    monitor.halve();
    assert!(monitor.hits().iter().sum::<u64>().abs_diff(sampled / 2) <= 16);
}

#[test]
fn class_keeps_its_lines_however_many_another_streams() {
    let (mut uncore, mut now) = (uncore(), 0);
    (0..64).for_each(|line| _ = hits(&mut uncore, 0, line, &mut now));
    set_quota(&mut uncore, 0, 4);
    (0..1000).for_each(|line| _ = hits(&mut uncore, 1, line, &mut now));
    assert!((0..64).all(|line| hits(&mut uncore, 0, line, &mut now)), "4 of 8 ways, from before the quota");
    set_quota(&mut uncore, 0, 2);
    let kept = (0..64).rev().filter(|line| hits(&mut uncore, 0, *line, &mut now)).count();
    assert_eq!(kept, 32, "2 ways of 16 sets");
}

#[test]
fn without_ways_left_lines_pass_the_cache() {
    let (mut uncore, mut now) = (uncore(), 0);
    set_quota(&mut uncore, 0, 5);
    set_quota(&mut uncore, 1, 3);
    assert!(!uncore.has_ways(CACHE, CLASSES[2], NonZeroU16::MIN), "none is left");
    assert!((0..20).all(|_| !hits(&mut uncore, 2, 7, &mut now)));
    set_quota(&mut uncore, 1, 0);
    assert!(!hits(&mut uncore, 2, 7, &mut now) && hits(&mut uncore, 2, 7, &mut now));
    assert_eq!([0, 1, 2].map(|class| uncore.quota(CACHE, CLASSES[class])), [NonZeroU16::new(5), None, None]);
}

#[test]
fn removed_quota_leaves_the_lines_to_all() {
    let (mut uncore, mut now) = (uncore(), 0);
    set_quota(&mut uncore, 0, 4);
    (0..64).for_each(|line| _ = hits(&mut uncore, 0, line, &mut now));
    uncore.end(CLASSES[0]);
    uncore.runs(CpuId(0), CLASSES[0]);
    assert!((0..64).all(|line| hits(&mut uncore, 0, line, &mut now)));
}

#[test]
fn dropped_dirty_lines_are_written_one_at_each_miss() {
    let (mut uncore, mut now) = (uncore(), 0);
    set_quota(&mut uncore, 0, 4);
    for line in 0..64 {
        hits(&mut uncore, 0, line, &mut now);
        uncore.spill(CpuId(0), line, Time(now));
    }
    set_quota(&mut uncore, 0, 1);
    let mut written = Vec::new();
    for line in 0..60 {
        hits(&mut uncore, 1, line, &mut now);
        written.push(uncore.node_counters(NodeId(0), Time(now)).writes);
    }
    assert!(written[..48].is_sorted_by(|a, b| b - a == 1), "{written:?}");
    assert_eq!(written[59], 48, "48 of 64 lines do not fit into a way");
}

#[test]
fn monitors_see_demand_alone_and_forget_by_halves() {
    let (mut uncore, mut now) = (uncore(), 0);
    assert_eq!(uncore.take_utility(CLASSES[0]), None, "not monitored");
    uncore.monitor_utility();
    for _ in 0..4 {
        (0..32).for_each(|line| _ = hits(&mut uncore, 0, line, &mut now));
    }
    (100..200).for_each(|line| uncore.prefetch(CpuId(0), line, Time(now)));
    let utility = uncore.take_utility(CLASSES[0]).expect("monitored");
    assert_eq!((utility.hits, utility.misses), (vec![0, 96, 0, 0, 0, 0, 0, 0], 32));
    let utility = uncore.take_utility(CLASSES[0]).expect("monitored");
    assert_eq!((utility.hits, utility.misses), (vec![0, 48, 0, 0, 0, 0, 0, 0], 16));
    assert_eq!(uncore.take_utility(CLASSES[1]).map(|utility| utility.misses), Some(0));
}

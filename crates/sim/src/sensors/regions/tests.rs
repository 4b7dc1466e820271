use memtide_core::machine::Machine;
use memtide_core::policy::{GroupOrder, Rule, Spill, Within};
use memtide_core::{NodeId, PageSize, TaskId};
use proptest::prelude::*;

use super::*;
use crate::os::{Owner, Space};
use crate::support;

const REGIONS_MAX: u32 = 20;

fn machine() -> Machine {
    support::two_sockets("sample_ns = 100", 1, [64, 64], [1e4, 1e4])
}

fn sensor() -> RegionSensor {
    sensor_with(None)
}

fn sensor_with(budget_bp: Option<u32>) -> RegionSensor {
    let (sampling, aggregation) = (Time::from_us(10), Time::from_us(200));
    let regions_max = REGIONS_MAX;
    RegionSensor::new(&RegionSampling { sampling, aggregation, regions_max, writes: true, budget_bp }, 1)
}

/// An operating system with tasks that have these pages, each on one of two nodes.
fn os(tasks: &[Vec<(u64, u8)>]) -> Os {
    let mut os = Os::new(&machine(), None);
    for (task, pages) in tasks.iter().enumerate() {
        let (order, within, spill) = (GroupOrder::Cycle, Within::Nearest, Spill::Nearest);
        let task = TaskId::from(task);
        os.spaces.push(Space::new(task, Rule { groups: Vec::new(), order, within, spill }));
        pages.iter().for_each(|&(page, node)| map(&mut os, task, page, PageSize::Base, node));
    }
    os
}

fn map(os: &mut Os, task: TaskId, page: u64, size: PageSize, node: u8) {
    let page = Vpn(page);
    let frame = os.frames.take(NodeId(node), Owner { task, page, size }).expect("a free frame");
    os.spaces[task.index()].table.map(page, size, Entry::present(frame));
}

/// Accesses or writes these pages between any two samples, for some aggregation intervals.
fn watch(sensor: &mut RegionSensor, os: &mut Os, intervals: u64, read: &[u64], written: &[u64]) {
    for _ in 0..intervals * sensor.samples {
        for (pages, flags) in [(read, Entry::ACCESSED), (written, Entry::ACCESSED | Entry::DIRTY)] {
            for &page in pages {
                os.spaces[0].table.find(Vpn(page)).expect("a mapped page").0.set(flags);
            }
        }
        sensor.sample(os);
    }
}

fn observed(sensor: &mut RegionSensor, os: &mut Os) -> Vec<Region> {
    let mut view = View::default();
    sensor.observe(os, &mut view);
    view.regions.iter().collect()
}

/// Pages and their nodes.
type Pages = std::collections::BTreeMap<u64, u8>;

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn observation_has_each_mapped_page_once_with_its_node(
        tasks in proptest::collection::vec(proptest::collection::btree_map(0u64..3000, 0u8..2, 0..200), 1..4),
        intervals in 2u64..6,
    ) {
        let tasks: Vec<Vec<(u64, u8)>> =
            tasks.into_iter().map(|pages: Pages| pages.into_iter().collect()).collect();
        let mut os = os(&tasks);
        let mut sensor = sensor();
        watch(&mut sensor, &mut os, intervals, &[], &[]);
        prop_assert!(sensor.regions.len() <= REGIONS_MAX as usize);
        prop_assert!(sensor.latest.len() <= REGIONS_MAX as usize);
        let mut found = vec![Vec::new(); tasks.len()];
        for run in observed(&mut sensor, &mut os) {
            let pages = run.start.0..run.start.0 + run.pages;
            found[run.task.index()].extend(pages.map(|page| (page, run.node.0)));
        }
        prop_assert_eq!(found, tasks);
    }
}

#[test]
fn more_tasks_than_regions_leave_the_last_ones_out() {
    let tasks: Vec<Vec<(u64, u8)>> = (0..50).map(|task| vec![(task, 0)]).collect();
    let (mut os, mut sensor) = (os(&tasks), sensor());
    watch(&mut sensor, &mut os, 3, &[], &[]);
    let seen: Vec<u32> = observed(&mut sensor, &mut os).iter().map(|run| run.task.0).collect();
    assert_eq!(seen, (0..REGIONS_MAX / 2).collect::<Vec<u32>>());
}

#[test]
fn sampling_keeps_to_its_budget_and_says_how_many_samples_it_took() {
    // Ten to twenty regions of 100 ns each: 10 to 20 % of a core at 10 us.
    let pages: Vec<(u64, u8)> = (0..300).map(|page| (page, 0)).collect();
    for budget_bp in [1000, 2000, 5000] {
        let (mut os, mut sensor) = (os(std::slice::from_ref(&pages)), sensor_with(Some(budget_bp)));
        watch(&mut sensor, &mut os, 10, &[], &[]);
        let (before, mut passed) = (sensor.system, 0);
        for _ in 0..50 {
            passed += sensor.samples * sensor.sampling.0;
            watch(&mut sensor, &mut os, 1, &[], &[]);
        }
        let share = sensor.system.since(before).0 as f64 / passed as f64 * 1e4;
        assert!(
            share < 1.6 * f64::from(budget_bp) && share > 0.4 * f64::from(budget_bp),
            "{budget_bp}: {share}"
        );
        let samples = |sensor: &mut RegionSensor, os: &mut Os| {
            let mut view = View::default();
            sensor.observe(os, &mut view);
            view.region_samples
        };
        let expected = sensor.latest_samples as u32;
        assert_eq!([samples(&mut sensor, &mut os), samples(&mut sensor, &mut os)], [Some(expected), Some(0)]);
    }
}

#[test]
fn reads_and_writes_are_counted_separately_per_sample() {
    let pages: Vec<(u64, u8)> = (0..300).map(|page| (page, 0)).collect();
    let (mut os, mut sensor) = (os(&[pages]), sensor());
    let [read, written] = [0..100, 100..200].map(|pages| pages.collect::<Vec<u64>>());
    watch(&mut sensor, &mut os, 30, &read, &written);
    let mut right = 0;
    for run in observed(&mut sensor, &mut os) {
        assert!(run.reads <= 20 && run.writes <= 20, "{run:?}");
        let truth = |page: &u64| (if *page < 200 { 20 } else { 0 }, if *page / 100 == 1 { 20 } else { 0 });
        let pages = run.start.0..run.start.0 + run.pages;
        right += pages.filter(|page| (run.reads, run.writes) == truth(page)).count();
    }
    assert!(right >= 270, "{right} of 300 pages");
}

#[test]
fn missing_page_is_not_accessed_and_each_sample_costs() {
    let (mut os, mut sensor) = (os(&[vec![(7, 1)]]), sensor());
    watch(&mut sensor, &mut os, 3, &[7], &[]);
    assert_eq!(sensor.system, Time::from_ns(100.0) * (2 * 20), "nothing is watched in the first interval");
    let seen = observed(&mut sensor, &mut os);
    assert_eq!(seen.iter().map(|run| (run.start, run.reads, run.age)).collect::<Vec<_>>(), [(Vpn(7), 20, 1)]);
    os.free_pages(TaskId(0), Vpn(0), Vpn(100));
    assert_eq!(observed(&mut sensor, &mut os), []);
    watch(&mut sensor, &mut os, 1, &[], &[]);
    assert_eq!(sensor.regions.len(), 0);
}

#[test]
fn huge_page_is_observed_whole_and_once() {
    let mut os = os(&[vec![(511, 0), (1024, 0)]]);
    map(&mut os, TaskId(0), 512, PageSize::Huge, 1);
    let mut sensor = sensor();
    watch(&mut sensor, &mut os, 12, &[600], &[]);
    let seen = observed(&mut sensor, &mut os);
    let runs: Vec<_> = seen.iter().map(|run| (run.start.0, run.pages, run.size, run.node.0)).collect();
    assert_eq!(
        runs,
        [(511, 1, PageSize::Base, 0), (512, 1, PageSize::Huge, 1), (1024, 1, PageSize::Base, 0)]
    );
    assert!(seen[1].reads > 15, "{:?}", seen[1]);
}

#[test]
fn reclaim_still_learns_of_accesses_that_the_monitor_has_cleared() {
    let (mut os, mut sensor) = (os(&[vec![(7, 1)]]), sensor());
    watch(&mut sensor, &mut os, 2, &[7], &[7]);
    let (entry, _) = os.spaces[0].table.find(Vpn(7)).expect("a mapped page");
    assert!(!entry.any(Entry::ACCESSED | Entry::DIRTY) && entry.has(Entry::YOUNG));
}

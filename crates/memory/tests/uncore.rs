//! Resources shared by cores: lines in flight, prefetches, links.

use std::collections::BTreeMap;

use memtide_core::{CpuId, Machine, NodeId, Time};
use memtide_memory::{Requested, Uncore, Waiter};
use proptest::prelude::*;

use crate::support::{level, link, machine, node, socket};

const CPU: CpuId = CpuId(0);
const OTHER: CpuId = CpuId(1);

fn ns(ns: f64) -> Time {
    Time::from_ns(ns)
}

/// An uncore and its notifications.
struct Bench {
    uncore: Uncore,
    nodes: usize,
    notified: Vec<(u32, Time)>,
}

impl Bench {
    fn new(machine: &Machine) -> Bench {
        Bench { uncore: Uncore::new(machine), nodes: machine.nodes.len(), notified: Vec::new() }
    }

    fn demand(&mut self, cpu: CpuId, line: u64, at: Time, waiter: u32) -> Option<Time> {
        self.uncore.demand(cpu, line, at, Waiter(waiter))
    }

    /// Advances to `until`, event by event in time order.
    fn run(&mut self, until: Time) {
        loop {
            let next = (0..self.nodes).map(|n| self.uncore.next_event(NodeId::from(n))).zip(0..).min();
            let Some((time, node)) = next.filter(|(time, _)| *time <= until) else { return };
            let notified = &mut self.notified;
            self.uncore
                .advance(NodeId::from(node as usize), time, |waiter, at| notified.push((waiter.0, at)));
        }
    }

    fn run_all(&mut self) -> BTreeMap<u32, Time> {
        self.run(Time(u64::MAX - 1));
        let notified: BTreeMap<u32, Time> = self.notified.iter().copied().collect();
        assert_eq!(notified.len(), self.notified.len(), "each waiter is notified once");
        notified
    }
}

/// Two CPUs with a shared cache of 20 ns and 64 lines; a node of 100 ns and 10 ns a line.
fn small() -> Machine {
    machine(&format!(
        "{}{}{}{}",
        level("L1", 1, 2, 2, 1),
        level("L2", 4, 8, 20, 2),
        socket("s", 2),
        node("n", Some("s"), 100.0, 6400.0)
    ))
}

#[test]
fn write_past_the_caches_is_one_write_whose_buffer_is_free_when_the_node_takes_it() {
    let mut bench = Bench::new(&small());
    bench.demand(CPU, 7, Time::ZERO, 1);
    bench.uncore.spill(CPU, 7, ns(1.0));
    bench.run(ns(1000.0));
    bench.notified.clear();
    // The second waits for 10 ns of the node's time, the third is of no one's interest.
    for (line, waiter) in [(7, Some(2)), (8, Some(3)), (9, None)] {
        bench.uncore.write_past(CPU, line, ns(2000.0), waiter.map(Waiter));
    }
    bench.run(ns(3000.0));
    assert_eq!(bench.notified, [(2, ns(2020.0)), (3, ns(2030.0))]);
    let counters = bench.uncore.node_counters(NodeId(0), Time::ZERO);
    assert_eq!((counters.reads, counters.writes), (1, 3), "the dirty line in the cache is merged");
    let requested = bench.uncore.requested(NodeId(0));
    assert_eq!(requested, Requested { demand: 4, ..Requested::default() });
    assert_eq!(bench.demand(OTHER, 7, ns(4000.0), 4), None, "the shared cache contains it no more");
}

#[test]
fn miss_takes_node_latency_and_hit_cache_latency() {
    let mut bench = Bench::new(&small());
    assert_eq!(bench.demand(CPU, 7, ns(5.0), 1), None);
    bench.run(ns(1000.0));
    assert_eq!(bench.notified, [(1, ns(105.0))]);
    assert_eq!(bench.demand(OTHER, 7, ns(1000.0), 2), Some(ns(1020.0)));
    let counts = bench.uncore.counts();
    assert_eq!((counts.accesses, counts.misses), (2, 1));
    assert_eq!(bench.uncore.node_counters(NodeId(0), Time::ZERO).reads, 1);
    let latencies: Vec<_> = bench.uncore.drain_latencies().collect();
    assert_eq!(latencies, [(NodeId(0), ns(100.0))]);
}

#[test]
fn line_in_flight_is_read_once() {
    let mut bench = Bench::new(&small());
    assert_eq!(bench.demand(CPU, 7, ns(0.0), 1), None);
    assert_eq!(bench.demand(OTHER, 7, ns(30.0), 2), None);
    bench.run(ns(30.0));
    assert_eq!(bench.notified.len(), 2);
    assert!(bench.notified.iter().all(|&(_, at)| at == ns(100.0)), "{:?}", bench.notified);
    assert_eq!(bench.demand(OTHER, 7, ns(60.0), 3), Some(ns(100.0)));
    assert_eq!(bench.demand(OTHER, 7, ns(95.0), 4), Some(ns(115.0)));
    assert_eq!(bench.uncore.node_counters(NodeId(0), Time::ZERO).reads, 1);
}

#[test]
fn access_just_before_arrival_pays_cache_latency() {
    let mut bench = Bench::new(&small());
    bench.demand(CPU, 7, ns(0.0), 1);
    assert_eq!(bench.demand(OTHER, 7, ns(95.0), 2), None);
    assert_eq!(bench.run_all(), BTreeMap::from([(1, ns(100.0)), (2, ns(115.0))]));
}

#[test]
fn prefetched_line_is_usable_on_arrival_only() {
    let mut bench = Bench::new(&small());
    bench.uncore.prefetch(CPU, 9, ns(0.0));
    bench.uncore.prefetch(CPU, 9, ns(1.0));
    assert_eq!(bench.demand(CPU, 9, ns(40.0), 1), None);
    assert_eq!(bench.run_all(), BTreeMap::from([(1, ns(100.0))]));
    assert_eq!(bench.demand(CPU, 9, ns(200.0), 2), Some(ns(220.0)));
    let counts = bench.uncore.counts();
    assert_eq!((counts.accesses, counts.misses, counts.prefetches), (2, 0, 1));
    assert_eq!(bench.uncore.requested(NodeId(0)), Requested { demand: 0, prefetch: 1, copy: 0 });
    assert_eq!(bench.uncore.node_counters(NodeId(0), Time::ZERO).reads, 1);
    assert_eq!(bench.uncore.drain_latencies().count(), 0, "a prefetch is no demand read");
}

#[test]
fn line_evicted_in_flight_is_requested_again() {
    let mut bench = Bench::new(&small());
    for waiter in 0..9 {
        assert_eq!(bench.demand(CPU, 8 * u64::from(waiter), ns(0.0), waiter), None);
    }
    assert_eq!(bench.demand(CPU, 0, ns(1.0), 9), None);
    let notified = bench.run_all();
    assert_eq!(bench.uncore.node_counters(NodeId(0), Time::ZERO).reads, 10);
    assert_eq!((notified[&0], notified[&9]), (ns(100.0), ns(190.0)));
}

#[test]
fn dirty_lines_go_to_memory_when_they_leave_the_last_level() {
    let mut bench = Bench::new(&small());
    bench.uncore.spill(CPU, 0, ns(0.0));
    for step in 1..=8 {
        bench.run(ns(step as f64 * 10.0));
        assert_eq!(bench.uncore.node_counters(NodeId(0), Time::ZERO).writes, 0);
        bench.demand(CPU, 8 * step, ns(step as f64 * 10.0), step as u32);
    }
    bench.run_all();
    assert_eq!(bench.uncore.node_counters(NodeId(0), Time::ZERO).writes, 1);
}

/// A socket and a node behind a link of 60 ns; the node itself takes 100 ns.
fn behind_a_link(node_mbps: f64, link_mbps: f64) -> Machine {
    machine(&format!(
        "{}{}{}",
        socket("s", 2),
        node("n", None, 100.0, node_mbps),
        link(["s", "n"], 60.0, link_mbps)
    ))
}

#[test]
fn link_adds_latency_and_limits_bandwidth() {
    let mut bench = Bench::new(&behind_a_link(64_000.0, 6400.0));
    for waiter in 0..1000 {
        bench.demand(CPU, waiter.into(), ns(0.0), waiter);
    }
    let mut notified: Vec<Time> = bench.run_all().into_values().collect();
    notified.sort_unstable();
    assert_eq!(notified[0], ns(160.0));
    let last = notified[999].as_ns();
    assert!((last - (160.0 + 999.0 * 10.0)).abs() < 100.0, "the last of 1000 lines came at {last} ns");
    assert_eq!(bench.uncore.link_lines(0), [0, 1000]);
}

#[test]
fn wide_link_adds_latency_only() {
    let mut bench = Bench::new(&behind_a_link(6400.0, 64_000.0));
    for waiter in 0..100 {
        bench.demand(CPU, waiter.into(), ns(0.0), waiter);
    }
    for (waiter, at) in bench.run_all() {
        assert_eq!(at, ns(160.0 + 10.0 * f64::from(waiter)));
    }
}

#[test]
fn link_directions_are_independent() {
    let mut bench = Bench::new(&behind_a_link(640_000.0, 6400.0));
    for line in 0..1000 {
        bench.uncore.write(CPU, line, ns(0.0));
    }
    bench.demand(CPU, 5000, ns(0.0), 1);
    let at = bench.run_all()[&1];
    assert!(at >= ns(160.0) && at < ns(161.0), "{at}");
    assert_eq!(bench.uncore.link_lines(0), [1000, 1]);
    assert_eq!(bench.uncore.requested(NodeId(0)), Requested { demand: 1, prefetch: 0, copy: 1000 });
}

#[test]
fn slow_node_does_not_delay_fast_one_on_same_link() {
    let machine = machine(&format!(
        "{}{}{}{}{}",
        socket("s", 1),
        socket("t", 1),
        node("slow", Some("t"), 1000.0, 6400.0),
        node("fast", Some("t"), 100.0, 6400.0),
        link(["s", "t"], 60.0, 6400.0)
    ));
    let mut bench = Bench::new(&machine);
    bench.demand(CPU, 0, ns(0.0), 1);
    bench.demand(CPU, machine.nodes[0].lines(), ns(1.0), 2);
    let notified = bench.run_all();
    assert_eq!(notified[&1], ns(1060.0));
    assert_eq!(notified[&2], ns(161.0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn every_waiter_wakes_once_and_not_early(
        steps in proptest::collection::vec((0u8..8, 0u16..2, 0u64..120, 0u64..40), 1..600),
    ) {
        let mut bench = Bench::new(&small());
        let mut now = Time::ZERO;
        let mut waiting = BTreeMap::new();
        let (mut demands, mut spills) = (0u64, 0u64);
        for (waiter, (kind, cpu, line, pause)) in (0..).zip(steps) {
            now += ns(pause as f64);
            bench.run(now);
            match kind {
                0 => bench.uncore.prefetch(CpuId(cpu), line, now),
                1 => {
                    bench.uncore.spill(CpuId(cpu), line, now);
                    spills += 1;
                }
                _ => {
                    demands += 1;
                    match bench.demand(CpuId(cpu), line, now, waiter) {
                        Some(there) => prop_assert!(there >= now + ns(20.0)),
                        None => { waiting.insert(waiter, now); }
                    }
                }
            }
        }
        let notified = bench.run_all();
        prop_assert!(notified.keys().eq(waiting.keys()));
        for (waiter, at) in notified {
            prop_assert!(at >= waiting[&waiter] + ns(20.0));
        }
        let counts = bench.uncore.counts();
        prop_assert_eq!(counts.accesses, demands);
        let node = bench.uncore.node_counters(NodeId(0), Time::ZERO);
        prop_assert_eq!(node.reads, counts.misses + counts.prefetches);
        prop_assert!(node.writes <= spills);
        prop_assert_eq!(bench.uncore.drain_latencies().count() as u64, counts.misses);
    }
}

//! Colloid (Vuppalapati and Agarwal, SOSP 2024): hot pages move to the node with the lower loaded latency
//! until both are equal.

use std::cmp::Reverse;

use memtide_core::epoch::Limits;
use memtide_core::policy::{Delivery, Event, Migration, Plan, Reason, Region, Sensor, Sensors, View, Wake};
use memtide_core::{NodeId, Time};

use super::{EPOCH, FAST, REGIONS, Run, SLOW, accesses, move_of, pages};

/// Tolerance of equal latencies, as a share of their sum.
struct Colloid {
    band: f64,
}

impl Migration for Colloid {
    fn sensors(&self) -> Sensors {
        Sensors::new(Delivery::Deployable, EPOCH).require(Sensor::LoadedLatency).require(REGIONS)
    }

    fn on_event(&mut self, _: &Event, _: &View, _: &mut Plan) {}

    fn decide(&mut self, view: &View, plan: &mut Plan) -> Wake {
        // A node without reads has no load.
        let latency = |node| view.node(node).and_then(|node| node.loaded_latency).map_or(0.0, Time::as_ns);
        let (fast, slow) = (latency(FAST), latency(SLOW));
        let apart = (fast - slow).abs() / (fast + slow);
        if apart.is_nan() || apart <= self.band {
            return Wake::After(EPOCH);
        }
        let (from, to) = if fast > slow { (FAST, SLOW) } else { (SLOW, FAST) };
        let is_hot = |region: &Region| region.node == from && accesses(region) > 0;
        let mut hot: Vec<Region> = view.regions.iter().filter(is_hot).collect();
        hot.sort_by_key(|region| Reverse(accesses(region)));
        let hot: Vec<_> = hot.iter().flat_map(pages).collect();
        let shifted = (hot.len() as f64 * apart / 2.0).ceil() as usize;
        for page in hot.into_iter().take(shifted) {
            plan.push_move(move_of(page, from, to), Reason::Bandwidth);
        }
        Wake::After(EPOCH)
    }
}

const PAGES: u64 = 64;

/// An epoch in which each page's reads load its node: 4 ns each. Returns the latencies in ns.
fn loaded_epoch(run: &mut Run, idle_ns: [f64; 2]) -> [f64; 2] {
    let nodes = run.nodes_of(0..PAGES);
    let latency = [FAST, SLOW].map(|node| {
        let pages = nodes.iter().filter(|on| **on == node).count();
        idle_ns[node.index()] + 4.0 * pages as f64
    });
    for node in [FAST, SLOW] {
        run.host.node(node).loaded_latency = Some(Time::from_ns(latency[node.index()]));
    }
    (0..PAGES).for_each(|page| run.page(page).reads = 1);
    run.epoch();
    latency
}

fn is_equal([fast, slow]: [f64; 2]) -> bool {
    (fast - slow).abs() / (fast + slow) <= 0.02
}

fn on(run: &mut Run, node: NodeId) -> usize {
    run.nodes_of(0..PAGES).iter().filter(|on| **on == node).count()
}

#[test]
fn pages_move_until_loaded_latencies_are_equal() {
    for start in [FAST, SLOW] {
        let mut run = Run::new(Colloid { band: 0.02 }, &[128, 128], Limits::default());
        run.map(0..PAGES, start);
        let first = loaded_epoch(&mut run, [80.0, 200.0]);
        assert!(!is_equal(first), "{first:?}");
        let reached: Vec<[f64; 2]> = (0..40).map(|_| loaded_epoch(&mut run, [80.0, 200.0])).collect();
        assert!(is_equal(reached[39]), "{reached:?}");
        assert!((45..=49).contains(&on(&mut run, FAST)), "equal at 47 pages: {}", on(&mut run, FAST));
        let settled = run.moved_in_all();
        (0..5).for_each(|_| _ = loaded_epoch(&mut run, [80.0, 200.0]));
        assert_eq!(run.moved_in_all(), settled, "equal latencies move nothing");
        assert!(run.watched.planned.iter().all(|planned| planned.reason == Reason::Bandwidth));
    }
}

#[test]
fn pages_leave_a_node_that_others_load() {
    let mut run = Run::new(Colloid { band: 0.02 }, &[128, 128], Limits::default());
    run.map(0..PAGES, FAST);
    (0..40).for_each(|_| _ = loaded_epoch(&mut run, [80.0, 200.0]));
    let before = (on(&mut run, FAST), run.moved(FAST, SLOW));
    (0..40).for_each(|_| _ = loaded_epoch(&mut run, [240.0, 200.0]));
    let left = before.0 - on(&mut run, FAST);
    assert!((18..=22).contains(&left), "equal at 27 pages: {left} left");
    assert_eq!(run.moved(FAST, SLOW) - before.1, left as u64);
}

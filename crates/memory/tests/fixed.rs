//! Fixed nodes, and probes of them.

use memtide_core::machine::{Energy, Fixed, LoadPoint, Node};
use memtide_core::{LINE_BYTES, Time};
use memtide_memory::fixed::FixedNode;
use memtide_memory::node::{Completion, MemoryNode, Request};
use memtide_memory::probe::{Load, Pattern, ProbePoint, probe};

fn fixed() -> Fixed {
    Fixed {
        read_latency_ns: 120.0,
        write_latency_ns: None,
        read_bandwidth_mbps: 10_000.0,
        write_bandwidth_mbps: Some(5_000.0),
        loaded: Vec::new(),
    }
}

fn curved() -> Fixed {
    let point = |load, latency_ns| LoadPoint { load, latency_ns };
    Fixed { loaded: vec![point(0.2, 130.0), point(0.6, 200.0), point(0.9, 500.0)], ..fixed() }
}

fn node(fixed: Fixed) -> Node {
    Node {
        name: "node".into(),
        tier: 0,
        capacity_mib: 64,
        initiator: None,
        isolated: false,
        dram: None,
        fixed: Some(fixed),
        energy: Energy { read_nj: 2.0, write_nj: 3.0, standby_mw: 10.0, ..Energy::default() },
        endurance_writes: None,
        sharing_slices: 1,
    }
}

fn seen(fixed: Fixed, pattern: Pattern, read_share: f64, share_of_peak: f64) -> ProbePoint {
    probe(&node(fixed), Load { pattern, read_share, share_of_peak, requests: 200_000, seed: 7 })
}

#[track_caller]
fn near(got: f64, expected: f64, share: f64) {
    assert!((got / expected - 1.0).abs() <= share, "{got}, expected {expected}");
}

#[test]
fn idle_read_takes_read_latency() {
    let mut node = FixedNode::new(&fixed());
    let mut done = Vec::new();
    for (id, ns) in [(0, 0.0), (1, 500.0), (2, 507.0)] {
        node.push(Time::from_ns(ns), Request { line: 0, write: false, id });
    }
    assert_eq!(node.next_event(), Time::ZERO);
    node.advance(Time::from_ns(506.0), &mut done);
    assert_eq!(done.len(), 2);
    node.advance(Time::from_ns(507.0), &mut done);
    assert_eq!(node.next_event(), Time::NEVER);
    // One line every 6.4 ns.
    let at = [120.0, 620.0, 627.0].map(Time::from_ns);
    let expected = [0, 1, 2].map(|id| Completion { id, at: at[id as usize] });
    assert_eq!(done, expected);
    near(seen(fixed(), Pattern::Chase, 1.0, 1.0).mean_ns, 120.0, 1e-9);
}

#[test]
fn bandwidth_is_exactly_capped() {
    for load in [1.0, 1.5] {
        near(seen(fixed(), Pattern::Random, 1.0, load * 1.05).achieved.as_mbps(), 10_000.0, 1e-4);
        near(seen(curved(), Pattern::Sequential, 1.0, load * 1.05).achieved.as_mbps(), 10_000.0, 1e-4);
        near(seen(fixed(), Pattern::Random, 0.0, load).achieved.as_mbps(), 5_000.0, 1e-4);
    }
    // One read (6.4 ns) to one write (12.8 ns).
    near(seen(fixed(), Pattern::Random, 0.5, 1.5).achieved.as_mbps(), 2.0 * 64e3 / 19.2, 0.01);
    // Rates with a fractional number of picoseconds per line.
    let odd = Fixed { read_bandwidth_mbps: 204_800.7, write_bandwidth_mbps: None, ..fixed() };
    near(seen(odd, Pattern::Random, 1.0, 1.2).achieved.as_mbps(), 204_800.7, 1e-4);
}

#[test]
fn without_a_curve_reads_queue_first_come_first_served() {
    // M/D/1: mean wait is load / (2 (1 - load)) service times.
    let service_ns = LINE_BYTES as f64 * 1e3 / 10_000.0;
    for load in [0.3, 0.6, 0.8] {
        let wait = load / (2.0 * (1.0 - load)) * service_ns;
        near(seen(fixed(), Pattern::Random, 1.0, load).mean_ns, 120.0 + wait, 0.01);
    }
}

#[test]
fn latency_follows_the_curve() {
    for (load, latency_ns) in [(0.1, 125.0), (0.2, 130.0), (0.4, 165.0), (0.75, 350.0), (0.95, 500.0)] {
        near(seen(curved(), Pattern::Random, 1.0, load).mean_ns, latency_ns, 0.02);
    }
    // A chase never queues.
    near(seen(curved(), Pattern::Chase, 1.0, 1.0).mean_ns, 120.0, 1e-9);
}

#[test]
fn arrivals_may_be_pushed_out_of_order() {
    let completions = |order: [usize; 4]| {
        let mut node = FixedNode::new(&fixed());
        let mut done = Vec::new();
        for id in order {
            node.push(Time::from_ns(3.0 * id as f64), Request { line: 1, write: id == 1, id: id as u64 });
        }
        node.advance(Time::from_us(1), &mut done);
        done
    };
    assert_eq!(completions([0, 1, 2, 3]), completions([2, 0, 3, 1]));
}

#[test]
fn energy_is_that_of_lines_and_standby() {
    let point = seen(fixed(), Pattern::Random, 0.5, 0.5);
    let lines_a_second = point.achieved.as_mbps() * 1e6 / LINE_BYTES as f64;
    // Per line half a read and half a write, plus 10 mW over the time between two lines.
    let line_nj = 2.5 + 10e6 / lines_a_second;
    near(point.line_energy_nj.unwrap(), line_nj, 0.005);
    near(point.power_mw.unwrap(), line_nj * lines_a_second / 1e6, 0.005);
    let silent = Node { energy: Energy::default(), ..node(fixed()) };
    let load =
        Load { pattern: Pattern::Random, read_share: 1.0, share_of_peak: 0.5, requests: 1000, seed: 1 };
    assert_eq!(probe(&silent, load).line_energy_nj, None);
}

//! Fixed nodes: latency and bandwidth are given, not emergent.

use std::collections::VecDeque;

use memtide_core::machine::Fixed;
use memtide_core::{LINE_BYTES, Time};

use crate::counters::Counters;
use crate::node::{Completion, MemoryNode, REPORT_ACCEPTED, Request};

/// Length of the window over which utilisation is measured. Short compared to a program's phases, but 800
/// lines of a node of 10 GB/s.
const WINDOW: Time = Time::from_us(5);

/// A server that moves one line at a time.
///
/// A read ends one idle latency after the server takes it. With a loaded-latency curve it ends when the curve
/// says, at the utilisation of the last 5 us, unless the server's backlog makes it later. Reads without
/// another one in flight, such as a chase's, are not load: they never queue. Writes are posted and only use
/// service time.
#[derive(Clone, Debug)]
pub struct FixedNode {
    waiting: VecDeque<(Time, Request)>,
    latency: Time,
    /// Service time of a read and a write, in units of 2^-16 ps.
    service: [u64; 2],
    /// When the server becomes free, in the same unit.
    free: u128,
    curve: Vec<(f64, f64)>,
    load: Load,
    /// End of the last read so far.
    last_end: Time,
    counters: Counters,
}

impl FixedNode {
    /// The node of checked figures.
    pub fn new(fixed: &Fixed) -> FixedNode {
        let service = |mbps: f64| libm::round(LINE_BYTES as f64 * 1e6 / mbps * 65_536.0) as u64;
        debug_assert!(
            fixed.loaded.is_sorted_by(|a, b| a.load < b.load && a.latency_ns <= b.latency_ns),
            "a checked curve rises"
        );
        let write_mbps = fixed.write_bandwidth_mbps.unwrap_or(fixed.read_bandwidth_mbps);
        FixedNode {
            waiting: VecDeque::new(),
            latency: Time::from_ns(fixed.read_latency_ns),
            service: [service(fixed.read_bandwidth_mbps), service(write_mbps)],
            free: 0,
            curve: curve(fixed),
            load: Load::default(),
            last_end: Time::ZERO,
            counters: Counters::default(),
        }
    }

    fn serve(&mut self, at: Time, request: Request, done: &mut Vec<Completion>) {
        let service = self.service[usize::from(request.write)];
        let start = self.free.max(u128::from(at.0) << 16);
        self.free = start + u128::from(service);
        self.counters.bus_busy += Time(service >> 16);
        let meets_others = request.write || at < self.last_end;
        let loaded = self.load.add(at, if meets_others { service >> 16 } else { 0 });
        if request.write {
            self.counters.writes += 1;
            if request.id & REPORT_ACCEPTED != 0 {
                done.push(Completion { id: request.id, at: Time((start >> 16) as u64) });
            }
            return;
        }
        self.counters.reads += 1;
        let served = Time((start >> 16) as u64) + self.latency;
        let at = if self.curve.is_empty() { served } else { served.max(at + self.latency_at(loaded)) };
        self.last_end = self.last_end.max(at);
        done.push(Completion { id: request.id, at });
    }

    /// When the server becomes free, in whole picoseconds.
    fn free(&self) -> Time {
        Time((self.free >> 16) as u64)
    }

    /// Latency on the curve, linearly interpolated.
    fn latency_at(&self, load: f64) -> Time {
        let after = self.curve.partition_point(|&(l, _)| l < load);
        let ns = match (after.checked_sub(1).map(|i| self.curve[i]), self.curve.get(after)) {
            (Some((l0, ns0)), Some(&(l1, ns1))) => ns0 + (ns1 - ns0) * (load - l0) / (l1 - l0),
            (Some((_, ns)), None) | (None, Some(&(_, ns))) => ns,
            (None, None) => return self.latency,
        };
        Time::from_ns(ns)
    }
}

/// The loaded-latency points, from the idle latency on.
fn curve(fixed: &Fixed) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = fixed.loaded.iter().map(|p| (p.load, p.latency_ns)).collect();
    if points.first().is_some_and(|&(load, _)| load > 0.0) {
        points.insert(0, (0.0, fixed.read_latency_ns));
    }
    points
}

/// Utilisation over a sliding window: the current window's part, and the previous one for the rest.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    window: u64,
    wanted: u64,
    wanted_before: u64,
}

impl Load {
    fn add(&mut self, at: Time, service: u64) -> f64 {
        let window = at.0 / WINDOW.0;
        if window > self.window {
            self.wanted_before = if window == self.window + 1 { self.wanted } else { 0 };
            self.wanted = 0;
            self.window = window;
        }
        let into = at.0.saturating_sub(self.window * WINDOW.0) as f64 / WINDOW.0 as f64;
        let load = (self.wanted as f64 + self.wanted_before as f64 * (1.0 - into)) / WINDOW.0 as f64;
        self.wanted += service;
        load.min(1.0)
    }
}

impl MemoryNode for FixedNode {
    #[inline]
    fn push(&mut self, at: Time, request: Request) {
        // Copies of pages are queued ahead of their times, by thousands, and demand requests go before them.
        let place = self.waiting.partition_point(|&(other, _)| other <= at);
        self.waiting.insert(place, (at, request));
    }

    fn next_event(&self) -> Time {
        self.waiting.front().map_or(Time::NEVER, |&(at, _)| at.max(self.free()))
    }

    fn advance(&mut self, until: Time, done: &mut Vec<Completion>) {
        while self.next_event() <= until
            && let Some((at, request)) = self.waiting.pop_front()
        {
            self.serve(at, request, done);
        }
    }

    fn counters(&self, _: Time) -> Counters {
        self.counters
    }
}

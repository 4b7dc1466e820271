//! An open loop: a Poisson process of requests.

use memtide_core::{Bandwidth, LINE_BYTES, Time};

use super::WARM_UP;
use super::path::Path;
use super::seen::Seen;
use super::source::Source;
use crate::counters::Counters;
use crate::node::{Completion, Request};

/// Requests per batch, which keeps the node's backlog short.
const BATCH: u64 = 256;

/// Time, and lines in front of it, that a line may wait for saturated links: requests then wait before they
/// are sent, so that the node serves what the links carry. Far above the waits for links that keep up.
const LAG: Time = Time::from_us(1);
const LAG_LINES: u64 = 200;

/// Offers `rate`, whatever comes back.
pub(super) fn open_loop(mut path: Path, source: &mut Source, rate: Bandwidth, requests: u64) -> Seen {
    let mean_ps = LINE_BYTES as f64 * 1e6 / rate.as_mbps();
    let warm_up = requests / WARM_UP;
    let lag = LAG + rate.time_for(LAG_LINES * LINE_BYTES);
    let mut latencies = Latencies { warm_up, arrivals: Vec::new(), seen: Vec::new() };
    let mut done = Vec::new();
    // Times of requests as drawn, and how much later they are sent.
    let (mut drawn_ps, mut late, mut at) = (0.0, Time::ZERO, Time::ZERO);
    let (mut start, mut drawn_start_ps, mut before) = (Time::ZERO, 0.0, Counters::default());
    for id in 0..requests {
        drawn_ps += source.gap(mean_ps);
        at = Time(drawn_ps as u64) + late;
        latencies.arrivals.push(at);
        let write = source.is_write();
        path.push(at, Request { line: source.line(), write, id });
        if id % BATCH == BATCH - 1 || id == warm_up {
            path.advance(at, &mut done);
            latencies.take(&mut done);
            late += path.take_lag().since(lag);
        }
        if id == warm_up {
            (start, drawn_start_ps, before) = (at, drawn_ps, path.counters(at));
        }
    }
    path.advance(at, &mut done);
    let counters = path.counters(at).since(before);
    while path.next_event() != Time::NEVER {
        path.advance(path.next_event(), &mut done);
    }
    latencies.take(&mut done);
    let drawn = Time(drawn_ps as u64).since(Time(drawn_start_ps as u64));
    let offered = Some(Bandwidth::of((requests - warm_up) * LINE_BYTES, drawn));
    Seen { latencies: latencies.seen, counters, offered, start, end: at }
}

/// Read latencies of an open loop.
struct Latencies {
    warm_up: u64,
    arrivals: Vec<Time>,
    seen: Vec<Time>,
}

impl Latencies {
    fn take(&mut self, done: &mut Vec<Completion>) {
        let measured = done.drain(..).filter(|completion| completion.id >= self.warm_up);
        self.seen.extend(measured.map(|c| c.at.since(self.arrivals[c.id as usize])));
    }
}

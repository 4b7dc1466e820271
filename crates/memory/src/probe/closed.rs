//! A closed loop: a number of reads in flight.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use memtide_core::Time;

use super::WARM_UP;
use super::path::Path;
use super::seen::Seen;
use super::source::Source;
use crate::counters::Counters;
use crate::node::{Completion, Request};

/// Keeps `reads` in flight: each arrival starts the next read.
pub(super) fn closed_loop(path: Path, source: &mut Source, reads: u32, requests: u64) -> Seen {
    let warm_up = requests / WARM_UP;
    let mut window = Window::new(path, reads, warm_up);
    let (mut start, mut before) = (None, Counters::default());
    while (window.issued.len() as u64) < requests {
        let now = window.next_free();
        if start.is_none() && window.issued.len() as u64 >= warm_up {
            (start, before) = (Some(now), window.path.counters(now));
        }
        while window.push(now, source) {}
    }
    let end = window.next_free();
    let counters = window.path.counters(end).since(before);
    let start = start.unwrap_or(Time::ZERO);
    Seen { latencies: window.latencies, counters, offered: None, start, end }
}

/// The reads in flight.
struct Window {
    path: Path,
    /// Known times at which a place in the window becomes free.
    free: BinaryHeap<Reverse<Time>>,
    /// Start of each request.
    issued: Vec<Time>,
    warm_up: u64,
    latencies: Vec<Time>,
    done: Vec<Completion>,
}

impl Window {
    fn new(path: Path, reads: u32, warm_up: u64) -> Window {
        let free = BinaryHeap::from(vec![Reverse(Time::ZERO); reads as usize]);
        Window { path, free, issued: Vec::new(), warm_up, latencies: Vec::new(), done: Vec::new() }
    }

    /// Time of the next free place, which the caller takes.
    ///
    /// Arrivals become known out of order. One that is not known yet comes after the node's next event, so a
    /// known one no later than that is the next.
    fn next_free(&mut self) -> Time {
        loop {
            let next_event = self.path.next_event();
            if let Some(&Reverse(at)) = self.free.peek()
                && at <= next_event
            {
                self.free.pop();
                return at;
            }
            self.path.advance(next_event, &mut self.done);
            for completion in self.done.drain(..) {
                self.free.push(Reverse(completion.at));
                if completion.id >= self.warm_up {
                    self.latencies.push(completion.at.since(self.issued[completion.id as usize]));
                }
            }
        }
    }

    /// Sends the next request; returns whether it is a write, which takes no place.
    fn push(&mut self, now: Time, source: &mut Source) -> bool {
        let write = source.is_write();
        let id = self.issued.len() as u64;
        self.path.push(now, Request { line: source.line(), write, id });
        self.issued.push(now);
        write
    }
}

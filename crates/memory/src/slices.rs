//! Traffic of the other slices of a machine on a device or link that they share with the simulated one.
//!
//! Every slice runs the same program, so the others' requests are copies of this one's, each slice's later by
//! its own fixed lag:
//!
//! ```text
//!   this slice   r1 r2   r3 ...
//!   slice 1        .lag.  r1 r2   r3 ...
//!   slice 2        ......2 lags......  r1 r2   r3 ...
//! ```
//!
//! The device keeps its real speed and serves all of them, so that a request waits as long as on the whole
//! machine. Scaling its bursts or its bandwidth down to one slice's share instead would make each wait in the
//! queue as many times longer as slices share it. The lags are constant to preserve streams and bursts, and
//! long enough for the slices' bursts not to coincide.

use std::collections::VecDeque;

use memtide_core::machine::Node;
use memtide_core::{LINE_BYTES, PAGE_BYTES, Time};

use crate::counters::{BankCounters, Counters};
use crate::node::{Completion, MemoryNode, Request};

/// Lag of a slice behind the one before it: longer than a page copy's bursts or a loaded read, short compared
/// to a program's phases.
const LAG: Time = Time(1_009_000);

/// Requests of this slice, until every other slice has made them.
#[derive(Clone, Debug)]
pub(crate) struct OtherSlices<T> {
    log: VecDeque<(Time, T)>,
    /// Requests dropped from the front of the log.
    dropped: u64,
    /// The number of each other slice's next request, the one with the shortest lag first.
    next: Vec<u64>,
    /// Not after the time of the first request due.
    first: Time,
}

impl<T: Copy> OtherSlices<T> {
    /// The others of the slices that share something.
    pub fn new(slices: u16) -> OtherSlices<T> {
        let next = vec![0; usize::from(slices.max(1)) - 1];
        OtherSlices { log: VecDeque::new(), dropped: 0, next, first: Time::NEVER }
    }

    /// Whether the thing belongs to one slice alone.
    pub fn is_none(&self) -> bool {
        self.next.is_empty()
    }

    /// Records a request of this slice, which the others will repeat.
    #[inline]
    pub fn record(&mut self, at: Time, request: T) {
        if !self.next.is_empty() {
            self.log.push_back((at, request));
            self.first = self.first.min(at + LAG);
        }
    }

    /// Not after the time of the first request due; [`Time::NEVER`] without one.
    pub fn first(&self) -> Time {
        self.first
    }

    /// Takes the requests due up to and including `until`: calls `make` with the slice's number from 1 on,
    /// the time and the request; each slice's in their order.
    #[inline]
    pub fn take_due(&mut self, until: Time, mut make: impl FnMut(u64, Time, T)) {
        if self.first > until {
            return;
        }
        self.first = Time::NEVER;
        for (number, next) in (1..).zip(&mut self.next) {
            while let Some(&(at, request)) = self.log.get((*next - self.dropped) as usize) {
                let due = at + LAG * number;
                if due > until {
                    self.first = self.first.min(due);
                    break;
                }
                make(number, due, request);
                *next += 1;
            }
        }
        let slowest = self.next.iter().copied().min().unwrap_or(self.dropped);
        self.log.drain(..(slowest - self.dropped) as usize);
        self.dropped = slowest;
    }
}

/// A node that slices share. Its counters are one slice's part.
pub(crate) struct SharedNode {
    device: Box<dyn MemoryNode + Send>,
    slices: u64,
    /// Distance in lines between two slices' memory.
    apart: u64,
    others: OtherSlices<Request>,
}

/// The `id` of others' reads. Those of this slice are below.
const OTHER: u64 = u64::MAX;

impl SharedNode {
    /// The given device of a node.
    pub fn new(node: &Node, device: Box<dyn MemoryNode + Send>) -> SharedNode {
        let slices = u64::from(node.sharing_slices);
        let lines = match &node.dram {
            Some(dram) => dram.channel_bytes() * u64::from(dram.channels) / LINE_BYTES,
            None => node.lines() * slices,
        };
        // Whole pages, an odd number more: other banks, but the same place in a stream.
        let page = PAGE_BYTES / LINE_BYTES;
        let apart = ((lines / slices / page) | 1) * page;
        SharedNode { device, slices, apart, others: OtherSlices::new(node.sharing_slices) }
    }
}

impl MemoryNode for SharedNode {
    fn push(&mut self, at: Time, request: Request) {
        self.others.record(at, request);
        self.device.push(at, request);
    }

    fn next_event(&self) -> Time {
        self.device.next_event().min(self.others.first())
    }

    fn advance(&mut self, until: Time, done: &mut Vec<Completion>) {
        let SharedNode { device, others, apart, .. } = self;
        others.take_due(until, |slice, at, request| {
            let line = request.line.wrapping_add(slice * *apart);
            // No one waits for the others' writes.
            let id = if request.write { 0 } else { OTHER };
            device.push(at, Request { line, id, ..request });
        });
        let first = done.len();
        device.advance(until, done);
        let mut kept = first;
        for index in first..done.len() {
            if done[index].id != OTHER {
                done.swap(kept, index);
                kept += 1;
            }
        }
        done.truncate(kept);
    }

    fn counters(&self, at: Time) -> Counters {
        self.device.counters(at).part(self.slices)
    }

    fn bank_counters(&self) -> Vec<Vec<BankCounters>> {
        let part = |banks: Vec<BankCounters>| banks.into_iter().map(|of| of.part(self.slices)).collect();
        self.device.bank_counters().into_iter().map(part).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_other_slice_repeats_every_request_once_in_order() {
        let mut others = OtherSlices::new(4);
        let mut made: Vec<Vec<(Time, u32)>> = vec![Vec::new(); 3];
        for request in 0..100 {
            let now = Time::from_ns(137.0) * u64::from(request);
            others.record(now, request);
            others.take_due(now, |slice, at, request| {
                assert!(at <= now);
                made[slice as usize - 1].push((at, request));
            });
        }
        assert!(others.first() > Time::from_ns(137.0) * 99);
        others.take_due(Time::from_ms(1), |slice, at, request| made[slice as usize - 1].push((at, request)));
        assert_eq!(others.first(), Time::NEVER);
        for (slice, made) in (1..).zip(&made) {
            let expected = (0..100).map(|r| (Time::from_ns(137.0) * u64::from(r) + LAG * slice, r));
            assert!(made.iter().copied().eq(expected), "slice {slice}: {made:?}");
        }
        assert!(others.log.is_empty());
    }

    #[test]
    fn unshared_thing_has_no_other_requests() {
        let mut others = OtherSlices::new(1);
        others.record(Time::ZERO, ());
        assert!(others.is_none() && others.first() == Time::NEVER && others.log.is_empty());
    }
}

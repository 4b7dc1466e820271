//! Reads in flight to memory, and their waiters.

use memtide_core::{CpuId, NodeId, Time};
use slab::Slab;

/// Waiter for a line: an opaque number of the requester.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter(pub u32);

/// A read in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub line: u64,
    pub issued: Time,
    pub cpu: CpuId,
    pub domain: u16,
    pub node: NodeId,
    /// Whether a core waits for it, so that its latency counts.
    pub demand: bool,
    /// Head of the list of waiters.
    first: u32,
}

const NONE: u32 = u32::MAX;

/// Requests and their lists of waiters.
#[derive(Debug, Default)]
pub(super) struct Requests {
    requests: Slab<Request>,
    /// Waiters, each with its earliest time and the next one in the list.
    waiters: Slab<(Waiter, Time, u32)>,
}

impl Requests {
    pub fn add(
        &mut self,
        line: u64,
        issued: Time,
        cpu: CpuId,
        domain: u16,
        node: NodeId,
        demand: bool,
    ) -> u32 {
        self.requests.insert(Request { line, issued, cpu, domain, node, demand, first: NONE }) as u32
    }

    pub fn wait(&mut self, id: u32, waiter: Waiter, earliest: Time) {
        let request = &mut self.requests[id as usize];
        request.first = self.waiters.insert((waiter, earliest, request.first)) as u32;
    }

    /// Ends a request; calls `notify` for each waiter, last one first, with its earliest time.
    pub fn finish(&mut self, id: u32, mut notify: impl FnMut(Waiter, Time)) {
        let mut at = self.requests.remove(id as usize).first;
        while at != NONE {
            let (waiter, earliest, next) = self.waiters.remove(at as usize);
            notify(waiter, earliest);
            at = next;
        }
    }

    pub fn get(&self, id: u32) -> &Request {
        &self.requests[id as usize]
    }
}

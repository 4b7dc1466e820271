//! Reads under way to memory, and who waits for each.

use memtide_core::{CpuId, NodeId, Time};
use slab::Slab;

/// Whoever waits for a line: a number that its owner gave out and gets back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter(pub u32);

/// A read under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub line: u64,
    pub issued: Time,
    pub cpu: CpuId,
    pub domain: u16,
    pub node: NodeId,
    /// A core waits for it, so that its latency counts.
    pub demand: bool,
    /// First of the list of waiters.
    first: u32,
}

const NONE: u32 = u32::MAX;

/// Requests and their lists of waiters.
#[derive(Debug, Default)]
pub(super) struct Requests {
    requests: Slab<Request>,
    /// Each with the time before which it cannot have its line, and the next of its list.
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

    /// Ends a request; hands its waiters out, the last to come first, each with its earliest time.
    pub fn finish(&mut self, id: u32, mut tell: impl FnMut(Waiter, Time)) {
        let mut at = self.requests.remove(id as usize).first;
        while at != NONE {
            let (waiter, earliest, next) = self.waiters.remove(at as usize);
            tell(waiter, earliest);
            at = next;
        }
    }

    pub fn get(&self, id: u32) -> &Request {
        &self.requests[id as usize]
    }
}

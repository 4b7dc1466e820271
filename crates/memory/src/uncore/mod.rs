//! Resources shared by cores: outer cache levels, links and memory nodes.

mod ideal;
mod in_flight;
mod page_use;
mod quota;
mod requests;
mod routes;
mod shared_level;

use std::collections::VecDeque;

use memtide_core::machine::Machine;
use memtide_core::{CpuId, LINE_BYTES, NodeId, PAGE_BYTES, Time};

use self::ideal::Ideal;
pub use self::ideal::IdealLines;
use self::in_flight::InFlight;
pub use self::page_use::PageUse;
use self::quota::Monitors;
pub use self::quota::Utility;
use self::requests::Requests;
pub use self::requests::Waiter;
use self::routes::Routes;
pub use self::shared_level::Class;
use self::shared_level::SharedLevel;
use crate::cache::Access;
use crate::counters::{BankCounters, Counters};
use crate::link::{Links, Towards};
use crate::model::model;
use crate::node::{self, Completion, MemoryNode, REPORT_ACCEPTED};

/// The shared cache levels, links and nodes of a machine. [`Uncore::advance`] moves its time forward.
pub struct Uncore {
    levels: Vec<SharedLevel>,
    in_flight: InFlight,
    requests: Requests,
    links: Links,
    routes: Routes,
    nodes: Vec<NodeState>,
    completions: Vec<Completion>,
    /// Bit `n`: node `n` may have a new next event.
    touched: u64,
    latencies: Vec<(NodeId, Time)>,
    counts: UncoreCounts,
    /// Instead of links and nodes, in an ideal uncore.
    ideal: Option<Ideal>,
    /// Dirty lines that a change of quotas has dropped, still to be written by a CPU.
    dropped: VecDeque<(CpuId, u64)>,
    /// Utility monitors of the last shared level, if on.
    monitors: Option<Monitors>,
}

struct NodeState {
    memory: Box<dyn MemoryNode + Send>,
    requested: Requested,
    /// Lines written to each page, for memory that wears.
    wear: Option<Vec<u32>>,
}

/// Lines requested from a node since the start, by requester. A device moves fewer: its write queue merges
/// writes and serves reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requested {
    /// Reads by cores, write-backs of their stores, and their non-temporal stores.
    pub demand: u64,
    /// Reads by the prefetcher.
    pub prefetch: u64,
    /// Reads and writes of page copies.
    pub copy: u64,
}

/// Counters of the shared levels since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UncoreCounts {
    /// Accesses that missed the private caches.
    pub accesses: u64,
    /// Misses of the shared levels.
    pub misses: u64,
    /// Lines prefetched.
    pub prefetches: u64,
    /// Lines that any run moves at least; none unless the uncore is [ideal](Uncore::ideal).
    pub ideal: IdealLines,
}

/// The requester of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Requester {
    Demand,
    Prefetch,
    Copy,
}

impl Requested {
    fn count(&mut self, requester: Requester) {
        *match requester {
            Requester::Demand => &mut self.demand,
            Requester::Prefetch => &mut self.prefetch,
            Requester::Copy => &mut self.copy,
        } += 1;
    }
}

impl Uncore {
    /// The idle uncore of a machine, with empty caches.
    pub fn new(machine: &Machine) -> Uncore {
        let shared = machine.caches.iter().filter(|c| c.is_shared());
        let levels = shared.map(|level| SharedLevel::new(machine, level));
        let nodes = machine.nodes.iter().map(|node| NodeState {
            memory: model(node),
            requested: Requested::default(),
            wear: node.endurance_writes.map(|_| vec![0; node.pages() as usize]),
        });
        Uncore {
            levels: levels.collect(),
            in_flight: InFlight::new(),
            requests: Requests::default(),
            links: Links::new(machine),
            routes: Routes::of(machine),
            nodes: nodes.collect(),
            completions: Vec::new(),
            touched: 0,
            latencies: Vec::new(),
            counts: UncoreCounts::default(),
            ideal: None,
            dropped: VecDeque::new(),
            monitors: None,
        }
    }

    /// The idle uncore of a machine with memory that has no queues, and the least latency that any node
    /// offers each CPU.
    ///
    /// Each class has a last level of its own: no partition of the machine's has more hits.
    pub fn ideal(machine: &Machine) -> Uncore {
        let mut uncore = Uncore::new(machine);
        uncore.levels.last_mut().into_iter().for_each(SharedLevel::isolate);
        let ideal = Ideal::of(machine, &uncore.routes, uncore.levels.last().cloned());
        Uncore { ideal: Some(ideal), ..uncore }
    }

    /// A load or store that missed the private caches of `cpu`. Returns the arrival time of its line,
    /// load-to-use from `at`; `None` if not known yet: [`Uncore::advance`] then reports `waiter`.
    pub fn demand(&mut self, cpu: CpuId, line: u64, at: Time, waiter: Waiter) -> Option<Time> {
        self.demand_within(cpu, line, at, waiter, Time::NEVER)
    }

    /// As [`Uncore::demand`], for a line that the prefetcher brings into the first cache as well: once it is
    /// there, the core does not wait for it.
    pub fn demand_prefetched(&mut self, cpu: CpuId, line: u64, at: Time, waiter: Waiter) -> Option<Time> {
        self.demand_within(cpu, line, at, waiter, Time::ZERO)
    }

    /// As [`Uncore::demand`]; a hit takes no longer than `most`.
    #[inline]
    fn demand_within(&mut self, cpu: CpuId, line: u64, at: Time, waiter: Waiter, most: Time) -> Option<Time> {
        self.counts.accesses += 1;
        if let Some(ideal) = &mut self.ideal {
            ideal.count_read(cpu, line);
        }
        if let Some(monitors) = &mut self.monitors {
            monitors.see(&self.levels, cpu, line);
        }
        let domain = self.domain(cpu);
        if let Some(latency) = self.look_up(0, cpu, line, at) {
            let there = at + latency.min(most);
            return match self.in_flight.find(domain, line) {
                Some(entry) if entry.arrival == Time::NEVER => {
                    self.requests.wait(entry.request, waiter, there);
                    None
                }
                Some(entry) => Some(there.max(entry.arrival)),
                None => Some(there),
            };
        }
        self.counts.misses += 1;
        self.write_dropped(at);
        if let Some(ideal) = &mut self.ideal {
            ideal.count_miss(line);
            let arrival = at + ideal.read(cpu, line);
            self.arrive(domain, line, arrival);
            return Some(arrival);
        }
        let request = self.request(cpu, domain, line, at, Requester::Demand);
        self.requests.wait(request, waiter, at);
        self.in_flight.begin(domain, line, request);
        None
    }

    /// Hints that the CPU will soon request a line: prefetches the host memory needed for it.
    #[inline]
    pub fn warm(&self, cpu: CpuId, line: u64) {
        for level in &self.levels {
            level.warm(cpu, line);
        }
    }

    /// Prefetches a line into the last shared level, unless present.
    pub fn prefetch(&mut self, cpu: CpuId, line: u64, at: Time) {
        let Some(last) = self.levels.last_mut() else { return };
        let cache = last.of(cpu);
        if cache.holds(line) {
            return;
        }
        let victim = cache.fill(line, false);
        self.counts.prefetches += 1;
        if let Some(victim) = victim.filter(|v| v.dirty) {
            self.post(cpu, victim.line, at, Requester::Demand);
        }
        let domain = self.domain(cpu);
        if let Some(ideal) = &self.ideal {
            let arrival = at + ideal.read(cpu, line);
            return self.arrive(domain, line, arrival);
        }
        let request = self.request(cpu, domain, line, at, Requester::Prefetch);
        self.in_flight.begin(domain, line, request);
    }

    /// A line of an ideal uncore is on its way to the shared levels.
    fn arrive(&mut self, domain: u16, line: u64, arrival: Time) {
        self.in_flight.begin(domain, line, 0);
        self.in_flight.arrives(domain, line, 0, arrival);
    }

    /// Takes a dirty line evicted from the private caches of `cpu`.
    pub fn spill(&mut self, cpu: CpuId, line: u64, at: Time) {
        if let Some(ideal) = &mut self.ideal {
            ideal.spill(cpu, line);
        }
        self.write_back(0, cpu, line, at);
    }

    /// When a store that overwrites a line need wait no longer for room in the write buffers: those of lines
    /// that are fetched first are as slow as their reads.
    pub fn accepts(&self, cpu: CpuId, line: u64) -> Time {
        if self.ideal.is_some() {
            return Time::ZERO;
        }
        self.links.accepts(self.routes.hops(cpu, self.routes.find(line).0))
    }

    /// Reads a line past the caches, as a page copy does; `waiter` will be notified.
    pub fn read(&mut self, cpu: CpuId, line: u64, at: Time, waiter: Waiter) {
        let domain = self.domain(cpu);
        let request = self.request(cpu, domain, line, at, Requester::Copy);
        self.requests.wait(request, waiter, at);
    }

    /// Writes a line to memory, bypassing the caches, as a page copy does; posted: no waiter.
    pub fn write(&mut self, cpu: CpuId, line: u64, at: Time) {
        self.post(cpu, line, at, Requester::Copy);
    }

    /// Writes a line past the caches, as a write-combining buffer does, and drops it from the shared levels
    /// of `cpu`: what they contain of it is merged. Posted, but the buffer of `waiter`, if any, is in use
    /// until the node has accepted the line: until the time returned or, if that is not known yet, until
    /// [`Uncore::advance`] reports it.
    pub fn write_past(&mut self, cpu: CpuId, line: u64, at: Time, waiter: Option<Waiter>) -> Option<Time> {
        for level in &mut self.levels {
            level.of(cpu).evict(line);
        }
        if let Some(ideal) = &mut self.ideal {
            return Some(at + ideal.write(cpu, line, waiter.is_some()));
        }
        let Some(waiter) = waiter else {
            self.post(cpu, line, at, Requester::Demand);
            return None;
        };
        let (domain, node) = (self.domain(cpu), self.routes.find(line).0);
        let id = self.requests.add(line, at, cpu, domain, node, false);
        self.requests.wait(id, waiter, at);
        self.send_write(cpu, line, at, Requester::Demand, REPORT_ACCEPTED | u64::from(id));
        None
    }

    fn post(&mut self, cpu: CpuId, line: u64, at: Time, requester: Requester) {
        self.send_write(cpu, line, at, requester, 0);
    }

    fn send_write(&mut self, cpu: CpuId, line: u64, at: Time, requester: Requester, id: u64) {
        if let Some(ideal) = &mut self.ideal {
            ideal.write(cpu, line, false);
            return;
        }
        let (node, local) = self.routes.find(line);
        let arrival = self.links.carry(self.routes.hops(cpu, node), Towards::Node, at + self.routes.out());
        let state = &mut self.nodes[node.index()];
        state.requested.count(requester);
        if let Some(wear) = &mut state.wear {
            wear[(local / (PAGE_BYTES / LINE_BYTES)) as usize] += 1;
        }
        state.memory.push(arrival, node::Request { line: local, write: true, id });
        self.touched |= 1 << node.0;
    }

    /// Minimum time from a core's request to its arrival at a node: requests within this time from now may be
    /// made in any order.
    pub fn lookahead(&self) -> Time {
        self.routes.out()
    }

    /// Time of a node's next event.
    pub fn next_event(&self, node: NodeId) -> Time {
        self.nodes[node.index()].memory.next_event()
    }

    /// Takes the set of nodes that may have a new next event since the last call, as bits.
    pub fn take_touched(&mut self) -> u64 {
        std::mem::take(&mut self.touched)
    }

    /// Advances a node to `now`; requests before that time are no longer possible. Calls `notify` for each
    /// waiter whose line's arrival, or acceptance by the node, has become known.
    pub fn advance(&mut self, node: NodeId, now: Time, mut notify: impl FnMut(Waiter, Time)) {
        let mut completions = std::mem::take(&mut self.completions);
        self.nodes[node.index()].memory.advance(now + self.routes.out(), &mut completions);
        for completion in completions.drain(..) {
            let id = completion.id as u32;
            let request = *self.requests.get(id);
            let hops = self.routes.hops(request.cpu, node);
            if completion.id & REPORT_ACCEPTED != 0 {
                let arrival = self.links.signal(hops, completion.at);
                self.requests.finish(id, |waiter, earliest| notify(waiter, arrival.max(earliest)));
                continue;
            }
            let there = completion.at - self.routes.allowance(node);
            let arrival = self.links.carry(hops, Towards::Initiator, there);
            self.in_flight.arrives(request.domain, request.line, id, arrival);
            if request.demand {
                self.latencies.push((request.node, arrival.since(request.issued)));
            }
            self.requests.finish(id, |waiter, earliest| notify(waiter, arrival.max(earliest)));
        }
        self.completions = completions;
        self.touched |= 1 << node.0;
    }

    /// Latencies of demand reads that ended since the last call, by node.
    pub fn drain_latencies(&mut self) -> impl Iterator<Item = (NodeId, Time)> + '_ {
        self.latencies.drain(..)
    }

    /// Counters of the shared levels.
    pub fn counts(&self) -> UncoreCounts {
        let ideal = self.ideal.as_ref().map_or(IdealLines::default(), |ideal| ideal.lines);
        UncoreCounts { ideal, ..self.counts }
    }

    /// Page frames read on ideal memory since the last call, in order, with their use; none on other memory.
    pub fn take_page_uses(&mut self) -> Vec<(u32, PageUse)> {
        self.ideal.as_mut().map_or_else(Vec::new, Ideal::take_pages)
    }

    /// A node's device counters; refreshes are counted up to `at`.
    pub fn node_counters(&self, node: NodeId, at: Time) -> Counters {
        self.nodes[node.index()].memory.counters(at)
    }

    /// Counters of each bank of a node, by channel.
    pub fn bank_counters(&self, node: NodeId) -> Vec<Vec<BankCounters>> {
        self.nodes[node.index()].memory.bank_counters()
    }

    /// Lines requested from a node so far.
    pub fn requested(&self, node: NodeId) -> Requested {
        self.nodes[node.index()].requested
    }

    /// Lines written to each page of a node with wear.
    pub fn wear(&self, node: NodeId) -> Option<&[u32]> {
        self.nodes[node.index()].wear.as_deref()
    }

    /// Lines carried by a link from its first end to its second, and back.
    pub fn link_lines(&self, link: usize) -> [u64; 2] {
        self.links.lines(link)
    }

    /// The outermost shared cache of a CPU, or the CPU itself if it has none.
    fn domain(&self, cpu: CpuId) -> u16 {
        self.levels.last().map_or(cpu.0, |level| level.cache_of(cpu).0)
    }

    /// Looks a line up from a shared level on, and inserts it into the levels that miss; returns the latency
    /// of the one that hits.
    fn look_up(&mut self, index: usize, cpu: CpuId, line: u64, at: Time) -> Option<Time> {
        let level = self.levels.get_mut(index)?;
        match level.of(cpu).access(line, false) {
            Access::Hit => Some(level.latency),
            Access::Miss(victim) => {
                let latency = self.look_up(index + 1, cpu, line, at);
                if let Some(victim) = victim.filter(|v| v.dirty) {
                    self.write_back(index + 1, cpu, victim.line, at);
                }
                latency
            }
        }
    }

    fn write_back(&mut self, index: usize, cpu: CpuId, line: u64, at: Time) {
        let Some(level) = self.levels.get_mut(index) else {
            return self.post(cpu, line, at, Requester::Demand);
        };
        let victim = level.of(cpu).write_back(line);
        if let Some(victim) = victim.filter(|v| v.dirty) {
            self.write_back(index + 1, cpu, victim.line, at);
        }
    }

    fn request(&mut self, cpu: CpuId, domain: u16, line: u64, at: Time, requester: Requester) -> u32 {
        let (node, local) = self.routes.find(line);
        let id = self.requests.add(line, at, cpu, domain, node, requester == Requester::Demand);
        let arrival = self.links.signal(self.routes.hops(cpu, node), at + self.routes.out());
        let state = &mut self.nodes[node.index()];
        state.requested.count(requester);
        state.memory.push(arrival, node::Request { line: local, write: false, id: id.into() });
        self.touched |= 1 << node.0;
        id
    }
}

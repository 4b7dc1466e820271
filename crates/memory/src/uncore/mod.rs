//! What cores share: the outer cache levels, links and memory nodes.

mod in_flight;
mod requests;
mod routes;

use memtide_core::machine::Machine;
use memtide_core::{CpuId, LINE_BYTES, NodeId, PAGE_BYTES, Time};

use self::in_flight::InFlight;
use self::requests::Requests;
pub use self::requests::Waiter;
use self::routes::Routes;
use crate::cache::{Access, Cache};
use crate::counters::Counters;
use crate::link::{Links, Towards};
use crate::model::model;
use crate::node::{self, Completion, MemoryNode};

/// The shared cache levels, links and nodes of a machine. Time runs forward through [`Uncore::advance`].
pub struct Uncore {
    levels: Vec<SharedLevel>,
    in_flight: InFlight,
    requests: Requests,
    links: Links,
    routes: Routes,
    nodes: Vec<NodeState>,
    completions: Vec<Completion>,
    /// Bit `n`: the next event of node `n` may have changed.
    touched: u64,
    latencies: Vec<(NodeId, Time)>,
    counts: UncoreCounts,
}

struct SharedLevel {
    latency: Time,
    shared_by: u16,
    instances: Vec<Cache>,
}

struct NodeState {
    memory: Box<dyn MemoryNode + Send>,
    requested: Requested,
    /// Lines written to each page, where memory wears.
    wear: Option<Vec<u32>>,
}

/// Lines asked of a node since the start, by who asked. A device moves fewer: its write queue merges writes and answers
/// reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requested {
    /// Reads that cores asked for, and write-backs of what they wrote.
    pub demand: u64,
    /// Reads of the prefetcher.
    pub prefetch: u64,
    /// Reads and writes of page copies.
    pub copy: u64,
}

/// Counts of the shared levels since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UncoreCounts {
    /// Accesses that missed the private caches.
    pub accesses: u64,
    /// Those that missed the shared levels as well.
    pub misses: u64,
    /// Lines fetched ahead.
    pub prefetches: u64,
}

/// Who asks for a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asker {
    Demand,
    Prefetch,
    Copy,
}

impl Requested {
    fn count(&mut self, asker: Asker) {
        *match asker {
            Asker::Demand => &mut self.demand,
            Asker::Prefetch => &mut self.prefetch,
            Asker::Copy => &mut self.copy,
        } += 1;
    }
}

impl Uncore {
    /// The idle uncore of a machine, whose caches are empty.
    pub fn new(machine: &Machine) -> Uncore {
        let levels = machine.caches.iter().filter(|c| c.is_shared()).map(|c| SharedLevel {
            latency: machine.core.cycles(c.latency_cycles),
            shared_by: c.shared_by,
            instances: vec![
                Cache::new(c.capacity_kib, c.ways);
                machine.cpus().div_ceil(usize::from(c.shared_by))
            ],
        });
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
        }
    }

    /// A load or store that missed the private caches of `cpu`. Gives the time at which its line is there,
    /// counted as load-to-use from `at`; none if that is not known yet: then [`Uncore::advance`] reports
    /// `waiter`.
    pub fn demand(&mut self, cpu: CpuId, line: u64, at: Time, waiter: Waiter) -> Option<Time> {
        self.counts.accesses += 1;
        let domain = self.domain(cpu);
        if let Some(latency) = self.look_up(0, cpu, line, at) {
            let there = at + latency;
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
        let request = self.request(cpu, domain, line, at, Asker::Demand);
        self.requests.wait(request, waiter, at);
        self.in_flight.begin(domain, line, request);
        None
    }

    /// Says that the CPU will soon ask for a line, so that the host can fetch what the answer takes.
    #[inline]
    pub fn warm(&self, cpu: CpuId, line: u64) {
        for level in &self.levels {
            level.instances[cpu.index() / usize::from(level.shared_by)].warm(line);
        }
    }

    /// Fetches a line ahead into the last shared level, unless it is there.
    pub fn prefetch(&mut self, cpu: CpuId, line: u64, at: Time) {
        let Some(last) = self.levels.last_mut() else { return };
        let instance = cpu.index() / usize::from(last.shared_by);
        if last.instances[instance].holds(line) {
            return;
        }
        self.counts.prefetches += 1;
        let victim = last.instances[instance].fill(line, false);
        if let Some(victim) = victim.filter(|v| v.dirty) {
            self.post(cpu, victim.line, at, Asker::Demand);
        }
        let domain = self.domain(cpu);
        let request = self.request(cpu, domain, line, at, Asker::Prefetch);
        self.in_flight.begin(domain, line, request);
    }

    /// Takes a dirty line that left the private caches of `cpu`.
    pub fn spill(&mut self, cpu: CpuId, line: u64, at: Time) {
        self.write_back(0, cpu, line, at);
    }

    /// Reads a line past the caches, as a page copy does; `waiter` will be notified.
    pub fn read(&mut self, cpu: CpuId, line: u64, at: Time, waiter: Waiter) {
        let domain = self.domain(cpu);
        let request = self.request(cpu, domain, line, at, Asker::Copy);
        self.requests.wait(request, waiter, at);
    }

    /// Writes a line to memory, bypassing the caches, as a page copy does; posted: no waiter.
    pub fn write(&mut self, cpu: CpuId, line: u64, at: Time) {
        self.post(cpu, line, at, Asker::Copy);
    }

    fn post(&mut self, cpu: CpuId, line: u64, at: Time, asker: Asker) {
        let (node, local) = self.routes.find(line);
        let arrival = self.links.carry(self.routes.hops(cpu, node), Towards::Node, at + self.routes.out());
        let state = &mut self.nodes[node.index()];
        state.requested.count(asker);
        if let Some(wear) = &mut state.wear {
            wear[(local / (PAGE_BYTES / LINE_BYTES)) as usize] += 1;
        }
        state.memory.push(arrival, node::Request { line: local, write: true, id: 0 });
        self.touched |= 1 << node.0;
    }

    /// The least time from a core's request to its arrival at a node: what is asked for within this time of
    /// the present may be asked for in any order.
    pub fn lookahead(&self) -> Time {
        self.routes.out()
    }

    /// When the node next has something to do.
    pub fn next_event(&self, node: NodeId) -> Time {
        self.nodes[node.index()].memory.next_event()
    }

    /// Takes the set of nodes whose next event may have changed since the last call, as bits.
    pub fn take_touched(&mut self) -> u64 {
        std::mem::take(&mut self.touched)
    }

    /// Lets the node work; nothing will be asked of the uncore for a time before `now`. Each waiter whose
    /// line's arrival is known then is told it.
    pub fn advance(&mut self, node: NodeId, now: Time, mut tell: impl FnMut(Waiter, Time)) {
        let mut completions = std::mem::take(&mut self.completions);
        self.nodes[node.index()].memory.advance(now + self.routes.out(), &mut completions);
        for completion in completions.drain(..) {
            let id = completion.id as u32;
            let request = *self.requests.get(id);
            let hops = self.routes.hops(request.cpu, node);
            let there = completion.at - self.routes.allowance(node);
            let arrival = self.links.carry(hops, Towards::Initiator, there);
            self.in_flight.arrives(request.domain, request.line, id, arrival);
            if request.demand {
                self.latencies.push((request.node, arrival.since(request.issued)));
            }
            self.requests.finish(id, |waiter, earliest| tell(waiter, arrival.max(earliest)));
        }
        self.completions = completions;
        self.touched |= 1 << node.0;
    }

    /// Latencies of demand reads that ended since the last call, by node.
    pub fn drain_latencies(&mut self) -> impl Iterator<Item = (NodeId, Time)> + '_ {
        self.latencies.drain(..)
    }

    /// Counts of the shared levels.
    pub fn counts(&self) -> UncoreCounts {
        self.counts
    }

    /// What a node's device has done, up to `at` as far as refreshes go.
    pub fn node_counters(&self, node: NodeId, at: Time) -> Counters {
        self.nodes[node.index()].memory.counters(at)
    }

    /// Lines asked of a node so far.
    pub fn requested(&self, node: NodeId) -> Requested {
        self.nodes[node.index()].requested
    }

    /// Lines written to each page of a node that wears.
    pub fn wear(&self, node: NodeId) -> Option<&[u32]> {
        self.nodes[node.index()].wear.as_deref()
    }

    /// Lines that the link carried from its first end to its second, and back.
    pub fn link_lines(&self, link: usize) -> [u64; 2] {
        self.links.lines(link)
    }

    /// The outermost shared cache of a CPU, or the CPU itself if it shares none.
    fn domain(&self, cpu: CpuId) -> u16 {
        self.levels.last().map_or(cpu.0, |level| cpu.0 / level.shared_by)
    }

    /// Looks a line up from a shared level on, and puts it into those that do not hold it; gives the latency
    /// of the one that does.
    fn look_up(&mut self, index: usize, cpu: CpuId, line: u64, at: Time) -> Option<Time> {
        let level = self.levels.get_mut(index)?;
        let instance = cpu.index() / usize::from(level.shared_by);
        match level.instances[instance].access(line, false) {
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
            return self.post(cpu, line, at, Asker::Demand);
        };
        let instance = cpu.index() / usize::from(level.shared_by);
        let victim = level.instances[instance].write_back(line);
        if let Some(victim) = victim.filter(|v| v.dirty) {
            self.write_back(index + 1, cpu, victim.line, at);
        }
    }

    fn request(&mut self, cpu: CpuId, domain: u16, line: u64, at: Time, asker: Asker) -> u32 {
        let (node, local) = self.routes.find(line);
        let id = self.requests.add(line, at, cpu, domain, node, asker == Asker::Demand);
        let arrival = self.links.signal(self.routes.hops(cpu, node), at + self.routes.out());
        let state = &mut self.nodes[node.index()];
        state.requested.count(asker);
        state.memory.push(arrival, node::Request { line: local, write: false, id: id.into() });
        self.touched |= 1 << node.0;
        id
    }
}

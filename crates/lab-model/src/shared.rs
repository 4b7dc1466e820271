//! Resources shared by virtual CPUs: outer caches, links, nodes.

use memtide_core::machine::{Hop, Machine};
use memtide_core::{CpuId, InitiatorId, NodeId, Time};
use memtide_lab_protocol::Counts;
use memtide_lab_protocol::clock::Range;
use memtide_memory::Cache;

use crate::buckets::Buckets;
use crate::node::{CurveNode, Map};

/// In-flight lines tracked per shared cache; a power of two.
const ARRIVALS: usize = 1024;

/// The shared side of [`crate::Curve`].
#[derive(Clone, Debug)]
pub(super) struct Shared {
    levels: Vec<Level>,
    nodes: Vec<CurveNode>,
    links: Vec<Link>,
    /// Memory map: node of each line.
    pub map: Map,
    /// By CPU and node.
    hops: Vec<Vec<Vec<Hop>>>,
    /// Latency from a core to a node without links; part of a fixed node's latency.
    out: Time,
    arrivals: Vec<(u64, Time)>,
    /// By CPU; only misses and node traffic.
    pub counts: Vec<Counts>,
}

#[derive(Clone, Debug)]
struct Level {
    latency: Time,
    shared_by: u16,
    instances: Vec<Cache>,
}

#[derive(Clone, Debug)]
struct Link {
    half_latency: Time,
    service: u64,
    lanes: [Buckets; 2],
}

impl Shared {
    pub fn new(machine: &Machine, cpu_initiators: &[InitiatorId], ranges: &[Range]) -> Shared {
        let levels = machine.caches.iter().filter(|cache| cache.is_shared()).map(|cache| Level {
            latency: machine.core.cycles(cache.latency_cycles),
            shared_by: cache.shared_by,
            instances: vec![
                Cache::new(cache.capacity_kib, cache.ways);
                cpu_initiators.len().div_ceil(cache.shared_by.into())
            ],
        });
        let links = machine.links.iter().map(|link| Link {
            half_latency: Time(Time::from_ns(link.latency_ns).0 / 2),
            service: Buckets::service(link.bandwidth_mbps),
            lanes: [Buckets::new(), Buckets::new()],
        });
        let hops = |&from: &InitiatorId| {
            machine.node_ids().map(|node| machine.topology.hops(from, node).to_vec()).collect()
        };
        let last = machine.caches.last().map_or(0.0, |cache| cache.latency_cycles);
        let fixed = machine.nodes.iter().filter_map(|node| node.fixed.as_ref());
        Shared {
            levels: levels.collect(),
            nodes: fixed.map(CurveNode::new).collect(),
            links: links.collect(),
            map: Map::new(ranges),
            hops: cpu_initiators.iter().map(hops).collect(),
            out: machine.core.cycles(last),
            arrivals: vec![(u64::MAX, Time::ZERO); ARRIVALS],
            counts: vec![Counts::none(machine.nodes.len()); cpu_initiators.len()],
        }
    }

    /// Arrival time of a line that missed the private caches at `at`. `alone`: the CPU has no other
    /// outstanding line.
    #[inline]
    pub fn demand(&mut self, cpu: CpuId, line: u64, at: Time, alone: bool) -> Time {
        self.demand_within(cpu, line, at, alone, Time::NEVER)
    }

    /// As [`Shared::demand`], for a line that the prefetcher brings into the first cache as well: once it is
    /// there, the CPU does not wait for it.
    #[inline]
    pub fn demand_prefetched(&mut self, cpu: CpuId, line: u64, at: Time, alone: bool) -> Time {
        self.demand_within(cpu, line, at, alone, Time::ZERO)
    }

    /// As [`Shared::demand`]; a hit takes no longer than `most`.
    #[inline]
    fn demand_within(&mut self, cpu: CpuId, line: u64, at: Time, alone: bool, most: Time) -> Time {
        if let Some(there) = self.look_up(cpu, line, at, most) {
            return there;
        }
        self.fill(self.levels.len(), cpu, line, at);
        let Some(node) = self.map.node_of(line) else { return at };
        let end = self.read(cpu, node, at, alone);
        let counts = &mut self.counts[cpu.index()];
        counts.llc_misses += 1;
        let counts = &mut counts.nodes[node.index()];
        counts.reads += 1;
        counts.latency += end.since(at);
        self.record_arrival(line, end);
        end
    }

    /// Prefetches a line into the last level, unless present.
    pub fn prefetch(&mut self, cpu: CpuId, line: u64, at: Time) {
        let Some(node) = self.map.node_of(line) else { return };
        let Some(last) = self.levels.last_mut() else { return };
        let cache = &mut last.instances[cpu.index() / usize::from(last.shared_by)];
        if cache.holds(line) {
            return;
        }
        if let Some(victim) = cache.fill(line, false).filter(|v| v.dirty) {
            self.write(cpu, victim.line, at);
        }
        let end = self.read(cpu, node, at, false);
        self.counts[cpu.index()].nodes[node.index()].prefetches += 1;
        self.record_arrival(line, end);
    }

    /// Takes a dirty line evicted from the private caches.
    pub fn spill(&mut self, cpu: CpuId, line: u64, at: Time) {
        self.write_back(0, cpu, line, at);
    }

    fn look_up(&mut self, cpu: CpuId, line: u64, at: Time, most: Time) -> Option<Time> {
        let hit = self.levels.iter_mut().position(|level| {
            level.instances[cpu.index() / usize::from(level.shared_by)].touch(line, false)
        })?;
        self.fill(hit, cpu, line, at);
        let there = at + self.levels[hit].latency.min(most);
        let (held, arrival) = self.arrivals[line as usize % ARRIVALS];
        Some(if held == line { there.max(arrival) } else { there })
    }

    fn record_arrival(&mut self, line: u64, arrival: Time) {
        self.arrivals[line as usize % ARRIVALS] = (line, arrival);
    }

    fn fill(&mut self, levels: usize, cpu: CpuId, line: u64, at: Time) {
        for index in (0..levels).rev() {
            let level = &mut self.levels[index];
            let victim = level.instances[cpu.index() / usize::from(level.shared_by)].fill(line, false);
            if let Some(victim) = victim.filter(|v| v.dirty) {
                self.write_back(index + 1, cpu, victim.line, at);
            }
        }
    }

    fn write_back(&mut self, index: usize, cpu: CpuId, line: u64, at: Time) {
        let Some(level) = self.levels.get_mut(index) else {
            self.write(cpu, line, at);
            return;
        };
        let victim = level.instances[cpu.index() / usize::from(level.shared_by)].write_back(line);
        if let Some(victim) = victim.filter(|v| v.dirty) {
            self.write_back(index + 1, cpu, victim.line, at);
        }
    }

    fn read(&mut self, cpu: CpuId, node: NodeId, at: Time, alone: bool) -> Time {
        let Shared { hops, links, nodes, out, .. } = self;
        let hops = &hops[cpu.index()][node.index()];
        let arrival = hops.iter().fold(at + *out, |at, hop| at + links[hop.link].half_latency);
        let end = nodes[node.index()].read(arrival, alone);
        let there = Time(end.0 - out.0);
        hops.iter().rev().fold(there, |at, hop| links[hop.link].carry(!hop.reversed, at, alone))
    }

    /// Writes a line past the caches, which drop it; returns when the CPU knows that its node has taken it.
    pub fn write_past(&mut self, cpu: CpuId, line: u64, at: Time) -> Time {
        for level in &mut self.levels {
            level.instances[cpu.index() / usize::from(level.shared_by)].evict(line);
        }
        let taken = self.write(cpu, line, at);
        let Some(node) = self.map.node_of(line) else { return at };
        let hops = &self.hops[cpu.index()][node.index()];
        hops.iter().fold(taken, |at, hop| at + self.links[hop.link].half_latency)
    }

    /// Writes a line; returns when its node takes it.
    fn write(&mut self, cpu: CpuId, line: u64, at: Time) -> Time {
        let Some(node) = self.map.node_of(line) else { return at };
        let Shared { hops, links, nodes, out, .. } = self;
        let hops = &hops[cpu.index()][node.index()];
        let arrival = hops.iter().fold(at + *out, |at, hop| links[hop.link].carry(hop.reversed, at, false));
        self.counts[cpu.index()].nodes[node.index()].writes += 1;
        nodes[node.index()].write(arrival)
    }
}

impl Link {
    /// Arrival time of a line sent at `at`; one `alone` uses no service time, as in a node.
    fn carry(&mut self, back: bool, at: Time, alone: bool) -> Time {
        let lane = &mut self.lanes[usize::from(back)];
        let begin = if alone { lane.next_free(at) } else { lane.take(at, self.service) };
        begin + self.half_latency
    }
}

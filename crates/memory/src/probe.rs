//! Measures idle latency, bandwidth and loaded latency, as Intel MLC does on real memory.

use memtide_core::machine::{Energy, Node};
use memtide_core::{Bandwidth, LINE_BYTES, Time};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::counters::Counters;
use crate::model::model;
use crate::node::{Completion, MemoryNode, Request};

/// Inverse of the share of requests used for warm-up.
const WARM_UP: u64 = 10;

/// Requests per batch, which keeps the node's backlog short.
const BATCH: u64 = 256;

/// Ratio of served to offered requests below which the node counts as saturated.
const SATURATED: f64 = 0.98;

/// Order of the requested lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Random lines of the whole node, as a Poisson process.
    Random,
    /// Consecutive lines, as a Poisson process.
    Sequential,
    /// Random lines of the whole node, each requested when the previous one has arrived: a pointer chase.
    Chase,
}

/// Load of a probe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Order of the lines.
    pub pattern: Pattern,
    /// Share of reads among requests, 0 to 1; a chase only reads.
    pub read_share: f64,
    /// Offered load as a share of the node's peak, above 0; may exceed 1. Ignored by a chase.
    pub share_of_peak: f64,
    /// Number of requests, including a tenth for warm-up.
    pub requests: u64,
    /// Seed of lines and arrival times.
    pub seed: u64,
}

/// Result of a probe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProbePoint {
    /// Actual arrival rate of requests; for a chase the achieved rate.
    pub offered: Bandwidth,
    /// Service rate, reads and writes together.
    pub achieved: Bandwidth,
    /// Mean read latency in ns; like all latencies 0 without reads.
    pub mean_ns: f64,
    /// Median read latency, in ns.
    pub p50_ns: f64,
    /// 95th percentile of the read latency, in ns.
    pub p95_ns: f64,
    /// 99th percentile of the read latency, in ns.
    pub p99_ns: f64,
    /// Share of accesses whose row was already open, 0 to 1 (dram nodes).
    pub row_hit_rate: f64,
    /// Energy per line, standby included, in nJ; `None` if the node's energy is unknown.
    pub line_energy_nj: Option<f64>,
    /// Mean power in mW; `None` if the node's energy is unknown.
    pub power_mw: Option<f64>,
    /// Whether the offered load exceeded the service rate: latencies then depend on the probe's duration, and
    /// `achieved` is the node's bandwidth.
    pub saturated: bool,
}

/// Probes a node of a checked machine, without caches and links.
pub fn probe(node: &Node, load: Load) -> ProbePoint {
    let lines = (node.capacity_mib << 20) / LINE_BYTES;
    let mut source = Source::new(load, lines);
    let mut memory = model(node);
    match load.pattern {
        Pattern::Chase => chase(memory.as_mut(), &mut source, load.requests),
        Pattern::Random | Pattern::Sequential => open_loop(memory.as_mut(), &mut source, load),
    }
    .point(&node.energy)
}

/// Draws random lines and arrival times.
struct Source {
    random: Xoshiro256PlusPlus,
    pattern: Pattern,
    read_share: f64,
    lines: u64,
    next: u64,
}

impl Source {
    fn new(load: Load, lines: u64) -> Source {
        let random = Xoshiro256PlusPlus::seed_from_u64(load.seed);
        Source { random, pattern: load.pattern, read_share: load.read_share, lines, next: 0 }
    }

    /// Uniform in [0, 1).
    fn unit(&mut self) -> f64 {
        (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn line(&mut self) -> u64 {
        let line = match self.pattern {
            Pattern::Sequential => self.next,
            Pattern::Random | Pattern::Chase => {
                ((u128::from(self.random.next_u64()) * u128::from(self.lines)) >> 64) as u64
            }
        };
        self.next = (self.next + 1) % self.lines;
        line
    }

    fn is_write(&mut self) -> bool {
        self.read_share < 1.0 && self.unit() >= self.read_share
    }

    fn gap(&mut self, mean_ps: f64) -> f64 {
        -mean_ps * libm::log(1.0 - self.unit())
    }
}

/// Statistics of the requests after the warm-up.
struct Seen {
    latencies: Vec<Time>,
    counters: Counters,
    offered: Bandwidth,
    start: Time,
    end: Time,
}

impl Seen {
    fn point(mut self, energy: &Energy) -> ProbePoint {
        self.latencies.sort_unstable();
        let count = self.latencies.len();
        let percentile = |percent: usize| match count {
            0 => 0.0,
            _ => self.latencies[(count * percent).div_ceil(100).max(1) - 1].as_ns(),
        };
        let mean_ns = self.latencies.iter().copied().sum::<Time>().as_ns() / count.max(1) as f64;
        let elapsed = self.end.since(self.start);
        let lines = self.counters.lines() + self.counters.forwarded_reads + self.counters.merged_writes;
        let achieved = Bandwidth::of(lines * LINE_BYTES, elapsed);
        let energy_nj = (*energy != Energy::default()).then(|| self.counters.energy_nj(energy, elapsed));
        ProbePoint {
            offered: self.offered,
            achieved,
            mean_ns,
            p50_ns: percentile(50),
            p95_ns: percentile(95),
            p99_ns: percentile(99),
            row_hit_rate: self.counters.row_hit_rate(),
            line_energy_nj: energy_nj.map(|nj| nj / lines.max(1) as f64),
            power_mw: energy_nj.map(|nj| nj / elapsed.as_seconds() / 1e6),
            saturated: achieved.as_mbps() < SATURATED * self.offered.as_mbps(),
        }
    }
}

fn chase(memory: &mut dyn MemoryNode, source: &mut Source, requests: u64) -> Seen {
    let warm_up = requests / WARM_UP;
    let (mut now, mut start) = (Time::ZERO, Time::ZERO);
    let mut before = Counters::default();
    let mut latencies = Vec::with_capacity((requests - warm_up) as usize);
    let mut done = Vec::new();
    for id in 0..requests {
        if id == warm_up {
            (start, before) = (now, memory.counters(now));
        }
        memory.push(now, Request { line: source.line(), write: false, id });
        while done.is_empty() {
            memory.advance(memory.next_event(), &mut done);
        }
        let end = done.drain(..).map(|completion| completion.at).max().unwrap_or(now);
        if id >= warm_up {
            latencies.push(end.since(now));
        }
        now = end;
    }
    let counters = memory.counters(now).since(before);
    let offered = Bandwidth::of(counters.lines() * LINE_BYTES, now.since(start));
    Seen { latencies, counters, offered, start, end: now }
}

fn open_loop(memory: &mut dyn MemoryNode, source: &mut Source, load: Load) -> Seen {
    let mean_ps = LINE_BYTES as f64 * 1e6 / (memory.peak().as_mbps() * load.share_of_peak);
    let warm_up = load.requests / WARM_UP;
    let mut latencies = Latencies { warm_up, arrivals: Vec::new(), seen: Vec::new() };
    let mut done = Vec::new();
    let (mut at_ps, mut at) = (0.0, Time::ZERO);
    let (mut start, mut before) = (Time::ZERO, Counters::default());
    for id in 0..load.requests {
        at_ps += source.gap(mean_ps);
        at = Time(at_ps as u64);
        latencies.arrivals.push(at);
        let write = source.is_write();
        memory.push(at, Request { line: source.line(), write, id });
        if id % BATCH == BATCH - 1 || id == warm_up {
            memory.advance(at, &mut done);
            latencies.take(&mut done);
        }
        if id == warm_up {
            (start, before) = (at, memory.counters(at));
        }
    }
    memory.advance(at, &mut done);
    let counters = memory.counters(at).since(before);
    while memory.next_event() != Time::NEVER {
        memory.advance(memory.next_event(), &mut done);
    }
    latencies.take(&mut done);
    let offered = Bandwidth::of((load.requests - warm_up) * LINE_BYTES, at.since(start));
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

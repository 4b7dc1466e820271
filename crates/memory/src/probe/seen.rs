//! Statistics of a probe.

use memtide_core::machine::Energy;
use memtide_core::{Bandwidth, LINE_BYTES, Time};

use crate::counters::Counters;

/// Ratio of served to offered requests below which the target counts as saturated.
const SATURATED: f64 = 0.98;

/// Result of a probe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProbePoint {
    /// Arrival rate of requests: of an open loop as drawn, of a closed one as achieved.
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
    /// `achieved` is the target's bandwidth.
    pub saturated: bool,
}

/// Statistics of the requests after the warm-up.
pub(super) struct Seen {
    pub latencies: Vec<Time>,
    pub counters: Counters,
    /// Rate as drawn; `None` in a closed loop.
    pub offered: Option<Bandwidth>,
    pub start: Time,
    pub end: Time,
}

impl Seen {
    pub fn point(mut self, energy: &Energy) -> ProbePoint {
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
        let offered = self.offered.unwrap_or(achieved);
        let energy_nj = (*energy != Energy::default()).then(|| self.counters.energy_nj(energy, elapsed));
        ProbePoint {
            offered,
            achieved,
            mean_ns,
            p50_ns: percentile(50),
            p95_ns: percentile(95),
            p99_ns: percentile(99),
            row_hit_rate: self.counters.row_hit_rate(),
            line_energy_nj: energy_nj.map(|nj| nj / lines.max(1) as f64),
            power_mw: energy_nj.map(|nj| nj / elapsed.as_seconds() / 1e6),
            saturated: achieved.as_mbps() < SATURATED * offered.as_mbps(),
        }
    }
}

//! Compares runs of the same programs under several policies.

use std::collections::BTreeMap;

use memtide_core::machine::Fixed;
use memtide_core::{InitiatorId, Machine, NodeId};

use crate::bound::Bound;
use crate::report::{NodeReport, Report};

/// Name of the run whose pages were placed with the future known.
pub const ORACLE: &str = "oracle";

/// Runs of the same programs under several policies.
pub struct Comparison {
    /// The policies.
    pub names: Vec<String>,
    /// Their runs, in the same order.
    pub reports: Vec<Report>,
    /// Capabilities of each node, in the machine's order.
    pub nodes: Vec<Reach>,
    /// Index of the baseline policy.
    pub baseline: usize,
    /// The least time that any placement or migration could reach, if it was computed.
    pub bound: Option<Bound>,
    /// A run whose pages were placed with the future known, if there was one.
    pub oracle: Option<Report>,
    /// Time of each program alone on the machine, in ms, by policy; empty unless several programs ran and
    /// were also run alone.
    pub alone_ms: Vec<Vec<f64>>,
    /// Service level of each program, from 1; `None` of programs without one. Empty if none has one.
    pub priorities: Vec<Option<u8>>,
}

/// The programs of a service level in a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// The level.
    pub priority: u8,
    /// Its programs, at least 1.
    pub programs: usize,
    /// Arithmetic mean of their slow-downs.
    pub slowdown_mean: f64,
    /// The largest of them.
    pub slowdown_max: f64,
}

/// Capabilities of a node.
pub struct Reach {
    /// Bandwidth of reads alone and of writes alone, in MB/s.
    device_mbps: [f64; 2],
    /// Idle read latency from the farthest initiator, in ns.
    pub idle_ns: f64,
}

impl Reach {
    fn of(machine: &Machine, node: NodeId) -> Reach {
        let device_mbps = match &machine.nodes[node.index()].fixed {
            Some(Fixed { read_bandwidth_mbps: read, write_bandwidth_mbps: write, .. }) => {
                [*read, write.unwrap_or(*read)]
            }
            None => [machine.device_bandwidth(node).as_mbps(); 2],
        };
        let initiators = (0..machine.initiators.len()).map(InitiatorId::from);
        let idle_ns = initiators.map(|from| machine.idle_latency(from, node).as_ns());
        Reach { device_mbps, idle_ns: idle_ns.fold(0.0, f64::max) }
    }

    /// Share of the device's bandwidth that a run used; reads and writes share its service time.
    pub fn used(&self, node: &NodeReport) -> f64 {
        let moved = [node.read_bandwidth_mbps, node.bandwidth_mbps - node.read_bandwidth_mbps];
        moved.iter().zip(self.device_mbps).map(|(moved, can)| moved / can).sum()
    }
}

impl Comparison {
    /// Compares runs on a machine, whose slice and scale apply, one report per name. The baseline is `local`,
    /// or the first policy without it.
    pub fn new(machine: &Machine, names: Vec<String>, reports: Vec<Report>) -> Comparison {
        let baseline = names.iter().position(|name| name == "local").unwrap_or(0);
        let machine = machine.reduced();
        let nodes = machine.node_ids().map(|node| Reach::of(&machine, node)).collect();
        Comparison {
            names,
            reports,
            nodes,
            baseline,
            bound: None,
            oracle: None,
            alone_ms: Vec::new(),
            priorities: Vec::new(),
        }
    }

    /// The baseline's name.
    pub fn baseline_name(&self) -> &str {
        &self.names[self.baseline]
    }

    /// The policies' runs with their names, then the oracle's.
    pub fn runs(&self) -> impl Iterator<Item = (&str, &Report)> {
        let policies = self.names.iter().map(String::as_str).zip(&self.reports);
        policies.chain(self.oracle.iter().map(|report| (ORACLE, report)))
    }

    /// Time of a run, in ms; after the policies' runs, that of the oracle.
    fn time_ms(&self, index: usize) -> f64 {
        self.runs().nth(index).map_or(f64::NAN, |(_, report)| report.time_ms)
    }

    /// Speedup of one of [`Comparison::runs`] over the baseline.
    pub fn speedup(&self, index: usize) -> f64 {
        self.reports[self.baseline].time_ms / self.time_ms(index)
    }

    /// Time of one of [`Comparison::runs`] over the bound, at least 1; `None` without a bound.
    pub fn over_bound(&self, index: usize) -> Option<f64> {
        let time_ms = self.bound?.time_ms();
        (time_ms > 0.0).then(|| self.time_ms(index) / time_ms)
    }

    /// Slow-down of each program of a run: its time in the mix over its time alone. `None` if the programs
    /// did not run alone.
    pub fn slowdowns(&self, index: usize) -> Option<Vec<f64>> {
        let alone_ms = self.alone_ms.get(index)?;
        let times = self.reports[index].program_times_ms.iter().zip(alone_ms);
        Some(times.map(|(mix, alone)| mix / alone).collect())
    }

    /// Slow-downs by service level, lowest first. Empty without levels, or if the programs did not run alone.
    pub fn levels(&self, index: usize) -> Vec<Level> {
        let slowdowns = self.slowdowns(index).unwrap_or_default();
        let mut by_level: BTreeMap<u8, Vec<f64>> = BTreeMap::new();
        for (priority, slowdown) in self.priorities.iter().zip(slowdowns) {
            if let Some(priority) = priority {
                by_level.entry(*priority).or_default().push(slowdown);
            }
        }
        let level = |(priority, all): (u8, Vec<f64>)| Level {
            priority,
            programs: all.len(),
            slowdown_mean: all.iter().sum::<f64>() / all.len() as f64,
            slowdown_max: all.into_iter().fold(0.0, f64::max),
        };
        by_level.into_iter().map(level).collect()
    }

    /// Weighted speed-up: the sum of each program's time alone over its time in the mix. The number of
    /// programs if none slows down. Snavely and Tullsen, ASPLOS 2000.
    pub fn weighted_speedup(&self, index: usize) -> Option<f64> {
        Some(self.slowdowns(index)?.iter().map(|slowdown| 1.0 / slowdown).sum())
    }

    /// The largest slow-down. Kim et al., MICRO 2010.
    pub fn max_slowdown(&self, index: usize) -> Option<f64> {
        Some(self.slowdowns(index)?.into_iter().fold(0.0, f64::max))
    }

    /// Fairness, from 0 to 1: the smallest slow-down over the largest. Gabor, Weiss and Mendelson, MICRO
    /// 2006.
    pub fn fairness(&self, index: usize) -> Option<f64> {
        let least = self.slowdowns(index)?.into_iter().fold(f64::INFINITY, f64::min);
        Some(least / self.max_slowdown(index)?)
    }

    /// The fastest run.
    pub fn best(&self) -> usize {
        self.extreme(|a, b| a < b)
    }

    /// The slowest run.
    pub fn worst(&self) -> usize {
        self.extreme(|a, b| a > b)
    }

    fn extreme(&self, better: impl Fn(f64, f64) -> bool) -> usize {
        let times = self.reports.iter().map(|report| report.time_ms).enumerate();
        times.reduce(|a, b| if better(b.1, a.1) { b } else { a }).map_or(0, |(index, _)| index)
    }
}

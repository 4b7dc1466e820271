//! Runs of the same programs under several policies, and what they show.

use memtide_core::{Machine, NodeId};
use memtide_sim::Report;

/// Times closer than this share of each other count as equal.
const EQUAL: f64 = 0.02;

/// Share of its bandwidth from which a node counts as busy.
const BUSY: f64 = 0.7;

/// Runs of the same programs under several policies.
pub struct Comparison {
    /// The policies.
    pub names: Vec<String>,
    /// Their runs, in the same order.
    pub reports: Vec<Report>,
    /// Bandwidth of each node in MB/s.
    capacity_mbps: Vec<f64>,
    baseline: usize,
}

impl Comparison {
    /// Puts runs side by side. `local` is the baseline, or the first policy if it is not among them.
    pub fn new(machine: &Machine, names: Vec<String>, reports: Vec<Report>) -> Comparison {
        let baseline = names.iter().position(|name| name == "local").unwrap_or(0);
        let capacity_mbps =
            machine.node_ids().map(|node: NodeId| machine.node_bandwidth(node).as_mbps()).collect();
        Comparison { names, reports, capacity_mbps, baseline }
    }

    /// The policy that the others are held against.
    pub fn baseline_name(&self) -> &str {
        &self.names[self.baseline]
    }

    /// How many times as fast as the baseline a run is.
    pub fn speedup(&self, index: usize) -> f64 {
        self.reports[self.baseline].time_ms / self.reports[index].time_ms
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

    /// Which policy is best and why, in sentences.
    pub fn verdict(&self) -> Vec<String> {
        let (best, worst) = (self.best(), self.worst());
        if self.reports.len() < 2 {
            return Vec::new();
        }
        let spread = self.reports[worst].time_ms / self.reports[best].time_ms;
        if spread < 1.0 + EQUAL {
            return vec![format!(
                "All policies are within {:.1} %: where its pages lie matters little to this program ({:.2} LLC misses \
                 in 1,000 instructions, no node busier than {:.0} %).",
                (spread - 1.0) * 100.0,
                self.reports[best].llc_misses_per_kilo_instruction,
                self.busiest(best).1 * 100.0
            )];
        }
        let level = self.reports[self.baseline].time_ms < self.reports[best].time_ms * (1.0 + EQUAL);
        let against = if level { worst } else { self.baseline };
        let mut sentences = vec![format!(
            "{} is best: {:.2} times as fast as {}{}.",
            self.names[best],
            self.reports[against].time_ms / self.reports[best].time_ms,
            self.names[against],
            if against == worst || best == worst {
                String::new()
            } else {
                format!(", {spread:.2} times as fast as {}, the worst", self.names[worst])
            }
        )];
        if level && best != self.baseline {
            sentences.push(format!("{} is as fast.", self.baseline_name()));
        }
        sentences.push(self.traffic(best, against));
        sentences.extend(self.reason(best, against));
        sentences.extend(self.cost_of_moves(against));
        vec![sentences.join(" ")]
    }

    /// How the two differ in traffic.
    fn traffic(&self, best: usize, other: usize) -> String {
        let [a, b] = [best, other].map(|index| &self.reports[index].nodes);
        let shares = |nodes: &[memtide_sim::NodeReport]| {
            let share = |node: &memtide_sim::NodeReport| {
                format!("{:.0} % to {}", node.access_share * 100.0, node.name)
            };
            nodes.iter().map(share).collect::<Vec<_>>().join(", ")
        };
        format!("Its traffic goes {}; that of {} {}.", shares(a), self.names[other], shares(b))
    }

    /// Why the best is faster than the other, from what the nodes did.
    fn reason(&self, best: usize, other: usize) -> Option<String> {
        let (node, busy) = self.busiest(other);
        let [a, b] = [best, other].map(|index| &self.reports[index]);
        let swapped = |report: &Report| report.pages.swapped_out + report.pages.swapped_in;
        if swapped(b) > swapped(a) + swapped(a) / 10 {
            return Some(format!(
                "Under {} memory runs out: it swaps {} pages out and in, {} only {}.",
                self.names[other],
                swapped(b),
                self.names[best],
                swapped(a)
            ));
        }
        let total = |report: &Report| report.nodes.iter().map(|node| node.bandwidth_mbps).sum::<f64>() / 1e3;
        if busy >= BUSY {
            return Some(format!(
                "Under {} {} is {:.0} % busy and holds the others up; {} draws {:.1} GB/s in all instead of {:.1}.",
                self.names[other],
                b.nodes[node].name,
                busy * 100.0,
                self.names[best],
                total(a),
                total(b)
            ));
        }
        (a.latency.mean_ns < b.latency.mean_ns * (1.0 - EQUAL)).then(|| {
            format!(
                "No node is busy, so latency decides: a read that misses the caches takes {:.0} ns on average instead of {:.0}.",
                a.latency.mean_ns, b.latency.mean_ns
            )
        })
    }

    /// What moving pages cost, if it cost much.
    fn cost_of_moves(&self, index: usize) -> Option<String> {
        let report = &self.reports[index];
        let spent = &report.spent;
        let share = spent.system_ms / (spent.user_ms + spent.system_ms + spent.stall_ms + spent.idle_ms);
        (report.pages.migrated > 0 && share > 0.1).then(|| {
            format!(
                "{} spends {:.0} % of its time in the kernel and moves {} pages.",
                self.names[index],
                share * 100.0,
                report.pages.migrated
            )
        })
    }

    /// The node that uses most of its bandwidth, and the share that it uses.
    fn busiest(&self, index: usize) -> (usize, f64) {
        let nodes = self.reports[index].nodes.iter().zip(&self.capacity_mbps);
        let shares = nodes.map(|(node, capacity)| node.bandwidth_mbps / capacity).enumerate();
        shares.reduce(|a, b| if b.1 > a.1 { b } else { a }).unwrap_or((0, 0.0))
    }
}

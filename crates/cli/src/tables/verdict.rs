//! Which policy is best and why, in sentences.

use std::ops::Deref;

use memtide_sim::{Comparison, NodeReport, Report};

/// Times closer than this share of each other count as equal.
const EQUAL: f64 = 0.02;

/// Share of its bandwidth from which a node counts as busy.
const BUSY: f64 = 0.7;

/// Mean latency over the idle one from which reads are said to queue.
const QUEUES: f64 = 1.5;

/// Names of a list that are told one by one.
const NAMED: usize = 4;

/// Which policies are best and why, and what the runs do not show; nothing for one run.
pub fn verdict(comparison: &Comparison) -> Vec<String> {
    if comparison.reports.len() < 2 { Vec::new() } else { vec![Verdict(comparison).sentences()] }
}

/// A comparison of at least two runs.
struct Verdict<'a>(&'a Comparison);

impl Deref for Verdict<'_> {
    type Target = Comparison;

    fn deref(&self) -> &Comparison {
        self.0
    }
}

impl Verdict<'_> {
    fn sentences(&self) -> String {
        let mut sentences = if self.spread() < 1.0 + EQUAL { vec![self.alike()] } else { self.ranked() };
        sentences.extend(self.shortage());
        sentences.extend(self.unmoved());
        sentences.extend(self.undecided());
        sentences.join(" ")
    }

    /// How many times as fast as the worst the best is.
    fn spread(&self) -> f64 {
        self.reports[self.worst()].time_ms / self.reports[self.best()].time_ms
    }

    /// The runs that are as fast as the best, fastest first.
    fn tied(&self) -> Vec<usize> {
        let limit = self.reports[self.best()].time_ms * (1.0 + EQUAL);
        let mut tied: Vec<usize> =
            (0..self.reports.len()).filter(|&index| self.reports[index].time_ms < limit).collect();
        tied.sort_by(|&a, &b| self.reports[a].time_ms.total_cmp(&self.reports[b].time_ms));
        tied
    }

    fn alike(&self) -> String {
        let best = self.best();
        format!(
            "All these policies are within {:.1} %{} ({:.2} LLC misses in 1,000 instructions, no node busier than {:.0} %).",
            (self.spread() - 1.0) * 100.0,
            if self.place_alike() {
                ": they place pages alike"
            } else {
                ": placement matters little to this program"
            },
            self.reports[best].llc_misses_per_kilo_instruction,
            self.busiest(best).1 * 100.0
        )
    }

    /// Whether all runs' traffic goes to the nodes in like shares.
    fn place_alike(&self) -> bool {
        let like = |(a, b): (&NodeReport, &NodeReport)| (a.access_share - b.access_share).abs() < EQUAL;
        let first = &self.reports[0].nodes;
        self.reports.iter().all(|report| report.nodes.iter().zip(first).all(like))
    }

    fn ranked(&self) -> Vec<String> {
        let (best, worst, tied) = (self.best(), self.worst(), self.tied());
        let against = if tied.contains(&self.baseline) { worst } else { self.baseline };
        let times = self.reports[against].time_ms / self.reports[best].time_ms;
        let of_worst = if against == worst {
            String::new()
        } else {
            format!(", {:.2} times as fast as {}, the worst", self.spread(), self.names[worst])
        };
        let mut sentences = vec![format!(
            "{} best: {times:.2} times as fast as {}{of_worst}.",
            self.subject(&tied),
            self.names[against],
        )];
        sentences.push(self.traffic(best, against));
        sentences.extend(self.reason(best, against));
        sentences.extend(self.cost_of_moves(against));
        sentences
    }

    /// The runs' names and their verb.
    fn subject(&self, runs: &[usize]) -> String {
        let names: Vec<&str> = runs.iter().map(|&run| self.names[run].as_str()).collect();
        match &names[..] {
            [one] => format!("{one} is"),
            [few @ .., last] if names.len() <= NAMED => format!("{} and {last} are equally", few.join(", ")),
            many => {
                format!("{} and {} more are equally", many[..NAMED].join(", "), many.len() - NAMED)
            }
        }
    }

    /// How the two differ in traffic.
    fn traffic(&self, best: usize, other: usize) -> String {
        let shares = |nodes: &[NodeReport]| {
            let share = |node: &NodeReport| format!("{:.0} % to {}", node.access_share * 100.0, node.name);
            nodes.iter().map(share).collect::<Vec<_>>().join(", ")
        };
        let [a, b] = [best, other].map(|index| shares(&self.reports[index].nodes));
        format!("Traffic of {} goes {a}; that of {} {b}.", self.names[best], self.names[other])
    }

    /// Why the best is faster than the other, from what the nodes did.
    fn reason(&self, best: usize, other: usize) -> Option<String> {
        let [a, b] = [best, other].map(|index| &self.reports[index]);
        let [winner, loser] = [best, other].map(|index| &self.names[index]);
        if swapped(b) > swapped(a) + swapped(a) / 10 {
            return Some(format!(
                "Under {loser} memory runs out: it swaps {} pages out and in, {winner} only {}.",
                swapped(b),
                swapped(a)
            ));
        }
        let (node, busy) = self.busiest(other);
        if busy >= BUSY {
            let total =
                |report: &Report| report.nodes.iter().map(|node| node.bandwidth_mbps).sum::<f64>() / 1e3;
            return Some(format!(
                "Under {loser} {} is {:.0} % busy and is the bottleneck; {winner} draws {:.1} GB/s in all instead of {:.1}.",
                b.nodes[node].name,
                busy * 100.0,
                total(a),
                total(b)
            ));
        }
        let slower = a.latency.mean_ns < b.latency.mean_ns * (1.0 - EQUAL);
        let takes = format!(
            "a read that misses the caches takes {:.0} ns on average instead of {:.0}",
            a.latency.mean_ns, b.latency.mean_ns
        );
        slower.then(|| match self.queue(other) {
            Some(node) => format!("Under {loser} reads queue at {node} for part of the run: {takes}."),
            None => format!("No node is busy, so latency decides: {takes}."),
        })
    }

    /// The node at which a run's reads wait longest for one another, if they do.
    fn queue(&self, index: usize) -> Option<&str> {
        let nodes = self.reports[index].nodes.iter().zip(&self.nodes);
        let waits = nodes.map(|(node, reach)| (node.latency_mean_ns / reach.idle_ns, node));
        let worst = waits.reduce(|a, b| if b.0 > a.0 { b } else { a });
        worst.filter(|(times, _)| *times > QUEUES).map(|(_, node)| node.name.as_str())
    }

    /// What moving pages cost, if it cost much.
    fn cost_of_moves(&self, index: usize) -> Option<String> {
        let report = &self.reports[index];
        let share = report.spent.system_ms / report.spent.threads_ms();
        (report.pages.migrated > 0 && share > 0.1).then(|| {
            format!(
                "{} spends {:.0} % of its time in the kernel and moves {} pages.",
                self.names[index],
                share * 100.0,
                report.pages.migrated
            )
        })
    }

    /// Whether the programs need more memory than there is, whatever the policy.
    fn shortage(&self) -> Option<String> {
        self.reports.iter().all(|report| swapped(report) > 0).then(|| {
            "Every policy swaps: the programs need more memory than the machine has at this scale; use a lower --scale or a smaller program."
                .to_owned()
        })
    }

    /// The policies that no hint fault gave an occasion to migrate.
    fn unmoved(&self) -> Option<String> {
        let idle =
            self.migrating(|report| report.pages.observations.is_none() && report.pages.hint_faults == 0);
        (!idle.is_empty()).then(|| {
            format!(
                "No NUMA hint fault occurred under {}, so nothing migrated: the run ends before the kernel's scanner starts.",
                idle.join(", ")
            )
        })
    }

    /// The policies that never came to decide anything.
    fn undecided(&self) -> Option<String> {
        let idle = self.migrating(|report| report.pages.observations == Some(0));
        (!idle.is_empty()).then(|| {
            format!(
                "No epoch ended under {}, so nothing migrated: the run is shorter than one; use a shorter epoch_ms (the scale divides it) or a longer program.",
                idle.join(", ")
            )
        })
    }

    /// The runs with a migration policy whose reports are like that.
    fn migrating(&self, like: impl Fn(&Report) -> bool) -> Vec<&str> {
        let names = self.names.iter().zip(&self.reports);
        let those = names.filter(|(name, report)| name.contains('+') && like(report));
        those.map(|(name, _)| name.as_str()).collect()
    }

    /// The node that uses most of what it can do, and the share that it uses.
    fn busiest(&self, index: usize) -> (usize, f64) {
        let nodes = self.reports[index].nodes.iter().zip(&self.nodes);
        let shares = nodes.map(|(node, reach)| reach.used(node)).enumerate();
        shares.reduce(|a, b| if b.1 > a.1 { b } else { a }).unwrap_or((0, 0.0))
    }
}

/// Pages swapped out and in.
fn swapped(report: &Report) -> u64 {
    report.pages.swapped_out + report.pages.swapped_in
}

//! What limits a run: its busiest node or link, and the node at which reads queue.

use memtide_sim::{Comparison, LinkReport, NodeReport, Reach};

/// Share of its bandwidth from which a node or link counts as busy.
pub const BUSY: f64 = 0.7;

/// Ratio of mean to idle latency from which reads count as queueing.
const QUEUES: f64 = 1.5;

/// A node or a direction of a link, and its use.
pub struct Busy {
    /// Its name, with `the link from .. to ..` for a link.
    pub name: String,
    /// Share of its bandwidth.
    pub share: f64,
    /// What it moves, in MB/s.
    pub mbps: f64,
}

impl Busy {
    fn of_node((node, reach): (&NodeReport, &Reach)) -> Busy {
        Busy { name: node.name.clone(), share: reach.used(node), mbps: node.bandwidth_mbps }
    }

    fn of_link(link: &LinkReport) -> [Busy; 2] {
        let [a, b] = &link.between;
        let of = |from, to, share, mbps| Busy { name: format!("the link from {from} to {to}"), share, mbps };
        [of(a, b, link.forward_share, link.forward_mbps), of(b, a, link.back_share, link.back_mbps)]
    }
}

/// The node or link direction of a run with the highest utilisation.
pub fn busiest(comparison: &Comparison, run: usize) -> Busy {
    let report = &comparison.reports[run];
    let nodes = report.nodes.iter().zip(&comparison.nodes).map(Busy::of_node);
    let links = report.links.iter().flat_map(Busy::of_link);
    nodes.chain(links).reduce(|a, b| if b.share > a.share { b } else { a }).expect("a machine has a node")
}

/// A node at which reads queue.
pub struct Queue<'a> {
    /// Its name.
    pub node: &'a str,
    /// Mean latency of its demand reads, in ns.
    pub mean_ns: f64,
    /// Their idle latency from the farthest CPU, in ns.
    pub idle_ns: f64,
}

/// The node of a run whose reads queue longest, if any.
pub fn queue(comparison: &Comparison, run: usize) -> Option<Queue<'_>> {
    let nodes = comparison.reports[run].nodes.iter().zip(&comparison.nodes);
    let queues = nodes.filter_map(|(node, reach)| {
        Some(Queue { node: &node.name, mean_ns: node.latency_mean_ns?, idle_ns: reach.idle_ns })
    });
    let waits = |queue: &Queue<'_>| queue.mean_ns / queue.idle_ns;
    let worst = queues.reduce(|a, b| if waits(&b) > waits(&a) { b } else { a });
    worst.filter(|queue| waits(queue) > QUEUES)
}

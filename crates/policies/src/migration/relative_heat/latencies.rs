//! Latencies of nodes as they are under load, by the samples' own.

use memtide_core::{NodeId, Time};
use serde::{Deserialize, Serialize};

/// Samples of an epoch from which a node's latency is taken: fewest, and most.
const SAMPLES_MIN: usize = 30;
const SAMPLES_MAX: usize = 4096;

/// A sample that took a smaller part of its node's latency waited for a line that was on its way.
const WAITED_MIN: f64 = 0.5;

/// Multiple of its idle latency that a sample counts as at most: one of more waited for something else, such
/// as a page fault.
pub(super) const TAKEN_MAX: f64 = 16.0;

/// Multiple of its lowest latency from which on a node is loaded.
const LOADED: f64 = 1.25;

/// Latencies of all nodes.
#[derive(Clone, Debug)]
pub(super) struct Latencies {
    /// Idle latencies as the machine file or the firmware says, in ns.
    idle_ns: Vec<f64>,
    measured: Vec<Measured>,
}

/// What the samples say of a node's latency.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Measured {
    /// Of the samples since the last epoch, in ns.
    fresh_ns: Vec<f32>,
    /// Of the last epochs, and the lowest median of all, in ns; `None` before enough samples.
    median_ns: Option<f64>,
    mean_ns: Option<f64>,
    lowest_ns: Option<f64>,
}

impl Latencies {
    /// No latency is measured yet.
    pub fn new(idle: impl Iterator<Item = Time>) -> Latencies {
        let idle_ns: Vec<f64> = idle.map(|idle| idle.as_ns().max(1e-3)).collect();
        Latencies { measured: vec![Measured::default(); idle_ns.len()], idle_ns }
    }

    /// Adds the latency of a sampled access to a node. Returns it in ns, as far as its node took it; `None`
    /// if its line was on its way.
    pub fn add(&mut self, node: NodeId, latency: Time) -> Option<f64> {
        let idle_ns = *self.idle_ns.get(node.index())?;
        let taken_ns = latency.as_ns().min(TAKEN_MAX * idle_ns);
        if taken_ns < WAITED_MIN * self.lowest_ns(node) {
            return None;
        }
        let fresh_ns = &mut self.measured[node.index()].fresh_ns;
        if fresh_ns.len() < SAMPLES_MAX {
            fresh_ns.push(taken_ns as f32);
        }
        Some(taken_ns)
    }

    /// Ends an epoch: its samples' latency counts as much as that of all earlier ones. A node without enough
    /// samples is idle.
    pub fn end_epoch(&mut self) {
        for (measured, idle_ns) in self.measured.iter_mut().zip(&self.idle_ns) {
            let Measured { fresh_ns, median_ns, mean_ns, lowest_ns } = measured;
            let latest = if fresh_ns.len() >= SAMPLES_MIN {
                Some(median_and_mean(fresh_ns))
            } else {
                lowest_ns.map(|ns| (ns, ns))
            };
            fresh_ns.clear();
            let Some((median, mean)) = latest else { continue };
            let blend = |before: &mut Option<f64>, ns| {
                *before = Some(before.map_or(ns, |before| (before + ns) / 2.0));
            };
            blend(median_ns, median);
            blend(mean_ns, mean);
            *lowest_ns = Some(lowest_ns.unwrap_or(*idle_ns).min(median));
        }
    }

    /// What an access to a node takes in the mean, in ns; its idle latency if nothing is measured. It is more
    /// than the median if some wait long.
    pub fn mean_ns(&self, node: NodeId) -> f64 {
        self.measured[node.index()].mean_ns.unwrap_or(self.idle_ns[node.index()])
    }

    /// Median latency of a node as its load is now, in ns; its idle latency if nothing is measured.
    pub fn median_ns(&self, node: NodeId) -> f64 {
        self.measured[node.index()].median_ns.unwrap_or(self.idle_ns[node.index()])
    }

    /// Whether a node's accesses wait for each other.
    pub fn is_loaded(&self, node: NodeId) -> bool {
        self.measured[node.index()]
            .median_ns
            .is_some_and(|median_ns| median_ns > LOADED * self.lowest_ns(node))
    }

    fn lowest_ns(&self, node: NodeId) -> f64 {
        let at = node.index();
        self.measured[at].lowest_ns.unwrap_or(self.idle_ns[at])
    }

    /// What was measured, to save it.
    pub fn measured(&self) -> &[Measured] {
        &self.measured
    }

    /// Takes what was saved, if it is of as many nodes.
    pub fn resume(&mut self, measured: Vec<Measured>) -> Result<(), String> {
        if measured.len() != self.measured.len() {
            return Err(format!("it has {} nodes, not {}", measured.len(), self.measured.len()));
        }
        self.measured = measured;
        Ok(())
    }
}

/// Of at least one number, which are sorted in part.
fn median_and_mean(all: &mut [f32]) -> (f64, f64) {
    let sum: f64 = all.iter().copied().map(f64::from).sum();
    let mean = sum / all.len() as f64;
    (f64::from(*all.select_nth_unstable_by(all.len() / 2, f32::total_cmp).1), mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(0);

    #[test]
    fn some_long_waits_raise_the_mean_alone_and_faults_hardly() {
        let mut latencies = Latencies::new([Time::from_ns(100.0)].into_iter());
        let mut add = |ns, times| (0..times).fold(None, |_, _| latencies.add(NODE, Time::from_ns(ns)));
        assert_eq!(add(100.0, 80), Some(100.0));
        assert_eq!(add(20.0, 80), None, "a prefetched line");
        assert_eq!(add(700.0, 18), Some(700.0));
        assert_eq!(add(50_000.0, 2), Some(1600.0), "a page fault");
        latencies.end_epoch();
        let mean_ns = (80.0 * 100.0 + 18.0 * 700.0 + 2.0 * 1600.0) / 100.0;
        assert_eq!((latencies.median_ns(NODE), latencies.mean_ns(NODE)), (100.0, mean_ns));
        assert!(!latencies.is_loaded(NODE));
        latencies.end_epoch();
        assert_eq!(latencies.mean_ns(NODE), (mean_ns + 100.0) / 2.0, "without samples it is idle");
    }

    #[test]
    fn nodes_without_samples_take_what_the_machine_file_says() {
        let mut latencies = Latencies::new([Time::from_ns(100.0)].into_iter());
        assert_eq!(latencies.add(NodeId(7), Time::from_ns(100.0)), None);
        (1..SAMPLES_MIN).for_each(|_| _ = latencies.add(NODE, Time::from_ns(900.0)));
        latencies.end_epoch();
        assert_eq!((latencies.median_ns(NODE), latencies.mean_ns(NODE)), (100.0, 100.0));
    }
}

//! Latencies of nodes as they are under load, by the samples' own.

use memtide_core::{NodeId, Time};
use serde::{Deserialize, Serialize};

/// Samples of an epoch from which a node's latency is taken: fewest, and most.
const SAMPLES_MIN: usize = 30;
const SAMPLES_MAX: usize = 4096;

/// A sample that took a smaller part of its node's latency waited for a line that was on its way.
const WAITED_MIN: f64 = 0.5;

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
    /// Of the last epochs and the lowest of all, in ns; `None` before enough samples.
    now_ns: Option<f64>,
    lowest_ns: Option<f64>,
}

impl Latencies {
    /// No latency is measured yet.
    pub fn new(idle: impl Iterator<Item = Time>) -> Latencies {
        let idle_ns: Vec<f64> = idle.map(|idle| idle.as_ns().max(1e-3)).collect();
        Latencies { measured: vec![Measured::default(); idle_ns.len()], idle_ns }
    }

    /// Adds the latency of a sampled access to a node.
    pub fn add(&mut self, node: NodeId, latency: Time) {
        let least_ns = WAITED_MIN * self.lowest_ns(node);
        if let Some(Measured { fresh_ns, .. }) = self.measured.get_mut(node.index())
            && latency.as_ns() >= least_ns
            && fresh_ns.len() < SAMPLES_MAX
        {
            fresh_ns.push(latency.as_ns() as f32);
        }
    }

    /// Ends an epoch: the median of its samples counts as much as all earlier ones. A node without enough
    /// samples is idle.
    pub fn end_epoch(&mut self) {
        for (Measured { fresh_ns, now_ns, lowest_ns }, idle_ns) in self.measured.iter_mut().zip(&self.idle_ns)
        {
            let middle = fresh_ns.len() / 2;
            let latest = if fresh_ns.len() >= SAMPLES_MIN {
                Some(f64::from(*fresh_ns.select_nth_unstable_by(middle, f32::total_cmp).1))
            } else {
                *lowest_ns
            };
            fresh_ns.clear();
            let Some(latest) = latest else { continue };
            *now_ns = Some(now_ns.map_or(latest, |before| (before + latest) / 2.0));
            *lowest_ns = Some(lowest_ns.unwrap_or(*idle_ns).min(latest));
        }
    }

    /// Latency of a node as its load is now, in ns; its idle latency if nothing is measured.
    pub fn ns(&self, node: NodeId) -> f64 {
        self.measured[node.index()].now_ns.unwrap_or(self.idle_ns[node.index()])
    }

    /// Whether a node's accesses wait for each other.
    pub fn is_loaded(&self, node: NodeId) -> bool {
        self.measured[node.index()].now_ns.is_some_and(|now_ns| now_ns > LOADED * self.lowest_ns(node))
    }

    fn lowest_ns(&self, node: NodeId) -> f64 {
        let at = node.index();
        self.measured.get(at).and_then(|measured| measured.lowest_ns).unwrap_or(self.idle_ns[at])
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

//! Balance of the channels: how busy each is, and which directions rest.

use memtide_core::policy::View;
use memtide_core::{Machine, NodeId, Time};
use serde::{Deserialize, Serialize};

use super::pages::Mark;

/// Utilisation from which on DRAM can be the bottleneck, in millionths.
const BUSY: u64 = 500_000;

/// DRAM is this many times as busy as NVM when the channels are out of balance.
const IMBALANCE: u64 = 2;

/// A fall of DRAM's utilisation by more than one part in this many counts as one.
const FALL: u64 = 20;

/// Utilisation of both channels over time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Balance {
    /// Time of the last pass, and each node's bytes until then.
    last: Option<(Time, Vec<u64>)>,
    /// DRAM's utilisation and NVM's in the last pass, in millionths.
    utilisation: [u64; 2],
    /// Directions in which pages moved since.
    moved: [bool; 2],
    /// Directions that rest in this pass.
    rests: [bool; 2],
}

/// Peak bandwidth of each node, in MB/s.
pub(super) fn peaks(machine: &Machine) -> Vec<f64> {
    machine.node_ids().map(|node| machine.node_bandwidth(node).as_mbps()).collect()
}

impl Balance {
    /// Takes the pass's traffic. A direction in which pages moved rests if DRAM's utilisation fell since
    /// (memos section II-C, channel allocation).
    pub fn observe(&mut self, view: &View, peaks: &[f64], is_fast: impl Fn(NodeId) -> bool) {
        self.rests = [false; 2];
        let bytes = view.nodes.iter().map(|node| {
            node.traffic.map_or(0, |traffic| traffic.read_bytes.saturating_add(traffic.written_bytes))
        });
        let bytes: Vec<u64> = bytes.collect();
        if let Some((time, before)) = self.last.replace((view.time, bytes.clone())) {
            let nodes = || view.nodes.iter().zip(bytes.iter().zip(&before));
            let megabytes = |fast: bool| -> f64 {
                let of_channel = nodes().filter(|(node, _)| is_fast(node.node) == fast);
                of_channel.map(|(_, (now, before))| now.saturating_sub(*before) as f64 / 1e6).sum()
            };
            let peak = |fast: bool| -> f64 {
                let of_channel = view.nodes.iter().filter(|node| is_fast(node.node) == fast);
                of_channel.filter_map(|node| peaks.get(node.node.index())).sum()
            };
            let seconds = view.time.0.saturating_sub(time.0) as f64 / 1e12;
            let share = |fast: bool| match peak(fast) * seconds {
                possible if possible > 0.0 => (megabytes(fast) / possible * 1e6) as u64,
                _ => 0,
            };
            let now = [share(true), share(false)];
            let fell = now[0].saturating_mul(FALL) < self.utilisation[0].saturating_mul(FALL - 1);
            self.rests = self.moved.map(|moved| moved && fell);
            self.utilisation = now;
        }
        self.moved = [false; 2];
    }

    /// Whether DRAM is busy while NVM could take over.
    pub fn is_out_of_balance(&self) -> bool {
        let [dram, nvm] = self.utilisation;
        dram >= BUSY && dram > nvm.saturating_mul(IMBALANCE)
    }

    /// Whether pages may move in a direction in this pass. Out of balance, none goes to DRAM.
    pub fn allows(&self, mark: Mark) -> bool {
        let rests = self.rests[mark as usize] || (mark == Mark::Up && self.is_out_of_balance());
        !rests
    }

    /// Notes that pages move in a direction.
    pub fn note(&mut self, mark: Mark) {
        self.moved[mark as usize] = true;
    }
}

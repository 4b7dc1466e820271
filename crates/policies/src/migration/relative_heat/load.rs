//! Load: accesses are spread until the nodes' latencies under load are equal, after Colloid (Vuppalapati and
//! Agarwal, SOSP 2024).
//!
//! Latencies are proportional to accesses at most, so that the share below makes those of two nodes equal at
//! most; half of it moves in an epoch, and the next one measures again.
//!
//! ```text
//!   L0 |====================|        1/2 (1 - L1/L0) of the accesses of the loaded node move
//!   L1 |==========|--------->
//! ```

use memtide_core::policy::Reason;
use memtide_core::{NodeId, Vpn};

use super::candidates::Total;
use super::pages::Pages;
use super::{Draft, RelativeHeat};

/// Ratio of the latencies of a loaded node and another from which on pages leave the loaded node.
const UNEQUAL: f64 = 1.1;

impl RelativeHeat {
    pub(super) fn node_ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes.len()).map(NodeId::from)
    }

    /// Share of a node's accesses that may move to another in an epoch.
    fn shift(&self, from: NodeId, to: NodeId) -> f64 {
        (1.0 - self.latencies.median_ns(to) / self.latencies.median_ns(from)).max(0.0) / 2.0
    }

    /// Limit of the accesses of the pages promoted from each node in an epoch; none if neither end is loaded.
    pub(super) fn promotable(&self, totals: &[Total]) -> Vec<f64> {
        let limit = |(node, &Total { accesses, .. }): (NodeId, &Total)| {
            let fast = self.fastest(node);
            let is_loaded = self.latencies.is_loaded(node) || self.latencies.is_loaded(fast);
            if is_loaded { accesses * self.shift(node, fast) } else { f64::INFINITY }
        };
        self.node_ids().zip(totals).map(limit).collect()
    }

    /// Demotes hot pages of loaded nodes of the fastest tier, where slower nodes have less latency now.
    pub(super) fn spread(&self, draft: &mut Draft<'_>) {
        let mut victims = std::mem::take(&mut draft.victims);
        for loaded in self.node_ids() {
            if self.tier(loaded) == 0
                && self.latencies.is_loaded(loaded)
                && let Some(to) = self.relief(loaded, draft)
            {
                self.unload(loaded, to, &mut victims, draft);
            }
        }
        victims.retain(|victim| victim.base_pages() > 0);
        draft.victims = victims;
    }

    /// The slower node with the least latency, if that is less than this one's and it has room.
    fn relief(&self, loaded: NodeId, draft: &Draft<'_>) -> Option<NodeId> {
        let slower = self.node_ids().filter(|&node| self.tier(node) > 0);
        let with_room = slower.filter(|&node| draft.room.of(node) > 0);
        let to =
            with_room.min_by(|&a, &b| self.latencies.median_ns(a).total_cmp(&self.latencies.median_ns(b)))?;
        (self.latencies.median_ns(loaded) > UNEQUAL * self.latencies.median_ns(to)).then_some(to)
    }

    /// Moves the hottest pages from a loaded node to another until as many accesses as may go have gone.
    fn unload(&self, loaded: NodeId, to: NodeId, victims: &mut [Pages], draft: &mut Draft<'_>) {
        let own = victims.iter().filter(|victim| victim.node == loaded);
        let mut accesses = own.map(Pages::accesses).sum::<f64>() * self.shift(loaded, to);
        for victim in victims.iter_mut().filter(|victim| victim.node == loaded) {
            if self.moved_ns(victim.rate.mean, loaded, to) <= self.cost_ns(victim, to) {
                break;
            }
            let most = victim.pages_with(accesses).min(self.pages - draft.demoted).min(draft.room.of(to));
            let whole = most - most % victim.size.base_pages();
            for page in (0..whole).step_by(victim.size.base_pages() as usize) {
                draft.push(victim, Vpn(victim.start + page), to, Reason::Bandwidth);
            }
            draft.demoted += whole;
            accesses -= victim.take(whole).map_or(0.0, |gone| gone.accesses());
        }
    }
}

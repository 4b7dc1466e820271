//! `low-latency`: hinuma's Low-latency policy.

use memtide_core::params::Parameter;
use memtide_core::{Machine, TierId};

use super::hi_bandwidth::{THRESHOLD, by_threshold};
use super::rules::tiers;
use crate::entry::{Info, PlacementEntry};
use crate::weights::in_proportion;

pub(super) const ENTRY: PlacementEntry = PlacementEntry {
    info: Info {
        name: "low-latency",
        summary: "shares of pages by the inverse of the tiers' latency, nearest node first",
        when: "streams and stencils, where each socket has a node of each tier",
        source: "hinuma section III-B, equations 1 to 4",
        figures: true,
        parameters: &[
            Parameter::number(
                "read-share",
                "share of accesses",
                "share of reads in the accesses, p of equation 4",
                [0.0, 0.7, 1.0],
            ),
            THRESHOLD,
        ],
    },
    make: |machine, values| {
        let read_share = values.f64("read-share");
        let speeds: Vec<f64> =
            tiers(machine).map(|tier| 1.0 / access_ns(machine, tier, read_share)).collect();
        by_threshold(machine, in_proportion(&speeds), values)
    },
};

/// Mean access time of a tier: over its nodes, reads and writes in their shares. Excludes the interconnect:
/// the equation uses the memories' own latencies.
fn access_ns(machine: &Machine, tier: TierId, read_share: f64) -> f64 {
    let (mut total, mut nodes) = (0.0, 0.0);
    for node in machine.nodes_in(tier) {
        let read = machine.idle_latency(machine.nearest_initiator(node), node).as_ns();
        let write = machine.write_latency(node).as_ns();
        total += read_share * read + (1.0 - read_share) * write;
        nodes += 1.0;
    }
    total / nodes
}

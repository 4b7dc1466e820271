//! Placement policies, one file each.

mod bind;
mod bw_interleave;
mod bw_local;
mod bw_random;
mod fast_only;
mod hi_bandwidth;
mod interleave;
mod local;
mod low_latency;
mod preferred;
mod ratio;
mod rules;

use crate::entry::PlacementEntry;

/// Every placement policy; the baseline first.
pub(crate) const ALL: &[PlacementEntry] = &[
    local::ENTRY,
    interleave::ENTRY,
    fast_only::ENTRY,
    bind::ENTRY,
    preferred::ENTRY,
    ratio::ENTRY,
    bw_interleave::ENTRY,
    bw_random::ENTRY,
    bw_local::ENTRY,
    low_latency::ENTRY,
    hi_bandwidth::ENTRY,
];

#[cfg(test)]
mod tests;

//! `hi-bandwidth`: hinuma's Hi-bandwidth policy, and code shared with `low-latency`.

use memtide_core::Machine;
use memtide_core::params::{Parameter, Values};
use memtide_core::policy::{GroupOrder, Rule, Spill, Within};

use super::rules::{bandwidth_weights, groups, uniform};
use crate::entry::{Info, Made, PlacementEntry};

pub(super) const ENTRY: PlacementEntry = PlacementEntry {
    info: Info {
        name: "hi-bandwidth",
        summary: "shares of pages by the tiers' bandwidth, fastest tier first and the nearest node in each",
        when: "a program limited by bandwidth, with one tier to fill before the next",
        source: "hinuma section III-B, equations 1 and 5",
        figures: true,
        parameters: &[THRESHOLD],
    },
    make: |machine, values| by_threshold(machine, bandwidth_weights(machine), values),
};

/// Consecutive pages on the fastest tier.
pub(super) const THRESHOLD: Parameter = Parameter::integer(
    "threshold",
    "pages",
    "consecutive pages that a thread gets from the fastest tier before the next tier; 0: the fewest that \
     keep the shares",
    [0, 0, 1_000_000],
);

/// hinuma's three steps: the group by ratio and threshold, its node by free memory and interconnect cost,
/// another group if it is full.
pub(super) fn by_threshold(machine: &Machine, weights: Vec<u32>, values: &Values) -> Made {
    let weights = match values.u32("threshold") {
        0 => weights,
        threshold => {
            let scaled = |&weight| (f64::from(threshold) * f64::from(weight)) / f64::from(weights[0]);
            weights.iter().map(|weight| (libm::round(scaled(weight)) as u32).max(1)).collect()
        }
    };
    uniform(Rule {
        groups: groups(machine, &weights),
        order: GroupOrder::Cycle,
        within: Within::Nearest,
        spill: Spill::Group,
    })
}

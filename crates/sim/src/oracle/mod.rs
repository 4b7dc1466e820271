//! Placements and moves made with the future known: an achievable time to measure policies against.
//!
//! The run on ideal memory that makes the [bound](crate::bound()) counts the reads of each page in
//! [windows](Window) of the region of interest. From them, plans: each page's node at first touch, and in the
//! last plan the pages that move at the start of a window. The simulator runs the plans as it runs policies,
//! with all costs; the fastest is the oracle. The plans are heuristics, so that a policy can be faster.

mod moving;
mod plan;
mod region;
mod windows;

use memtide_core::policy::{Group, GroupOrder, Placement, Rule, Spill, Task, Within};
use memtide_core::{Machine, NodeId};

use crate::Policy;

pub use self::plan::PagePlan;
pub(crate) use self::region::RegionWork;
pub use self::windows::{PageReads, Window};

/// Maximum number of plans that [`oracle_policies`] makes.
pub const ORACLE_PLANS: usize = plan::GOALS.len() + 1;

/// Policies that place and move pages by their reads: one a plan. `machine` is the whole machine, whose slice
/// and scale apply.
pub fn oracle_policies(machine: &Machine, windows: &[Window]) -> Vec<Policy> {
    let reduced = machine.reduced();
    let mut plans = plan::plans(&reduced, &windows::in_all(windows));
    plans.extend(moving::plan(&reduced, windows));
    plans
        .into_iter()
        .map(|plan| Policy { plan: Some(plan), ..Policy::new(Box::new(SlowestFirst), None) })
        .collect()
}

/// The pages that no plan has, as no core reads them in the region: out of the way of the others.
struct SlowestFirst;

impl Placement for SlowestFirst {
    fn rule(&mut self, machine: &Machine, _: &Task) -> Rule {
        let mut nodes: Vec<NodeId> = machine.node_ids().collect();
        nodes.sort_by_key(|&node| (std::cmp::Reverse(plan::farthest(machine, node)), node));
        let groups = nodes.into_iter().map(|node| Group { nodes: vec![node], weight: 1 }).collect();
        Rule { groups, order: GroupOrder::First, within: Within::Nearest, spill: Spill::Group }
    }
}

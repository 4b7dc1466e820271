//! Placements made with the future known: an achievable time to measure policies against.
//!
//! The run on ideal memory that makes the [bound](crate::bound()) counts the reads of each page in the region
//! of interest. From them, plans: each page's node at first touch. The simulator runs the plans as it runs
//! policies; the fastest is the oracle. Pages do not move later, and the plans are heuristics, so that a
//! policy that migrates, or another placement, can be faster.

mod plan;

use memtide_core::policy::{Group, GroupOrder, Placement, Rule, Spill, Task, Within};
use memtide_core::{InitiatorId, Machine, NodeId, PageSize, TaskId, Vpn};

use crate::Policy;
use crate::engine::Engine;
use crate::os::Owner;

pub use self::plan::PagePlan;

/// Number of plans that [`oracle_policies`] makes.
pub const ORACLE_PLANS: usize = plan::GOALS.len();

/// Reads of a page in the region of interest, on ideal memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageReads {
    task: TaskId,
    page: Vpn,
    size: PageSize,
    /// Lines read.
    lines: u64,
    /// Of them, those that a thread waited for.
    misses: u64,
    /// The initiator that reads most of them.
    initiator: InitiatorId,
}

/// Policies that place the pages by their reads: one a plan. `machine` is the whole machine, whose slice and
/// scale apply.
pub fn oracle_policies(machine: &Machine, reads: &[PageReads]) -> Vec<Policy> {
    let reduced = machine.reduced();
    let plans = plan::plans(&reduced, reads);
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

impl Engine<'_> {
    /// Reads of each page on ideal memory; those of a page freed and another one in its frame count for the
    /// later one.
    pub(crate) fn page_reads(&self) -> Vec<PageReads> {
        let mut reads: Vec<PageReads> = Vec::new();
        let used = self.uncore.page_uses().iter().enumerate().filter(|(_, page)| page.lines > 0);
        for (frame, used) in used {
            let Owner { task, page, size } = self.os.frames.page_in(frame as u32);
            let (lines, misses) = (u64::from(used.lines), u64::from(used.misses));
            match reads.last_mut().filter(|last| (last.task, last.page) == (task, page)) {
                Some(last) => (last.lines, last.misses) = (last.lines + lines, last.misses + misses),
                None => {
                    reads.push(PageReads { task, page, size, lines, misses, initiator: used.initiator });
                }
            }
        }
        reads
    }
}

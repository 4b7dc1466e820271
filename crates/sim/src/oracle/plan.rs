//! Plans: a node for each page, from its reads.

use std::cmp::Reverse;
use std::collections::VecDeque;

use memtide_core::policy::Move;
use memtide_core::{InitiatorId, Machine, NodeId, TaskId, Time, Vpn};

use super::PageReads;

/// The node of each page at first touch, and moves to other nodes later.
#[derive(Debug, Default)]
pub struct PagePlan {
    /// Sorted by page.
    nodes: Vec<(TaskId, Vpn, NodeId)>,
    steps: VecDeque<Step>,
}

/// Moves that begin after a number of instructions of the region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub instructions: u64,
    pub moves: Vec<Move>,
}

impl PagePlan {
    pub(super) fn new(mut nodes: Vec<(TaskId, Vpn, NodeId)>, steps: Vec<Step>) -> PagePlan {
        nodes.sort_unstable();
        PagePlan { nodes, steps: steps.into() }
    }

    fn find(&self, task: TaskId, page: Vpn) -> Option<usize> {
        self.nodes.binary_search_by_key(&(task, page), |&(task, page, _)| (task, page)).ok()
    }

    /// Where a page belongs when it is touched first.
    pub(crate) fn node(&self, task: TaskId, page: Vpn) -> Option<NodeId> {
        self.find(task, page).map(|at| self.nodes[at].2)
    }

    /// The next moves that are due after this number of instructions.
    pub(super) fn due(&mut self, instructions: u64) -> Option<Vec<Move>> {
        self.steps.front().filter(|step| step.instructions <= instructions)?;
        let step = self.steps.pop_front()?;
        for wanted in &step.moves {
            if let Some(at) = self.find(wanted.task, wanted.page) {
                self.nodes[at].2 = wanted.to;
            }
        }
        Some(step.moves)
    }

    /// Whether pages move later.
    pub(super) fn moves_later(&self) -> bool {
        !self.steps.is_empty()
    }
}

/// What a plan minimises.
#[derive(Clone, Copy)]
pub enum Goal {
    /// Latency: the pages with most misses on the nodes nearest to their readers.
    Latency,
    /// Bandwidth: lines in proportion to the nodes' bandwidths.
    Bandwidth,
    /// Both: in proportion to bandwidth over latency.
    Both,
}

/// One for each plan without moves.
pub const GOALS: [Goal; 3] = [Goal::Latency, Goal::Bandwidth, Goal::Both];

/// The plans for a machine, which has been reduced.
pub fn plans(machine: &Machine, reads: &[PageReads]) -> Vec<PagePlan> {
    GOALS.map(|goal| PagePlan::new(Draft::new(machine).place(goal, reads), Vec::new())).into()
}

/// Idle latency of a node from the farthest initiator.
pub fn farthest(machine: &Machine, node: NodeId) -> Time {
    let initiators = (0..machine.initiators.len()).map(InitiatorId::from);
    initiators.map(|from| machine.idle_latency(from, node)).max().unwrap_or_default()
}

/// A plan being made.
pub(super) struct Draft<'m> {
    machine: &'m Machine,
    /// Base pages left on each node.
    pub free: Vec<u64>,
    /// Lines planned for each node.
    lines: Vec<u64>,
}

impl Draft<'_> {
    pub fn new(machine: &Machine) -> Draft<'_> {
        let low = u64::from(machine.kernel.watermark_low_bp);
        let usable = |pages: u64| pages - pages * low / 10_000;
        let free = machine.nodes.iter().map(|node| usable(node.pages())).collect();
        Draft { machine, free, lines: vec![0; machine.nodes.len()] }
    }

    /// Places the pages that are read most first; those without room have no node.
    pub fn place(&mut self, goal: Goal, reads: &[PageReads]) -> Vec<(TaskId, Vpn, NodeId)> {
        let mut pages: Vec<&PageReads> = reads.iter().collect();
        let order = |page: &&PageReads| {
            let density = |reads: u64| Reverse(reads * 512 / page.size.base_pages());
            let (first, second) = match goal {
                Goal::Latency => (page.misses, page.lines),
                Goal::Bandwidth | Goal::Both => (page.lines, page.misses),
            };
            (density(first), density(second), page.task, page.page)
        };
        pages.sort_by_key(order);
        let planned = pages.into_iter().filter_map(|page| {
            let node = self.node(goal, page)?;
            self.free[node.index()] -= page.size.base_pages();
            self.lines[node.index()] += page.lines;
            Some((page.task, page.page, node))
        });
        planned.collect()
    }

    /// The best node with room.
    fn node(&self, goal: Goal, page: &PageReads) -> Option<NodeId> {
        let fits = |node: &NodeId| self.free[node.index()] >= page.size.base_pages();
        let latency = |node: NodeId| self.machine.idle_latency(page.initiator, node);
        let nodes = self.machine.node_ids().filter(fits);
        // Time that the node is busy with its lines and this page's, in units that depend on the goal.
        let busy = |node: NodeId| {
            let lines = (self.lines[node.index()] + page.lines) as f64;
            let time = lines / self.machine.nodes[node.index()].bandwidth(1.0).as_mbps();
            if matches!(goal, Goal::Both) { time * latency(node).as_ns() } else { time }
        };
        match goal {
            Goal::Latency => nodes.min_by_key(|&node| (latency(node), node)),
            Goal::Bandwidth | Goal::Both => {
                nodes.min_by(|&a, &b| busy(a).total_cmp(&busy(b)).then(latency(a).cmp(&latency(b))))
            }
        }
    }
}

#[cfg(test)]
pub(super) mod testing {
    use memtide_core::Machine;
    use memtide_core::machine::bundled;

    use super::*;

    /// DRAM with twice NVM's bandwidth and the same latency, and this many pages of it.
    pub fn machine(dram_pages: u64) -> Machine {
        machine_named("bmpm-2", dram_pages)
    }

    /// A bundled machine with this many pages of DRAM.
    pub fn machine_named(name: &str, dram_pages: u64) -> Machine {
        let mut machine = bundled::machine(name).expect("bundled").expect("checked");
        machine.nodes[0].capacity_mib = 1;
        machine.nodes[1].capacity_mib = 64;
        machine.kernel.watermark_low_bp = (10_000 - dram_pages * 10_000 / 256) as u32;
        machine
    }

    /// Pages of a plan on DRAM.
    pub fn dram_pages(plan: &PagePlan) -> Vec<u64> {
        plan.nodes.iter().filter(|(_, _, node)| node.index() == 0).map(|(_, page, _)| page.0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{dram_pages, machine};
    use super::*;
    use crate::oracle::windows::page_reads;

    #[test]
    fn latency_plan_gives_dram_to_the_pages_with_most_misses() {
        let reads: Vec<PageReads> = (0..8).map(|at| page_reads(at, 100, at * 3 % 8)).collect();
        let plans = plans(&machine(4), &reads);
        let mut hot: Vec<u64> = (0..8).filter(|at| at * 3 % 8 >= 4).collect();
        hot.sort_unstable();
        assert_eq!(dram_pages(&plans[0]), hot);
    }

    #[test]
    fn bandwidth_plan_divides_lines_as_the_nodes_bandwidths() {
        let reads: Vec<PageReads> = (0..90).map(|at| page_reads(at, 10, 1)).collect();
        let plans = plans(&machine(200), &reads);
        assert_eq!(dram_pages(&plans[0]).len(), 90, "all fit, so that none needs the slower node");
        let share = dram_pages(&plans[1]).len() as f64 / 90.0;
        assert!((share - 2.0 / 3.0).abs() < 0.02, "{share}");
        let both = dram_pages(&plans[2]).len();
        assert!((dram_pages(&plans[1]).len()..90).contains(&both), "{both}");
    }

    #[test]
    fn plans_keep_to_capacity_and_name_a_page_once() {
        let reads: Vec<PageReads> = (0..300).map(|at| page_reads(at, 1 + at % 7, at % 3)).collect();
        for plan in plans(&machine(16), &reads) {
            assert!(dram_pages(&plan).len() <= 16);
            assert_eq!(plan.nodes.len(), 300);
            assert!(plan.nodes.windows(2).all(|two| two[0].1 < two[1].1));
            assert!(plan.node(TaskId(0), Vpn(5)).is_some());
            assert_eq!(plan.node(TaskId(0), Vpn(300)), None);
        }
    }
}

//! Plans: a node for each page, from its reads.

use std::cmp::Reverse;

use memtide_core::{InitiatorId, Machine, NodeId, TaskId, Time, Vpn};

use super::PageReads;

/// The node of each page at first touch, sorted by page.
#[derive(Debug, Default)]
pub struct PagePlan(Vec<(TaskId, Vpn, NodeId)>);

impl PagePlan {
    pub(crate) fn node(&self, task: TaskId, page: Vpn) -> Option<NodeId> {
        let at = self.0.binary_search_by_key(&(task, page), |&(task, page, _)| (task, page)).ok()?;
        Some(self.0[at].2)
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

/// One for each plan.
pub const GOALS: [Goal; 3] = [Goal::Latency, Goal::Bandwidth, Goal::Both];

/// The plans for a machine, which has been reduced.
pub fn plans(machine: &Machine, reads: &[PageReads]) -> Vec<PagePlan> {
    GOALS.map(|goal| Draft::new(machine).plan(goal, reads)).into()
}

/// Idle latency of a node from the farthest initiator.
pub fn farthest(machine: &Machine, node: NodeId) -> Time {
    let initiators = (0..machine.initiators.len()).map(InitiatorId::from);
    initiators.map(|from| machine.idle_latency(from, node)).max().unwrap_or_default()
}

/// A plan being made.
struct Draft<'m> {
    machine: &'m Machine,
    /// Base pages left on each node.
    free: Vec<u64>,
    /// Lines planned for each node.
    lines: Vec<u64>,
}

impl Draft<'_> {
    fn new(machine: &Machine) -> Draft<'_> {
        let low = u64::from(machine.kernel.watermark_low_bp);
        let usable = |pages: u64| pages - pages * low / 10_000;
        let free = machine.nodes.iter().map(|node| usable(node.pages())).collect();
        Draft { machine, free, lines: vec![0; machine.nodes.len()] }
    }

    /// Places the pages that are read most first.
    fn plan(mut self, goal: Goal, reads: &[PageReads]) -> PagePlan {
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
        let mut planned: Vec<_> = planned.collect();
        planned.sort_unstable();
        PagePlan(planned)
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
mod tests {
    use memtide_core::machine::bundled;
    use memtide_core::{Machine, PageSize};

    use super::*;

    /// DRAM with twice NVM's bandwidth, and this many pages of it.
    fn machine(dram_pages: u64) -> Machine {
        let mut machine = bundled::machine("bmpm-2").expect("bundled").expect("checked");
        machine.nodes[0].capacity_mib = 1;
        machine.nodes[1].capacity_mib = 64;
        machine.kernel.watermark_low_bp = (10_000 - dram_pages * 10_000 / 256) as u32;
        machine
    }

    fn page(page: u64, lines: u64, misses: u64) -> PageReads {
        let (task, page, size) = (TaskId(0), Vpn(page), PageSize::Base);
        PageReads { task, page, size, lines, misses, initiator: InitiatorId(0) }
    }

    /// Pages of a plan on DRAM.
    fn on_dram(plan: &PagePlan) -> Vec<u64> {
        plan.0.iter().filter(|(_, _, node)| node.index() == 0).map(|(_, page, _)| page.0).collect()
    }

    #[test]
    fn latency_plan_gives_dram_to_the_pages_with_most_misses() {
        let reads: Vec<PageReads> = (0..8).map(|at| page(at, 100, at * 3 % 8)).collect();
        let plans = plans(&machine(4), &reads);
        let mut hot: Vec<u64> = (0..8).filter(|at| at * 3 % 8 >= 4).collect();
        hot.sort_unstable();
        assert_eq!(on_dram(&plans[0]), hot);
    }

    #[test]
    fn bandwidth_plan_divides_lines_as_the_nodes_bandwidths() {
        let reads: Vec<PageReads> = (0..90).map(|at| page(at, 10, 1)).collect();
        let plans = plans(&machine(200), &reads);
        assert_eq!(on_dram(&plans[0]).len(), 90, "all fit, so that none needs the slower node");
        let share = on_dram(&plans[1]).len() as f64 / 90.0;
        assert!((share - 2.0 / 3.0).abs() < 0.02, "{share}");
        let both = on_dram(&plans[2]).len();
        assert!((on_dram(&plans[1]).len()..90).contains(&both), "{both}");
    }

    #[test]
    fn plans_keep_to_capacity_and_name_a_page_once() {
        let reads: Vec<PageReads> = (0..300).map(|at| page(at, 1 + at % 7, at % 3)).collect();
        for plan in plans(&machine(16), &reads) {
            assert!(on_dram(&plan).len() <= 16);
            assert_eq!(plan.0.len(), 300);
            assert!(plan.0.windows(2).all(|two| two[0].1 < two[1].1));
            assert!(plan.node(TaskId(0), Vpn(5)).is_some());
            assert_eq!(plan.node(TaskId(0), Vpn(300)), None);
        }
    }
}

//! The filter of Linux's automatic NUMA balancing: which hint faults cause a migration.

use std::collections::BTreeMap;

use memtide_core::params::{Parameter, Values};
use memtide_core::policy::{Action, Frame, HintFault, Move, NodeOrder};
use memtide_core::{Machine, NodeId, TaskId, ThreadId, Vpn};

use serde::{Deserialize, Serialize};

use super::runs::Runs;

/// The filter's variant.
pub(super) const FILTER: Parameter = Parameter::word(
    "filter",
    "which hint faults migrate: the second in a row from CPUs of one node (Linux 3.8), or as in Linux 6.12, \
     which moves a thread's own pages sooner and those of several threads by statistics of the whole task",
    &["two-faults", "linux-6"],
);

/// Scan passes in which Linux 6 migrates at a task's first and private faults (`numa_scan_seq <= 4`).
const EARLY_PASSES: u32 = 5;

/// Ratio of faults at which a node counts as much more used than another (`ACTIVE_NODE_FRACTION`).
const MUCH_MORE: u64 = 3;

/// Filters hint faults one by one.
pub(super) struct Trigger {
    order: NodeOrder,
    fastest: Vec<bool>,
    linux6: bool,
    last: Runs<Last>,
    tasks: BTreeMap<TaskId, Faults>,
}

/// The last hint fault on a page.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Last {
    thread: ThreadId,
    node: NodeId,
}

/// A task's hint faults by node: those of earlier scan passes, halved at each pass, and those of the current
/// pass.
#[derive(Clone, Serialize, Deserialize)]
struct Faults {
    pass: u32,
    by_cpu: Vec<[u64; 2]>,
    by_page: Vec<[u64; 2]>,
}

/// Saved state of a trigger.
#[derive(Serialize, Deserialize)]
pub(super) struct Memory {
    last: Runs<Last>,
    tasks: Vec<(TaskId, Faults)>,
}

impl Trigger {
    pub(super) fn new(machine: &Machine, values: &Values) -> Trigger {
        Trigger {
            order: NodeOrder::of(machine),
            fastest: machine.node_ids().map(|node| machine.tier_of(node).0 == 0).collect(),
            linux6: values.word("filter") == "linux-6",
            last: Runs::default(),
            tasks: BTreeMap::new(),
        }
    }

    /// The move to the faulting CPU's own node, if the fault passes the filter.
    pub(super) fn on_fault(&mut self, fault: &HintFault) -> Option<Move> {
        let to = self.order.own(fault.cpu);
        let last = self.last.insert(fault.task, fault.page, Last { thread: fault.thread, node: to });
        let passes =
            if self.linux6 { self.linux6_passes(fault, last, to) } else { two_faults_pass(last, to) };
        let moves = passes && fault.node != to;
        self.count(fault, if moves { to } else { fault.node }, to);
        moves.then_some(Move {
            task: fault.task,
            page: fault.page,
            size: fault.size,
            from: fault.node,
            to,
            wish: Frame::ANY,
        })
    }

    /// Removes a page that no longer exists.
    pub(super) fn forget(&mut self, task: TaskId, page: Vpn) {
        self.last.remove(task, page);
    }

    /// Removes the pages of an action.
    pub(super) fn forget_all(&mut self, action: &Action) {
        action.moves().iter().for_each(|wanted| self.forget(wanted.task, wanted.page));
    }

    pub(super) fn memory(&self) -> Memory {
        Memory {
            last: self.last.clone(),
            tasks: self.tasks.iter().map(|(&task, faults)| (task, faults.clone())).collect(),
        }
    }

    pub(super) fn remember(&mut self, memory: Memory) -> Result<(), String> {
        let nodes = self.fastest.len();
        let fits = |faults: &Faults| faults.by_cpu.len() == nodes && faults.by_page.len() == nodes;
        if !memory.tasks.iter().all(|(_, faults)| fits(faults)) {
            return Err(format!("faults of other nodes than the machine's {nodes}"));
        }
        (self.last, self.tasks) = (memory.last, memory.tasks.into_iter().collect());
        Ok(())
    }

    /// `should_numa_migrate_memory` of Linux 6.12's kernel/sched/fair.c.
    fn linux6_passes(&self, fault: &HintFault, last: Option<Last>, to: NodeId) -> bool {
        let private = last.is_some_and(|last| last.thread == fault.thread);
        let first = last.is_none();
        if first && !self.fastest[fault.node.index()] {
            return false;
        }
        if fault.pass < EARLY_PASSES && (first || private) {
            return true;
        }
        if last.is_some_and(|last| last.node != to) {
            return false;
        }
        private || self.tasks.get(&fault.task).is_none_or(|faults| faults.favour(fault.node, to))
    }

    fn count(&mut self, fault: &HintFault, page_node: NodeId, cpu_node: NodeId) {
        if !self.linux6 {
            return;
        }
        let nodes = self.fastest.len();
        let faults = self.tasks.entry(fault.task).or_insert_with(|| Faults::new(fault.pass, nodes));
        faults.start(fault.pass);
        let pages = fault.size.base_pages();
        faults.by_cpu[cpu_node.index()][1] += pages;
        faults.by_page[page_node.index()][1] += pages;
    }
}

/// The two-stage filter: the previous fault came from the same node.
fn two_faults_pass(last: Option<Last>, to: NodeId) -> bool {
    last.is_some_and(|last| last.node == to)
}

impl Faults {
    fn new(pass: u32, nodes: usize) -> Faults {
        Faults { pass, by_cpu: vec![[0; 2]; nodes], by_page: vec![[0; 2]; nodes] }
    }

    fn start(&mut self, pass: u32) {
        for _ in self.pass..pass.min(self.pass.saturating_add(64)) {
            for [past, current] in self.by_cpu.iter_mut().chain(&mut self.by_page) {
                *past = *past / 2 + *current;
                *current = 0;
            }
        }
        self.pass = self.pass.max(pass);
    }

    /// Whether the statistics of earlier passes favour moving a shared page; true without statistics.
    fn favour(&self, from: NodeId, to: NodeId) -> bool {
        let cpu = |node: NodeId| self.by_cpu[node.index()][0];
        let page = |node: NodeId| self.by_page[node.index()][0];
        let none_yet = self.by_cpu.iter().all(|[past, _]| *past == 0);
        none_yet || cpu(to) > cpu(from) * MUCH_MORE || cpu(to) * page(from) * 3 > cpu(from) * page(to) * 4
    }
}

#[cfg(test)]
mod tests;

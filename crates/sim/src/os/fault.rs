//! Page faults.

use memtide_core::policy::{FirstTouch, FreeMemory, RuleState, Spill};
use memtide_core::{CpuId, NodeId, PageSize, TaskId, ThreadId, Time, VirtAddr, Vpn};

use super::page_table::PAGES;
use super::{Entry, Os, Owner};
use crate::SimError;

/// An access that faulted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touch {
    pub task: TaskId,
    pub thread: ThreadId,
    pub cpu: CpuId,
    pub address: VirtAddr,
    pub write: bool,
}

/// Result of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Faulted {
    /// The page is mapped; the thread continues after this time.
    Mapped(Time),
    /// The page is being moved; the thread waits.
    Moving(Vpn),
    /// The page was unmapped by the scanner.
    Hint(Hinted),
    /// A store to a page that is being copied while mapped.
    Protected(Vpn),
    /// The page's entry is marked, to count its TLB misses.
    Marked { page: Vpn, size: PageSize, node: NodeId },
}

/// A page that the scanner had unmapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hinted {
    pub page: Vpn,
    pub size: PageSize,
    pub node: NodeId,
    /// Steps of the scanner since then.
    pub steps: u64,
}

impl Os {
    /// Handles a fault.
    pub fn fault(&mut self, touch: Touch, placement: &mut RuleState) -> Result<Faulted, SimError> {
        let page = touch.address.page();
        if page.0 >= PAGES {
            return Err(SimError::Address { address: touch.address.0, thread: touch.thread });
        }
        let found = self.spaces[touch.task.index()].table.find(page).map(|(entry, size)| (*entry, size));
        let Some((entry, size)) = found else {
            return self.place(touch, placement, None).map(Faulted::Mapped);
        };
        let first = Vpn(page.0 / size.base_pages() * size.base_pages());
        if entry.has(Entry::MOVING) {
            return Ok(Faulted::Moving(first));
        }
        if entry.has(Entry::PRESENT | Entry::HINT) {
            self.counts.hint_faults += 1;
            if let Some((entry, _)) = self.spaces[touch.task.index()].table.find(page) {
                entry.clear(Entry::HINT);
            }
            let (node, steps) = (self.node_of(entry.frame()), entry.steps_since_hint(self.scan_step));
            return Ok(Faulted::Hint(Hinted { page: first, size, node, steps }));
        }
        if touch.write && entry.has(Entry::PRESENT | Entry::PROTECTED) {
            return Ok(Faulted::Protected(first));
        }
        if entry.has(Entry::PRESENT | Entry::MARKED) {
            return Ok(Faulted::Marked { page: first, size, node: self.node_of(entry.frame()) });
        }
        if entry.has(Entry::PRESENT) {
            return Ok(Faulted::Mapped(Time::ZERO));
        }
        let swapped = entry.has(Entry::SWAPPED).then_some(size);
        self.place(touch, placement, swapped).map(Faulted::Mapped)
    }

    /// First touch, or swap-in of a page of size `swapped`: places a page; returns the cost.
    fn place(
        &mut self,
        touch: Touch,
        placement: &mut RuleState,
        swapped: Option<PageSize>,
    ) -> Result<Time, SimError> {
        let size = swapped.unwrap_or_else(|| self.spaces[touch.task.index()].page_size_at(touch.address));
        if size == PageSize::Huge
            && let Some(frame) = self.take_huge(touch, placement)
        {
            return Ok(self.map(touch, size, frame, swapped.is_some()));
        }
        let fault = fault_of(touch, PageSize::Base);
        let rule = &self.spaces[touch.task.index()].rule;
        let mut cost = Time::ZERO;
        let planned = self.planned(touch.task, &fault);
        let node = match planned.or_else(|| placement.next(rule, &self.order, &fault, &self.frames)) {
            Some(node) => node,
            None if rule.spill == Spill::Refuse => {
                let nodes = rule.groups.iter().flat_map(|group| group.nodes.iter().copied());
                return Err(SimError::Bound { nodes: nodes.collect() });
            }
            None => {
                let local = self.local_node(touch);
                cost += self.reclaim(local)?;
                local
            }
        };
        let owner = Owner { task: touch.task, page: fault.page, size: PageSize::Base };
        let frame = self.frames.take(node, owner).ok_or(SimError::OutOfMemory { node })?;
        Ok(cost + self.map(touch, PageSize::Base, frame, swapped.is_some()))
    }

    /// A frame for a huge page; `None` if no node has memory for it: a base page is used instead, as in
    /// Linux.
    fn take_huge(&mut self, touch: Touch, placement: &mut RuleState) -> Option<u32> {
        let fault = fault_of(touch, PageSize::Huge);
        let rule = &self.spaces[touch.task.index()].rule;
        // A fault is one step of the rule, not two.
        let mut nodes = rule.groups.iter().flat_map(|group| &group.nodes);
        if !nodes.any(|&node| self.frames.fits(node, PageSize::Huge)) {
            return None;
        }
        let planned = self.planned(touch.task, &fault);
        let node = planned.or_else(|| placement.next(rule, &self.order, &fault, &self.frames))?;
        self.frames.take(node, Owner { task: touch.task, page: fault.page, size: PageSize::Huge })
    }

    /// The node that the plan has for a page, if it has memory for it.
    fn planned(&self, task: TaskId, fault: &FirstTouch) -> Option<NodeId> {
        let node = self.plan.as_ref()?.node(task, fault.page)?;
        self.frames.fits(node, fault.size).then_some(node)
    }

    fn map(&mut self, touch: Touch, size: PageSize, frame: u32, swapped: bool) -> Time {
        let page = fault_of(touch, size).page;
        let space = &mut self.spaces[touch.task.index()];
        space.table.map(page, size, Entry::present(frame));
        space.faults += 1;
        let swap_in = if swapped { size.base_pages() } else { 0 };
        self.counts.swapped_in_pages += swap_in;
        self.costs.swap * swap_in + self.charge(size)
    }

    fn charge(&mut self, size: PageSize) -> Time {
        match size {
            PageSize::Base => {
                self.counts.faults += 1;
                self.costs.fault
            }
            PageSize::Huge => {
                self.counts.huge_faults += 1;
                self.costs.huge_fault
            }
        }
    }

    /// The node nearest to the CPU among those that the task may use.
    fn local_node(&self, touch: Touch) -> NodeId {
        let rule = &self.spaces[touch.task.index()].rule;
        let near = self.order.from_cpu(touch.cpu);
        let mut ordinary = near.iter().copied().filter(|&node| !self.frames.is_isolated(node));
        let first = ordinary.clone().next().expect("a machine has an ordinary node");
        ordinary.find(|&node| rule.allows(node)).unwrap_or(first)
    }
}

fn fault_of(touch: Touch, size: PageSize) -> FirstTouch {
    let page = Vpn(touch.address.page().0 / size.base_pages() * size.base_pages());
    FirstTouch { thread: touch.thread, cpu: touch.cpu, page, size }
}

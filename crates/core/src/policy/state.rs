//! A thread's state in a rule: stepped by the simulator and by exact placement.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::SplitMix64;

use super::order::NodeOrder;
use super::rule::{GroupOrder, Rule, Spill, Within};
use crate::ids::{CpuId, NodeId, ThreadId};
use crate::units::{PageSize, Vpn};

/// A first touch of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstTouch {
    /// The touching thread.
    pub thread: ThreadId,
    /// Its CPU.
    pub cpu: CpuId,
    /// The page; the first base page of a huge one.
    pub page: Vpn,
    /// Size of the page to place.
    pub size: PageSize,
}

/// Reports free memory.
pub trait FreeMemory {
    /// Whether a page of this size fits into the node's free memory above its watermark.
    fn fits(&self, node: NodeId, size: PageSize) -> bool;
}

/// A thread's position in a rule.
#[derive(Clone, Debug)]
pub struct RuleState {
    counts: Vec<u32>,
    cursors: Vec<u32>,
    random: SplitMix64,
}

impl RuleState {
    /// The initial state of a thread. The seed only affects random orders.
    ///
    /// # Panics
    /// If the rule has no group, or a group has no node or no weight.
    pub fn new(rule: &Rule, seed: u64, thread: ThreadId) -> RuleState {
        let sound = |g: &super::Group| g.weight > 0 && !g.nodes.is_empty();
        assert!(!rule.groups.is_empty() && rule.groups.iter().all(sound), "unsound rule: {rule:?}");
        let counts = match rule.order {
            GroupOrder::CycleFromOwn => rule.groups.len(),
            GroupOrder::Cycle | GroupOrder::Random | GroupOrder::First => 1,
        };
        let mixed = SplitMix64::seed_from_u64(seed).next_u64();
        let random = SplitMix64::seed_from_u64(mixed ^ u64::from(thread.0));
        RuleState { counts: vec![0; counts], cursors: vec![0; rule.groups.len()], random }
    }

    /// The node for a faulting page; `None` if every node of the rule is full. `rule` is the state's own.
    pub fn next(
        &mut self,
        rule: &Rule,
        order: &NodeOrder,
        touch: &FirstTouch,
        free_memory: &impl FreeMemory,
    ) -> Option<NodeId> {
        let group = self.next_group(rule, order, touch.cpu);
        let node = self.next_node(rule, order, touch.cpu, group);
        if free_memory.fits(node, touch.size) {
            return Some(node);
        }
        let free = |&&n: &&NodeId| free_memory.fits(n, touch.size);
        let by_cpu = order.from_cpu(touch.cpu);
        match rule.spill {
            Spill::Nearest | Spill::Refuse => {
                order.from_node(node).iter().filter(|n| rule.allows(**n)).find(free).copied()
            }
            Spill::Group => std::iter::once(group)
                .chain((0..rule.groups.len()).filter(|&other| other != group))
                .map(|g| &rule.groups[g].nodes)
                .find_map(|nodes| by_cpu.iter().filter(|n| nodes.contains(n)).find(free).copied()),
        }
    }

    fn next_group(&mut self, rule: &Rule, order: &NodeOrder, cpu: CpuId) -> usize {
        let cycle = rule.cycle();
        match rule.order {
            GroupOrder::Random => {
                let drawn = self.draw(cycle);
                group_at(rule, 0, drawn)
            }
            GroupOrder::Cycle => {
                let at = self.counts[0];
                self.counts[0] = (at + 1) % cycle;
                group_at(rule, 0, at)
            }
            GroupOrder::CycleFromOwn => {
                let own = order.from_cpu(cpu).iter().find_map(|&n| rule.group_of(n)).unwrap_or(0);
                let at = self.counts[own];
                self.counts[own] = (at + 1) % cycle;
                group_at(rule, own, at)
            }
            GroupOrder::First => 0,
        }
    }

    fn next_node(&mut self, rule: &Rule, order: &NodeOrder, cpu: CpuId, group: usize) -> NodeId {
        let nodes = &rule.groups[group].nodes;
        let many = nodes.len() as u32;
        match rule.within {
            Within::InSequence => {
                let at = self.cursors[group];
                self.cursors[group] = (at + 1) % many;
                nodes[at as usize]
            }
            Within::Random => nodes[self.draw(many) as usize],
            Within::Nearest => {
                order.from_cpu(cpu).iter().copied().find(|n| nodes.contains(n)).unwrap_or(nodes[0])
            }
        }
    }

    /// A number below `bound`; its bias is below 2^-32.
    fn draw(&mut self, bound: u32) -> u32 {
        ((u128::from(self.random.next_u64()) * u128::from(bound)) >> 64) as u32
    }
}

/// The group at a position of the cycle that starts with `first` and continues with the others in list order.
fn group_at(rule: &Rule, first: usize, mut at: u32) -> usize {
    let others = (0..rule.groups.len()).filter(|&g| g != first);
    for group in std::iter::once(first).chain(others) {
        let weight = rule.groups[group].weight;
        if at < weight {
            return group;
        }
        at -= weight;
    }
    unreachable!("a place lies within the cycle")
}

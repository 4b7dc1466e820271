use std::collections::BTreeSet;

use super::*;
use crate::ids::{ActionId, CpuId, NodeId, TaskId, ThreadId};
use crate::machine::Machine;
use crate::units::{PageSize, Vpn};

/// Socket a with fast node 0 (80 ns), socket b with slow node 1 (200 ns), an expander (300 ns) linked to b.
const MACHINE: &str = r#"
name = "three"
summary = "two sockets with unlike memories and an expander"
[sources]
default = "assumed: made for this test"
[core]
clock_mhz = 2000
instructions_per_cycle = 4
reorder_buffer = 224
outstanding_misses = 12
[[initiator]]
name = "a"
cpus = 2
[[initiator]]
name = "b"
cpus = 2
[[node]]
name = "dram"
tier = 0
capacity_mib = 64
initiator = "a"
[node.fixed]
read_latency_ns = 80
read_bandwidth_mbps = 20000
[[node]]
name = "nvm"
tier = 1
capacity_mib = 64
initiator = "b"
[node.fixed]
read_latency_ns = 200
read_bandwidth_mbps = 10000
write_latency_ns = 700
[[node]]
name = "far"
tier = 2
capacity_mib = 64
[node.fixed]
read_latency_ns = 100
read_bandwidth_mbps = 40000
[[link]]
between = ["a", "b"]
latency_ns = 60
bandwidth_mbps = 20000
[[link]]
between = ["b", "far"]
latency_ns = 90
bandwidth_mbps = 16000
"#;

const A: CpuId = CpuId(1);
const B: CpuId = CpuId(2);

fn machine() -> Machine {
    Machine::parse("three.toml", MACHINE).unwrap()
}

struct Full(BTreeSet<NodeId>);

impl FreeMemory for Full {
    fn fits(&self, node: NodeId, _: PageSize) -> bool {
        !self.0.contains(&node)
    }
}

fn full(nodes: &[u8]) -> Full {
    Full(nodes.iter().map(|&n| NodeId(n)).collect())
}

fn rule(groups: &[(&[u8], u32)], order: GroupOrder, within: Within, spill: Spill) -> Rule {
    let group =
        |&(nodes, weight): &(&[u8], u32)| Group { nodes: nodes.iter().map(|&n| NodeId(n)).collect(), weight };
    Rule { groups: groups.iter().map(group).collect(), order, within, spill }
}

/// The nodes of a thread's next pages; 9 for none.
fn nodes(state: &mut RuleState, rule: &Rule, cpu: CpuId, full: &Full, pages: usize) -> Vec<u8> {
    let order = NodeOrder::of(&machine());
    let fault = FirstTouch { thread: ThreadId(0), cpu, page: Vpn(7), size: PageSize::Base };
    (0..pages).map(|_| state.next(rule, &order, &fault, full).map_or(9, |n| n.0)).collect()
}

fn first(rule: &Rule, cpu: CpuId, full: &Full, pages: usize) -> Vec<u8> {
    nodes(&mut RuleState::new(rule, 1, ThreadId(0)), rule, cpu, full, pages)
}

#[test]
fn own_node_of_a_cpu_is_the_attached_one_even_if_another_is_faster() {
    let order = NodeOrder::of(&machine());
    assert_eq!(order.from_cpu(A), [0, 1, 2].map(NodeId));
    assert_eq!(order.from_cpu(B), [1, 0, 2].map(NodeId));
    assert_eq!(order.own(B), NodeId(1));
    assert_eq!(order.from_node(NodeId(2)), [2, 1, 0].map(NodeId));
    assert_eq!(order.from_cpu(CpuId(4)), order.from_cpu(CpuId(0)));
}

#[test]
fn cycle_takes_as_many_pages_of_each_group_as_its_weight() {
    let r = rule(&[(&[0], 3), (&[1, 2], 2)], GroupOrder::Cycle, Within::InSequence, Spill::Group);
    assert_eq!(first(&r, A, &full(&[]), 12), [0, 0, 0, 1, 2, 0, 0, 0, 1, 2, 0, 0]);
    let r = rule(&[(&[0], 1), (&[1, 2], 3)], GroupOrder::Cycle, Within::InSequence, Spill::Group);
    assert_eq!(first(&r, A, &full(&[]), 8), [0, 1, 2, 1, 0, 2, 1, 2]);
    assert_eq!(first(&r, B, &full(&[]), 8), [0, 1, 2, 1, 0, 2, 1, 2]);
}

#[test]
fn cycle_from_own_group_counts_per_own_group() {
    let r = rule(&[(&[0], 2), (&[1], 1), (&[2], 1)], GroupOrder::CycleFromOwn, Within::Nearest, Spill::Group);
    assert_eq!(first(&r, B, &full(&[]), 5), [1, 0, 0, 2, 1]);
    let mut state = RuleState::new(&r, 1, ThreadId(0));
    assert_eq!(nodes(&mut state, &r, A, &full(&[]), 1), [0]);
    assert_eq!(nodes(&mut state, &r, B, &full(&[]), 2), [1, 0]);
    assert_eq!(nodes(&mut state, &r, A, &full(&[]), 4), [0, 1, 2, 0]);
    assert_eq!(nodes(&mut state, &r, B, &full(&[]), 2), [0, 2]);
}

#[test]
fn own_group_has_the_nearest_node_of_the_rule() {
    let r = rule(&[(&[0], 1), (&[2], 1)], GroupOrder::CycleFromOwn, Within::Nearest, Spill::Group);
    assert_eq!(first(&r, B, &full(&[]), 2), [0, 2]);
}

#[test]
fn full_group_spills_to_its_other_nodes_then_to_other_groups() {
    let r = rule(&[(&[2], 1), (&[1, 0], 1)], GroupOrder::Cycle, Within::InSequence, Spill::Group);
    assert_eq!(first(&r, A, &full(&[2]), 4), [0, 1, 0, 0]);
    assert_eq!(first(&r, A, &full(&[1]), 4), [2, 0, 2, 0]);
    assert_eq!(first(&r, B, &full(&[0, 1]), 2), [2, 2]);
    assert_eq!(first(&r, B, &full(&[0, 1, 2]), 2), [9, 9]);
}

#[test]
fn full_node_spills_to_its_nearest_node() {
    let r = rule(&[(&[0], 1), (&[1], 1), (&[2], 1)], GroupOrder::Cycle, Within::InSequence, Spill::Nearest);
    assert_eq!(first(&r, A, &full(&[2]), 3), [0, 1, 1]);
    assert_eq!(first(&r, A, &full(&[2, 1]), 3), [0, 0, 0]);
    let strict = rule(&[(&[1], 1)], GroupOrder::Cycle, Within::Nearest, Spill::Nearest);
    assert_eq!(first(&strict, A, &full(&[1]), 1), [9]);
}

#[test]
fn random_order_follows_weights_seed_and_thread() {
    let r = rule(&[(&[0], 3), (&[1, 2], 1)], GroupOrder::Random, Within::Random, Spill::Group);
    let draw = |seed, thread| {
        let mut state = RuleState::new(&r, seed, ThreadId(thread));
        nodes(&mut state, &r, A, &full(&[]), 40_000)
    };
    let drawn = draw(1, 0);
    assert_eq!(drawn, draw(1, 0));
    assert_ne!(drawn, draw(1, 1));
    assert_ne!(drawn, draw(2, 0));
    for (node, expected) in [(0, 30_000.0), (1, 5_000.0), (2, 5_000.0f64)] {
        let got = drawn.iter().filter(|&&n| n == node).count() as f64;
        assert!((got - expected).abs() < 450.0, "node {node}: {got}");
    }
}

#[test]
#[should_panic(expected = "unsound rule")]
fn rule_without_weight_panics() {
    RuleState::new(&rule(&[(&[0], 0)], GroupOrder::Cycle, Within::Nearest, Spill::Group), 1, ThreadId(0));
}

#[test]
fn node_bandwidth_is_limited_by_links() {
    let m = machine();
    assert_eq!(m.node_bandwidth(NodeId(1)).as_mbps(), 10_000.0);
    assert_eq!(m.node_bandwidth(NodeId(2)).as_mbps(), 16_000.0);
    assert_eq!(m.tier_bandwidth(crate::ids::TierId(0)).as_mbps(), 20_000.0);
    assert_eq!(m.nearest_initiator(NodeId(2)), crate::ids::InitiatorId(1));
    assert_eq!(m.write_latency(NodeId(1)).as_ns(), 700.0);
    assert_eq!(m.write_latency(NodeId(2)).as_ns(), 190.0);
}

#[test]
fn dram_node_bandwidth_is_peak_of_channels() {
    let text = include_str!("../../../../machines/ddr4-2400.toml");
    let m = Machine::parse("ddr4-2400.toml", text).unwrap();
    assert!((m.node_bandwidth(NodeId(0)).as_mbps() - 19_208.0).abs() < 1.0);
    let later_ns = (12.0 + 18.0 - 17.0) * 0.833;
    let read = m.idle_latency(crate::ids::InitiatorId(0), NodeId(0));
    assert!(((m.write_latency(NodeId(0)) - read).as_ns() - later_ns).abs() < 0.01);
}

#[test]
fn truncated_plan_goes_on_as_if_the_rest_had_never_been_requested() {
    let push =
        |plan: &mut Plan| (0..4).map(|task| plan.push(Action::Freeze(TaskId(task)), Reason::Hot).0).count();
    let mut plan = Plan::with_limit(ActionId(7), 2);
    push(&mut plan);
    plan.truncate(2);
    assert_eq!((plan.actions().len(), plan.dropped(), plan.next_id()), (2, 2, ActionId(11)));
    plan.truncate(1);
    assert_eq!((plan.actions().len(), plan.dropped(), plan.next_id()), (1, 0, ActionId(8)));
    push(&mut plan);
    assert_eq!((plan.actions().len(), plan.dropped(), plan.next_id()), (2, 3, ActionId(12)));
}

#[test]
fn plan_counts_actions_beyond_its_limit_without_storing_them() {
    let mut plan = Plan::with_limit(ActionId(7), 2);
    let ids: Vec<u64> = (0..4).map(|task| plan.push(Action::Freeze(TaskId(task)), Reason::Hot).0).collect();
    assert_eq!(ids, [7, 8, 9, 10]);
    assert_eq!((plan.actions().len(), plan.dropped(), plan.next_id()), (2, 2, ActionId(11)));
}

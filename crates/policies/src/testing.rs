//! Shared by tests of policies.

use std::collections::BTreeSet;
use std::fmt::Write;

use memtide_core::machine::Cache;
use memtide_core::policy::{
    Action, FirstTouch, FreeMemory, Move, NodeOrder, NodeView, Plan, Reason, Region, Regions, Rule,
    RuleState, Task, TaskView,
};
use memtide_core::{CpuId, Machine, NodeId, PageSize, TaskId, ThreadId, Vpn};

/// CPUs of each socket of a test's machine.
pub(crate) const CPUS: u16 = 4;

/// A node of a test's machine.
#[derive(Clone, Debug)]
pub(crate) struct N {
    pub(crate) tier: u8,
    pub(crate) socket: u16,
    pub(crate) mbps: f64,
    pub(crate) read_ns: f64,
    pub(crate) write_ns: f64,
}

/// A node with the latency of DRAM.
pub(crate) fn node(tier: u8, socket: u16, mbps: f64) -> N {
    N { tier, socket, mbps, read_ns: 80.0, write_ns: 80.0 }
}

/// A machine with these nodes; its sockets are joined in a chain of 60 ns links.
pub(crate) fn machine(nodes: &[N]) -> Machine {
    let mut text =
        "name = 'test'\nsummary = 'made for a test'\nsources = { default = 'assumed: made for a test' }\n\
        [core]\nclock_mhz = 2000\ninstructions_per_cycle = 4\nreorder_buffer = 224\noutstanding_misses = 12\n"
            .to_owned();
    let sockets = nodes.iter().map(|n| n.socket).max().unwrap_or(0);
    for socket in 0..=sockets {
        writeln!(text, "[[initiator]]\nname = 's{socket}'\ncpus = {CPUS}").unwrap();
    }
    for (index, n) in nodes.iter().enumerate() {
        let N { tier, socket, mbps, read_ns, write_ns } = n;
        writeln!(
            text,
            "[[node]]\nname = 'n{index}'\ntier = {tier}\ncapacity_mib = 64\ninitiator = 's{socket}'"
        )
        .unwrap();
        writeln!(text, "[node.fixed]\nread_latency_ns = {read_ns}\nwrite_latency_ns = {write_ns}").unwrap();
        writeln!(text, "read_bandwidth_mbps = {mbps}").unwrap();
    }
    for socket in 0..sockets {
        let next = socket + 1;
        writeln!(
            text,
            "[[link]]\nbetween = ['s{socket}', 's{next}']\nlatency_ns = 60\nbandwidth_mbps = 20000"
        )
        .unwrap();
    }
    Machine::parse("test.toml", &text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// bmpm's two sockets: DRAM beside the first, NVM with a part of its bandwidth beside the second.
pub(crate) fn bmpm(ratio: f64) -> Machine {
    machine(&[node(0, 0, 17_000.0), node(1, 1, 17_000.0 / ratio)])
}

/// The same machine with a last cache level of 16 ways, which the CPUs of a socket share.
pub(crate) fn with_last_level(machine: Machine) -> Machine {
    let (name, capacity_kib, latency_cycles) = ("L3".to_owned(), 1024, 40.0);
    let cache = Cache { name, capacity_kib, ways: 16, latency_cycles, shared_by: CPUS, slice: false };
    Machine { caches: vec![cache], ..machine }
}

/// A CPU of a socket.
pub(crate) fn cpu_of(socket: u16) -> CpuId {
    CpuId(socket * CPUS + 1)
}

/// A node of which only size and free memory are known, in base pages.
pub(crate) fn node_view(node: NodeId, pages: u64, free_pages: u64) -> NodeView {
    NodeView::new(node, pages, free_pages)
}

/// Adjacent base pages of task 1 from page 0 on: the node and the counted accesses of each.
pub(crate) fn page_counts(counts: &[(u8, u32)]) -> Regions {
    let mut regions = Regions::default();
    for (start, &(node, reads)) in (0..).map(Vpn).zip(counts) {
        let (task, size, node) = (TaskId(1), PageSize::Base, NodeId(node));
        regions.push(Region { task, start, pages: 1, size, node, reads, writes: 0, age: 0 });
    }
    regions
}

/// Task 1 with a number of resident base pages.
pub(crate) fn task_view(resident_pages: u64) -> TaskView {
    TaskView {
        task: TaskId(1),
        name: "test".to_owned(),
        owner: None,
        priority: None,
        resident_pages,
        page_faults: None,
        footprint: Vec::new(),
        rule: None,
    }
}

/// The moves of a plan, with their reasons.
pub(crate) fn moves_of(plan: &Plan) -> Vec<(Move, Reason)> {
    let moves = plan.actions().iter().filter_map(|planned| match planned.action {
        Action::Move(wanted) => Some((wanted, planned.reason)),
        _ => None,
    });
    moves.collect()
}

/// Nodes without free memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Full(pub(crate) BTreeSet<NodeId>);

impl FreeMemory for Full {
    fn fits(&self, node: NodeId, _: PageSize) -> bool {
        !self.0.contains(&node)
    }
}

/// Marks these nodes as full.
pub(crate) fn full(nodes: &[u8]) -> Full {
    Full(nodes.iter().map(|&n| NodeId(n)).collect())
}

/// The rule of a policy for a task on a machine.
pub(crate) fn rule(policy: &str, machine: &Machine) -> Rule {
    let task = Task { id: TaskId(0), name: "test".to_owned(), threads: 1 };
    let policy = crate::parse(policy).unwrap_or_else(|e| panic!("{e}"));
    policy.placement(machine).unwrap_or_else(|e| panic!("{e}")).rule(machine, &task)
}

/// A thread that touches pages under a policy.
pub(crate) struct Toucher {
    pub(crate) rule: Rule,
    state: RuleState,
    order: NodeOrder,
    thread: ThreadId,
}

impl Toucher {
    pub(crate) fn new(policy: &str, machine: &Machine, thread: u32) -> Toucher {
        let (rule, thread) = (rule(policy, machine), ThreadId(thread));
        let state = RuleState::new(&rule, 42, thread);
        Toucher { rule, state, order: NodeOrder::of(machine), thread }
    }

    /// The node of the next page.
    pub(crate) fn touch(&mut self, cpu: CpuId, full: &Full) -> Option<NodeId> {
        let fault = FirstTouch { thread: self.thread, cpu, page: Vpn(1), size: PageSize::Base };
        self.state.next(&self.rule, &self.order, &fault, full)
    }

    /// The nodes of the next pages; 99 for none.
    pub(crate) fn nodes(&mut self, cpu: CpuId, full: &Full, pages: usize) -> Vec<u8> {
        (0..pages).map(|_| self.touch(cpu, full).map_or(99, |n| n.0)).collect()
    }
}

/// The nodes of the first pages of a thread on a socket.
pub(crate) fn first(policy: &str, machine: &Machine, socket: u16, pages: usize) -> Vec<u8> {
    Toucher::new(policy, machine, 0).nodes(cpu_of(socket), &Full::default(), pages)
}

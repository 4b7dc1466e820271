//! `linux-tiering`: Linux's memory tiering, promotion by hint faults and demotion by kswapd.

mod promotion;

use std::collections::BTreeMap;

use memtide_core::params::{Parameter, Values};
use memtide_core::policy::{
    Delivery, Event, Frame, HintFault, Migration, Move, NodeOrder, NodeView, Plan, Reason, Sensor, Sensors,
    View, Wake, Watermarks,
};
use memtide_core::{ActionId, CpuId, Machine, NodeId, PAGE_BYTES, Time};
use serde::{Deserialize, Serialize};

use self::promotion::{Candidates, Limits};
use super::shared::{from_text, to_text};
use crate::entry::{Info, MigrationEntry};

pub(super) const ENTRY: MigrationEntry = MigrationEntry {
    info: Info {
        name: "linux-tiering",
        summary: "Linux's memory tiering: pages accessed soon after a scan go to the fastest tier, inactive \
                  ones off it",
        when: "as a yardstick: what a stock kernel does; it needs idle pages on the fastest tier",
        source: "Linux 6.12, numa_balancing = 2 with demotion_enabled: kernel/sched/fair.c \
                 (should_numa_migrate_memory), mm/migrate.c, mm/vmscan.c, mm/memory-tiers.c",
        figures: false,
        parameters: &[
            Parameter::integer(
                "hot_threshold_ms",
                "ms",
                "a page is hot if it is accessed within this time after the scanner unmapped it; adjusted up \
                 to twice this",
                [1, 1000, 1_000_000],
            ),
            Parameter::integer(
                "rate_limit_mbps",
                "MiB/s",
                "maximum rate of promotion to a node; 0 promotes to nodes with much free memory only",
                [0, 65_536, 100_000_000],
            ),
            Parameter::integer(
                "adjust_ms",
                "ms",
                "time between two adjustments of the threshold: the scanner's longest period",
                [1, 60_000, 100_000_000],
            ),
            Parameter::word("demotion", "whether kswapd demotes inactive pages", &["on", "off"]),
        ],
    },
    check: |_| Ok(()),
    make: |machine, values| Box::new(LinuxTiering::new(machine, values)),
};

/// Window of the rate limit (kernel/sched/fair.c, `numa_promotion_rate_limit`).
const WINDOW: Time = Time::from_ms(1000);

/// Free memory with which every accessed page is promoted: the larger of this and a sixteenth of the node
/// (kernel/sched/fair.c, `pgdat_free_space_enough`).
const ENOUGH_BYTES: u64 = 1 << 30;
const ENOUGH_SHARE: u64 = 16;

/// Time between two runs of kswapd that found too little (mm/vmscan.c, `kswapd_try_to_sleep`: HZ / 10).
const NAP: Time = Time::from_ms(100);

struct LinuxTiering {
    order: NodeOrder,
    /// Tier of each node, 0 the fastest.
    tiers: Vec<usize>,
    limits: Limits,
    /// [`ENOUGH_BYTES`] in base pages of the host, and [`NAP`] in its time.
    enough_pages: u64,
    nap: Time,
    demotes: bool,
    state: State,
}

#[derive(Serialize, Deserialize)]
struct State {
    nodes: Vec<Node>,
    /// Demotions in flight, by the node that they free.
    demotions: BTreeMap<ActionId, NodeId>,
}

/// State of a node.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
struct Node {
    candidates: Candidates,
    /// Base pages of the page that found no free memory; 0 if kswapd sleeps.
    woken_for: u64,
    /// When kswapd may run again.
    rested: Time,
}

impl LinuxTiering {
    fn new(machine: &Machine, values: &Values) -> LinuxTiering {
        let scaled = |time: Time| Time((time.0 / u64::from(machine.scale)).max(1));
        let ms = |name: &str| Time::from_ms(values.u32(name).into());
        // A promotion takes as long on a scaled machine, in which time passes faster: pages per scaled second
        // are divided as the capacity is.
        let reduced = |pages: u64| if pages == 0 { 0 } else { (pages / machine.reduction()).max(1) };
        let per_second = (u64::from(values.u32("rate_limit_mbps")) << 20) / PAGE_BYTES;
        let limits = Limits {
            reference: scaled(ms("hot_threshold_ms")),
            window: scaled(WINDOW),
            window_pages: reduced(per_second),
            period: scaled(ms("adjust_ms")),
            period_pages: reduced(per_second.saturating_mul(values.u32("adjust_ms").into()) / 1000),
        };
        let nodes = vec![Node::default(); machine.nodes.len()];
        LinuxTiering {
            order: NodeOrder::of(machine),
            tiers: machine.node_ids().map(|node| machine.tier_of(node).index()).collect(),
            limits,
            enough_pages: reduced(ENOUGH_BYTES / PAGE_BYTES),
            nap: scaled(NAP),
            demotes: values.word("demotion") == "on",
            state: State { nodes, demotions: BTreeMap::new() },
        }
    }

    fn tier(&self, node: NodeId) -> usize {
        self.tiers[node.index()]
    }

    /// The node to which pages that a CPU accesses are promoted: the nearest one of the fastest tier.
    fn target(&self, cpu: CpuId) -> Option<NodeId> {
        self.order.from_cpu(cpu).iter().copied().find(|&node| self.tier(node) == 0)
    }

    fn on_fault(&mut self, fault: &HintFault, view: &View, plan: &mut Plan) {
        let Some(to) = self.target(fault.cpu).filter(|_| self.tier(fault.node) > 0) else { return };
        let Some((node, marks)) = known(view, to) else { return };
        let pages = fault.size.base_pages();
        if !self.is_wanted(fault, node, marks) {
            return;
        }
        // `migrate_misplaced_folio_prepare` of mm/migrate.c.
        if node.free_pages > marks.high_pages + pages {
            let HintFault { task, page, size, node: from, .. } = *fault;
            plan.push_move(Move { task, page, size, from, to, wish: Frame::ANY }, Reason::Hot);
        } else {
            self.wake_kswapd(to, pages, fault.time, plan);
        }
    }

    /// `should_numa_migrate_memory` of kernel/sched/fair.c, for a page of a slow tier.
    fn is_wanted(&mut self, fault: &HintFault, node: &NodeView, marks: Watermarks) -> bool {
        let candidates = &mut self.state.nodes[node.node.index()].candidates;
        let enough = self.enough_pages.max(node.pages / ENOUGH_SHARE);
        if node.free_pages > marks.promotion_pages() + enough {
            candidates.reset_threshold();
            return true;
        }
        let latency = fault.idle.unwrap_or(Time::NEVER);
        candidates.admits(&self.limits, fault.time, latency, fault.size.base_pages())
    }

    /// Lets kswapd run, unless it does, or has just found too little.
    fn wake_kswapd(&mut self, node: NodeId, pages: u64, now: Time, plan: &mut Plan) {
        let runs = self.state.demotions.values().any(|&from| from == node);
        let state = &mut self.state.nodes[node.index()];
        if self.demotes && !runs && now >= state.rested {
            state.woken_for = state.woken_for.max(pages);
            plan.decide_now();
        }
    }

    /// kswapd's run on a node (`balance_pgdat` and `demote_folio_list` of mm/vmscan.c).
    fn demote(&mut self, from: NodeId, view: &View, free: &mut [u64], plan: &mut Plan) {
        let pages = std::mem::take(&mut self.state.nodes[from.index()].woken_for);
        let Some((node, marks)) = known(view, from).filter(|_| pages > 0) else { return };
        let target = marks.promotion_pages().max(marks.high_pages + pages) + 1;
        let mut wanted = target.saturating_sub(node.free_pages);
        for page in view.inactive.iter().filter(|page| page.node == from) {
            let pages = page.size.base_pages();
            let Some(to) = self.demotion_target(from, pages, free).filter(|_| wanted > 0) else { break };
            free[to.index()] -= pages;
            wanted = wanted.saturating_sub(pages);
            let (task, size) = (page.task, page.size);
            let wanted = Move { task, page: page.page, size, from, to, wish: Frame::ANY };
            self.state.demotions.insert(plan.push_move(wanted, Reason::Cold), from);
        }
        if wanted > 0 {
            self.state.nodes[from.index()].rested = view.time + self.nap;
        }
    }

    /// The nearest node of the next slower tier with that many free base pages, else of the tiers below it.
    fn demotion_target(&self, from: NodeId, pages: u64, free: &[u64]) -> Option<NodeId> {
        let fits = |&node: &NodeId| self.tier(node) > self.tier(from) && free[node.index()] >= pages;
        let near = self.order.from_node(from).iter().copied().filter(fits);
        near.min_by_key(|&node| self.tier(node))
    }
}

/// A node that is online and whose watermarks are known.
fn known(view: &View, node: NodeId) -> Option<(&NodeView, Watermarks)> {
    let node = view.node(node).filter(|node| node.pages > 0)?;
    Some((node, node.watermarks?))
}

/// Base pages that fit into each node above its low watermark.
fn free_pages(view: &View) -> Vec<u64> {
    let above =
        |node: &NodeView| node.free_pages.saturating_sub(node.watermarks.map_or(0, |marks| marks.low_pages));
    view.nodes.iter().map(above).collect()
}

impl Migration for LinuxTiering {
    fn sensors(&self) -> Sensors {
        let sensors = Sensors::new(Delivery::InKernel, Time::NEVER)
            .require(Sensor::SlowTierFaults)
            .require(Sensor::Watermarks);
        if self.demotes { sensors.require(Sensor::InactivePages) } else { sensors }
    }

    fn on_event(&mut self, event: &Event, view: &View, plan: &mut Plan) {
        match event {
            Event::HintFault(fault) => self.on_fault(fault, view, plan),
            Event::Completion(done) => {
                self.state.demotions.remove(&done.planned.id);
            }
            _ => {}
        }
    }

    fn decide(&mut self, view: &View, plan: &mut Plan) -> Wake {
        let mut free = free_pages(view);
        for node in (0..self.state.nodes.len()).map(NodeId::from) {
            self.demote(node, view, &mut free, plan);
        }
        Wake::Never
    }

    fn state(&self) -> String {
        to_text(&self.state)
    }

    fn resume(&mut self, state: &str) -> Result<(), String> {
        let read: State = from_text(state)?;
        let nodes = self.tiers.len();
        if read.nodes.len() != nodes || read.demotions.values().any(|node| node.index() >= nodes) {
            return Err(format!("state of other nodes than the machine's {nodes}"));
        }
        self.state = read;
        Ok(())
    }
}

#[cfg(test)]
mod tests;

//! The fastest tier and all other nodes, as two groups (hinuma section III-A), and moves between them.

use memtide_core::params::{Parameter, Values};
use memtide_core::policy::{Frame, Move, NodeOrder, Page, Plan, Reason, Region, TlbMissSampling, View};
use memtide_core::{Machine, NodeId, Time, Vpn};

/// Markings of an epoch.
pub(super) const MARKS: Parameter = Parameter::integer(
    "marks",
    "markings",
    "how often in an epoch all pages are marked to count their next TLB miss",
    [1, 4, 1000],
);

/// Time between two decisions of policies that count TLB misses.
pub(super) const EPOCH_MS: Parameter =
    Parameter::integer("epoch_ms", "ms", "time between two decisions", [10, 4000, 600_000]);

/// Which misses count.
pub(super) const COUNT: Parameter = Parameter::word(
    "count",
    "which TLB misses of a page count: the first after each marking, or every one, at a fault each",
    &["first", "every"],
);

/// Limit of an epoch's promotions.
pub(super) const PAGES: Parameter =
    Parameter::integer("pages", "pages/epoch", "maximum promotions per epoch", [1, 16_384, 100_000_000]);

/// Time per page of a sort, t_p.
pub(super) const PAGE_NS: Parameter = Parameter::integer(
    "page_ns",
    "ns",
    "CPU time to sort and traverse a page, t_p: charged for each page sorted",
    [1, 100, 100_000],
);

/// The limit `pages` on a machine that was made smaller, at least 1.
pub(super) fn pages_per_epoch(machine: &Machine, values: &Values) -> usize {
    (u64::from(values.u32("pages")) / machine.reduction()).max(1) as usize
}

/// The counting that a policy's parameters request, for its epoch.
pub(super) fn sampling(values: &Values, epoch: Time) -> TlbMissSampling {
    let marking = Time((epoch.0 / u64::from(values.u32("marks"))).max(1));
    TlbMissSampling { marking, every_miss: values.word("count") == "every", planned: false }
}

/// Resident pages of all tasks, in base pages.
pub(super) fn resident(view: &View) -> u64 {
    view.tasks.iter().fold(0, |all, task| all.saturating_add(task.resident_pages))
}

/// The nodes of both groups.
pub(super) struct Groups {
    order: NodeOrder,
    fast: Vec<bool>,
}

impl Groups {
    pub(super) fn new(machine: &Machine) -> Groups {
        let fast = machine.node_ids().map(|node| machine.tier_of(node).index() == 0).collect();
        Groups { order: NodeOrder::of(machine), fast }
    }

    /// Number of nodes.
    pub(super) fn nodes(&self) -> usize {
        self.fast.len()
    }

    pub(super) fn order(&self) -> &NodeOrder {
        &self.order
    }

    /// Whether a node is of the fastest tier.
    pub(super) fn is_fast(&self, node: NodeId) -> bool {
        self.fast.get(node.index()).copied().unwrap_or(false)
    }

    /// The node of the other group that is nearest to a node.
    pub(super) fn across(&self, from: NodeId) -> Option<NodeId> {
        let order = self.order.from_node(from).iter().copied();
        order.into_iter().find(|&node| self.is_fast(node) != self.is_fast(from))
    }

    /// Whether a group has several nodes, so that pages can move within it.
    pub(super) fn has_neighbours(&self) -> bool {
        let fast = self.fast.iter().filter(|fast| **fast).count();
        fast > 1 || self.fast.len() - fast > 1
    }
}

/// A plan of moves to the other group, within the nodes' free memory and what earlier moves of the plan free.
pub(super) struct Draft<'d> {
    groups: &'d Groups,
    free: Vec<u64>,
    plan: &'d mut Plan,
}

impl<'d> Draft<'d> {
    pub(super) fn new(groups: &'d Groups, view: &View, plan: &'d mut Plan) -> Draft<'d> {
        Draft { groups, free: view.nodes.iter().map(|node| node.free_pages).collect(), plan }
    }

    /// Moves a page to the nearest node of the other group with free memory; false if there is none.
    pub(super) fn cross(&mut self, page: Page, from: NodeId, reason: Reason) -> bool {
        let Page { task, page, size } = page;
        let needed = size.base_pages();
        let fits = |&node: &NodeId| {
            self.groups.is_fast(node) != self.groups.is_fast(from)
                && self.free.get(node.index()).is_some_and(|free| *free >= needed)
        };
        let Some(to) = self.groups.order.from_node(from).iter().copied().find(fits) else { return false };
        self.free[to.index()] -= needed;
        if let Some(free) = self.free.get_mut(from.index()) {
            *free = free.saturating_add(needed);
        }
        self.plan.push_move(Move { task, page, size, from, to, wish: Frame::ANY }, reason);
        true
    }
}

/// A region's pages.
pub(super) fn pages_of(region: Region) -> impl DoubleEndedIterator<Item = Page> {
    let Region { task, start, pages, size, .. } = region;
    (0..pages).map(move |number| Page { task, page: Vpn(start.0 + number * size.base_pages()), size })
}

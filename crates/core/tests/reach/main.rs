//! Coverage of contract 2: a small policy for each family of published systems, on the fake host. Each
//! implements one idea of its system; the systems themselves are not here.

mod bdm;
mod colloid;
mod hinuma;
mod memos;
mod memtis;
mod plans;
mod pms;
mod tpp;

use memtide_core::conformance::{FakeHost, FakePage};
use memtide_core::epoch::{Limits, PolicyRunner, Watcher};
use memtide_core::policy::{
    Completion, Event, Frame, Migration, Move, Outcome, Page, Plan, Planned, Region, RegionSampling, Sensor,
    View, Wake,
};
use memtide_core::{NodeId, PageSize, TaskId, Time, Vpn};

const EPOCH: Time = Time::from_ms(100);
const TASK: TaskId = TaskId(1);

/// Local memory, DRAM or HBM.
const FAST: NodeId = NodeId(0);

/// Remote memory, NVM or CXL memory.
const SLOW: NodeId = NodeId(1);

const REGIONS: Sensor = Sensor::Regions(RegionSampling {
    sampling: Time::from_ms(5),
    aggregation: EPOCH,
    regions_max: 1000,
    writes: true,
    budget_bp: None,
});

/// All plans and their outcomes.
#[derive(Default)]
struct Watched {
    planned: Vec<Planned>,
    done: Vec<Completion>,
}

impl Watcher for Watched {
    fn planned(&mut self, _: &[Event], _: &View, plan: &Plan) {
        self.planned.extend_from_slice(plan.actions());
    }

    fn completed(&mut self, done: &[Completion]) {
        self.done.extend_from_slice(done);
    }
}

/// A policy on a fake host.
struct Run {
    host: FakeHost,
    runner: PolicyRunner,
    watched: Watched,
}

impl Run {
    /// Runs a policy on nodes with this many base pages. [`TASK`] has started.
    fn new(policy: impl Migration + 'static, node_pages: &[u64], limits: Limits) -> Run {
        let mut host = FakeHost::new(node_pages, &policy.sensors()).expect("it answers every sensor");
        host.start_task(TASK, "test");
        let runner = PolicyRunner::new(Box::new(policy), limits);
        Run { host, runner, watched: Watched::default() }
    }

    /// Maps base pages of [`TASK`].
    fn map(&mut self, pages: std::ops::Range<u64>, node: NodeId) {
        pages.for_each(|page| self.host.map(TASK, Vpn(page), PageSize::Base, node));
    }

    fn page(&mut self, page: u64) -> &mut FakePage {
        self.host.page(TASK, Vpn(page)).expect("a page that is mapped")
    }

    /// The nodes of base pages.
    fn nodes_of(&mut self, pages: std::ops::Range<u64>) -> Vec<NodeId> {
        pages.map(|page| self.page(page).node).collect()
    }

    /// Runs an epoch.
    fn epoch(&mut self) -> Wake {
        self.host.advance(EPOCH);
        self.runner.epoch(&mut self.host, &mut self.watched)
    }

    fn outcomes(&self) -> Vec<Outcome> {
        self.watched.done.iter().map(|done| done.outcome).collect()
    }

    /// Base pages moved, as recorded by the governor.
    fn moved(&self, from: NodeId, to: NodeId) -> u64 {
        self.runner.governor().recorded().moved_pages.get(&(from, to)).copied().unwrap_or(0)
    }

    fn moved_in_all(&self) -> u64 {
        self.runner.governor().recorded().moved_pages.values().sum()
    }
}

/// A move of a page to any frame of another node.
fn move_of(Page { task, page, size }: Page, from: NodeId, to: NodeId) -> Move {
    Move { task, page, size, from, to, wish: Frame::ANY }
}

fn pages(region: &Region) -> impl Iterator<Item = Page> + use<> {
    let Region { task, start, pages, size, .. } = *region;
    (0..pages).map(move |at| Page { task, page: Vpn(start.0 + at * size.base_pages()), size })
}

fn accesses(region: &Region) -> u32 {
    region.reads + region.writes
}

//! `bdm`: moves the recently used pages of the program whose threads draw the most bandwidth evenly to the
//! fastest tier.

mod windows;

use std::collections::BTreeSet;

use memtide_core::params::{Parameter, Values};
use memtide_core::policy::{
    Action, Delivery, Event, Frame, Migration, Move, NodeOrder, Plan, Reason, Region, RegionSampling, Sensor,
    Sensors, View, Wake,
};
use memtide_core::{ActionId, Machine, NodeId, TaskId, Time, Vpn};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::SplitMix64;
use serde::{Deserialize, Serialize};

use self::windows::Windows;
use super::shared::{from_text, to_text};
use crate::entry::{Info, MigrationEntry};

pub(super) const ENTRY: MigrationEntry = MigrationEntry {
    info: Info {
        name: "bdm",
        summary: "moves recent pages of the program whose threads evenly draw most bandwidth to the fastest \
                  tier",
        when: "programs that run together differ in bandwidth, and the fastest tier is the one with \
            most of it",
        source: "bdm algorithms 1 to 4",
        figures: false,
        parameters: &[
            Parameter::integer("window_ms", "ms", "monitoring period, p of algorithm 1", [10, 100, 600_000]),
            Parameter::integer(
                "windows",
                "windows",
                "latest windows that predict the next one's bandwidth",
                [1, 5, 1000],
            ),
            Parameter::integer(
                "threshold",
                "%",
                "maximum use of the fastest tier, the program to move included: t of algorithm 4",
                [1, 90, 100],
            ),
            Parameter::word(
                "select",
                "the program to move: by bandwidth, or any at random, the paper's rival",
                &["bandwidth", "random"],
            ),
            Parameter::integer("seed", "", "of the random selection", [0, 1, 1_000_000_000]),
            Parameter::integer("regions", "regions", "maximum number of regions", [10, 1000, 100_000]),
        ],
    },
    check: |_| Ok(()),
    make: |machine, values| Box::new(Bdm::new(machine, values)),
};

/// Samples of a region per window.
const SAMPLES: u64 = 10;

struct Bdm {
    order: NodeOrder,
    /// Whether each node is of the fastest tier.
    fast: Vec<bool>,
    window: Time,
    threshold: u64,
    random: bool,
    seed: u64,
    regions_max: u32,
    state: State,
}

/// What it remembers.
#[derive(Serialize, Deserialize)]
struct State {
    windows: Windows,
    /// Actions without completion: the loop of algorithm 1 goes on once a migration is over.
    pending: BTreeSet<ActionId>,
    /// Windows after which lost completions are no longer waited for.
    patience: u32,
    /// Programs drawn at random so far.
    drawn: u64,
}

/// Windows that a migration may take.
const PATIENCE: u32 = 100;

impl Bdm {
    fn new(machine: &Machine, values: &Values) -> Bdm {
        Bdm {
            order: NodeOrder::of(machine),
            fast: machine.node_ids().map(|node| machine.tier_of(node).index() == 0).collect(),
            window: Time::from_ms(values.u32("window_ms").into()),
            threshold: values.u32("threshold").into(),
            random: values.word("select") == "random",
            seed: values.u32("seed").into(),
            regions_max: values.u32("regions"),
            state: State {
                windows: Windows::new(values.u32("windows") as usize),
                pending: BTreeSet::new(),
                patience: 0,
                drawn: 0,
            },
        }
    }

    fn is_fast(&self, node: NodeId) -> bool {
        self.fast.get(node.index()).copied().unwrap_or(false)
    }

    /// Regions of a program that were accessed in this window and are not on the fastest tier.
    fn recent<'v>(&'v self, task: TaskId, view: &'v View) -> impl Iterator<Item = Region> + 'v {
        let used = |region: &Region| region.reads > 0 || region.writes > 0;
        view.regions.of_task(task).filter(used).filter(|region| !self.is_fast(region.node))
    }

    /// The program to move: algorithm 3. Programs without recent pages elsewhere have nothing to move.
    fn selected(&mut self, view: &View) -> Option<TaskId> {
        let movable = |task: &TaskId| self.recent(*task, view).next().is_some();
        if !self.random {
            return self.state.windows.by_even_bandwidth().into_iter().find(movable);
        }
        let tasks: Vec<TaskId> = view.tasks.iter().map(|task| task.task).filter(movable).collect();
        let mut random = SplitMix64::seed_from_u64(self.seed.wrapping_add(self.state.drawn << 32));
        self.state.drawn += 1;
        let drawn = (u128::from(random.next_u64()) * tasks.len() as u128) >> 64;
        tasks.get(drawn as usize).copied()
    }

    /// Base pages that the fastest tier may still get, if the program's whole memory fits below the
    /// threshold: `isMigrationPossible` of algorithm 4.
    fn room_for(&self, task: TaskId, view: &View) -> Option<u64> {
        let of = |node: &NodeId| self.is_fast(*node);
        let fast = || view.nodes.iter().filter(|node| of(&node.node));
        let pages: u64 = fast().map(|node| node.pages).sum();
        let used: u64 = fast().map(|node| node.pages - node.free_pages.min(node.pages)).sum();
        let footprint = view.task(task)?.footprint.iter().enumerate();
        let elsewhere = footprint.filter(|(node, _)| !self.fast.get(*node).copied().unwrap_or(false));
        let elsewhere = elsewhere.fold(0u64, |all, (_, pages)| all.saturating_add(*pages));
        let most = (u128::from(pages) * u128::from(self.threshold) / 100) as u64;
        (used.saturating_add(elsewhere) <= most).then(|| most - used)
    }

    /// Moves a program's recent pages while its threads are stopped: algorithm 4.
    fn migrate(&mut self, task: TaskId, view: &View, plan: &mut Plan) {
        let Some(mut room) = self.room_for(task, view) else { return };
        let mut free: Vec<u64> = view.nodes.iter().map(|node| node.free_pages).collect();
        let mut moves = Vec::new();
        for region in self.recent(task, view) {
            let size = region.size;
            for number in 0..region.pages {
                let fits = |&node: &NodeId| {
                    self.is_fast(node)
                        && free.get(node.index()).is_some_and(|free| *free >= size.base_pages())
                };
                let to = self.order.from_node(region.node).iter().copied().find(fits);
                let Some(to) = to.filter(|_| room >= size.base_pages()) else { break };
                room -= size.base_pages();
                free[to.index()] -= size.base_pages();
                let page = Vpn(region.start.0 + number * size.base_pages());
                moves.push(Move { task, page, size, from: region.node, to, wish: Frame::ANY });
            }
        }
        if moves.is_empty() {
            return;
        }
        let ids = [Action::Freeze(task)].into_iter().chain(moves.into_iter().map(Action::Move));
        let ids = ids.chain([Action::Thaw(task)]);
        self.state.pending = ids.map(|action| plan.push(action, Reason::Bandwidth)).collect();
        self.state.patience = PATIENCE;
    }
}

impl Migration for Bdm {
    fn sensors(&self) -> Sensors {
        let regions = RegionSampling {
            sampling: Time(self.window.0 / SAMPLES),
            aggregation: self.window,
            regions_max: self.regions_max,
            writes: false,
            budget_bp: None,
        };
        Sensors::new(Delivery::Deployable, self.window)
            .require(Sensor::Threads)
            .require(Sensor::ThreadTraffic)
            .require(Sensor::PageFaults)
            .require(Sensor::Regions(regions))
    }

    fn on_event(&mut self, event: &Event, _: &View, _: &mut Plan) {
        if let Event::Completion(done) = event {
            self.state.pending.remove(&done.planned.id);
        }
    }

    fn decide(&mut self, view: &View, plan: &mut Plan) -> Wake {
        self.state.windows.add(view);
        self.state.patience = self.state.patience.saturating_sub(1);
        let is_free = self.state.pending.is_empty() || self.state.patience == 0;
        if is_free && let Some(task) = self.selected(view) {
            self.migrate(task, view, plan);
        }
        Wake::After(self.window)
    }

    fn state(&self) -> String {
        to_text(&self.state)
    }

    fn resume(&mut self, state: &str) -> Result<(), String> {
        let mut read: State = from_text(state)?;
        read.windows.limit_to(&self.state.windows);
        self.state = read;
        Ok(())
    }
}

#[cfg(test)]
mod tests;

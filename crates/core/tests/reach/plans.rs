//! Random plans of all actions, with concurrent changes: counts match what was done.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU16;

use memtide_core::epoch::{Host as _, Limits};
use memtide_core::policy::{
    Action, Delivery, Event, Frame, Group, GroupOrder, Migration, Move, Page, Plan, Reason, Rule, Sensors,
    Spill, View, Wake, Within,
};
use memtide_core::{NodeId, PageSize, TaskId, Time, Vpn};
use proptest::prelude::*;

use super::{EPOCH, FAST, REGIONS, Run, TASK};

const OTHER: TaskId = TaskId(2);

/// The first of 512 base pages that can be collapsed.
const COLLAPSIBLE: u64 = 1024;

/// Node 0 has less memory than all pages need; node 2 has no pages at first.
const NODE_PAGES: [u64; 3] = [1600, 1200, 600];

/// Random plans, one per epoch.
struct Drawn(VecDeque<Vec<Action>>);

impl Migration for Drawn {
    fn sensors(&self) -> Sensors {
        Sensors::new(Delivery::Deployable, EPOCH).require(REGIONS)
    }

    fn on_event(&mut self, _: &Event, _: &View, _: &mut Plan) {}

    fn decide(&mut self, _: &View, plan: &mut Plan) -> Wake {
        for action in self.0.pop_front().unwrap_or_default() {
            plan.push(action, Reason::Request);
        }
        Wake::After(EPOCH)
    }
}

/// What happens between two epochs.
#[derive(Clone, Debug)]
enum Step {
    Map(TaskId, Vpn, NodeId),
    Unmap(TaskId, Vpn),
    End(TaskId),
    Unplug(NodeId),
    /// Actions take this many tenths of an epoch from now on.
    ActionTime(u64),
}

fn tasks() -> impl Strategy<Value = TaskId> {
    prop_oneof![Just(TASK), Just(OTHER)]
}

fn nodes() -> impl Strategy<Value = NodeId> {
    (0u8..3).prop_map(NodeId)
}

/// Base pages, the huge one and its inside, and pages that can be collapsed.
fn heads() -> impl Strategy<Value = (Vpn, PageSize)> {
    prop_oneof![
        4 => (0u64..8).prop_map(|page| (Vpn(page), PageSize::Base)),
        2 => Just((Vpn(512), PageSize::Huge)),
        1 => (512u64..516).prop_map(|page| (Vpn(page), PageSize::Base)),
        1 => Just((Vpn(COLLAPSIBLE), PageSize::Huge)),
        1 => (COLLAPSIBLE..COLLAPSIBLE + 4).prop_map(|page| (Vpn(page), PageSize::Base)),
    ]
}

/// A move whose `from` may be wrong, with or without a wish.
fn moves() -> impl Strategy<Value = Move> {
    (tasks(), heads(), nodes(), nodes(), prop::option::of(0u16..3)).prop_map(
        |(task, (page, size), from, to, bank)| Move {
            task,
            page,
            size,
            from,
            to,
            wish: Frame { colour: None, bank },
        },
    )
}

fn actions() -> impl Strategy<Value = Action> {
    let page = || (tasks(), heads()).prop_map(|(task, (page, size))| Page { task, page, size });
    let huge = || (tasks(), prop_oneof![Just(512), Just(COLLAPSIBLE)]);
    let huge = move || huge().prop_map(|(task, page)| Page { task, page: Vpn(page), size: PageSize::Huge });
    let rule = || Rule {
        groups: vec![Group { nodes: vec![FAST], weight: 1 }],
        order: GroupOrder::Cycle,
        within: Within::Nearest,
        spill: Spill::Nearest,
    };
    prop_oneof![
        6 => moves().prop_map(Action::Move),
        4 => (moves(), moves()).prop_map(|(a, b)| {
            let (a, b) = (Move { to: b.from, ..a }, Move { to: a.from, ..b });
            Action::Exchange(Box::new([a, b]))
        }),
        2 => huge().prop_map(Action::Split),
        2 => huge().prop_map(Action::Collapse),
        1 => tasks().prop_map(Action::Freeze),
        1 => tasks().prop_map(Action::Thaw),
        1 => tasks().prop_map(move |task| Action::SetRule(task, Box::new(rule()))),
        1 => page().prop_map(Action::Pin),
        1 => page().prop_map(Action::Unpin),
        1 => (tasks(), 0u16..20).prop_map(|(task, ways)| Action::CacheQuota(task, NonZeroU16::new(ways))),
    ]
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (tasks(), 0u64..8, nodes()).prop_map(|(task, page, node)| Step::Map(task, Vpn(page), node)),
        4 => (tasks(), heads()).prop_map(|(task, (page, _))| Step::Unmap(task, page)),
        1 => tasks().prop_map(Step::End),
        1 => nodes().prop_map(Step::Unplug),
        4 => (0u64..15).prop_map(Step::ActionTime),
    ]
}

/// A run that counts actual moves, per base page.
struct Counted {
    run: Run,
    moved: BTreeMap<(NodeId, NodeId), u64>,
}

impl Counted {
    fn new(plans: Vec<Vec<Action>>) -> Counted {
        let mut run = Run::new(Drawn(plans.into()), &NODE_PAGES, Limits::default());
        run.host.start_task(OTHER, "other");
        for (task, node) in [(TASK, 0), (OTHER, 1)] {
            let base = (0..8).chain(COLLAPSIBLE..COLLAPSIBLE + 512);
            base.for_each(|page| run.host.map(task, Vpn(page), PageSize::Base, NodeId(node)));
            run.host.map(task, Vpn(512), PageSize::Huge, NodeId(node));
        }
        Counted { run, moved: BTreeMap::new() }
    }

    /// The nodes of all base pages, including those inside a huge page.
    fn nodes(&mut self) -> BTreeMap<(TaskId, u64), NodeId> {
        let mut nodes = BTreeMap::new();
        for task in [TASK, OTHER] {
            for head in (0..8).chain(512..COLLAPSIBLE + 512) {
                if let Some(page) = self.run.host.page(task, Vpn(head)) {
                    let node = page.node;
                    nodes.extend((head..head + page.size.base_pages()).map(|page| ((task, page), node)));
                }
            }
        }
        nodes
    }

    fn count(&mut self, act: impl FnOnce(&mut Run)) {
        let before = self.nodes();
        act(&mut self.run);
        for (page, node) in self.nodes() {
            if before[&page] != node {
                *self.moved.entry((before[&page], node)).or_default() += 1;
            }
        }
    }

    fn step(&mut self, step: &Step) {
        let host = &mut self.run.host;
        match *step {
            Step::Map(task, page, node) => {
                let fits = host.node(node).free_pages > 0 && host.task(task).is_some();
                if fits && host.page(task, page).is_none() {
                    host.map(task, page, PageSize::Base, node);
                }
            }
            Step::Unmap(task, page) => host.unmap(task, page),
            Step::End(task) if host.task(task).is_some() => host.end_task(task),
            Step::End(_) => {}
            Step::Unplug(node) => host.unplug(node),
            Step::ActionTime(tenths) => host.action_time = Time(EPOCH.0 / 10) * tenths,
        }
    }

    /// Used pages are those of tasks and those reserved by moves; without moves in flight there are none of
    /// the latter.
    fn check_free_pages(&mut self) {
        let mut used = BTreeMap::<NodeId, u64>::new();
        self.nodes().into_values().for_each(|node| *used.entry(node).or_default() += 1);
        let mut view = View::default();
        self.run.host.observe(&mut view, &mut Vec::new());
        assert_eq!(view.check(NODE_PAGES.len()), Ok(()));
        let is_idle = self.run.runner.governor().in_flight() == 0;
        for node in &view.nodes {
            let (taken, used) = (node.pages - node.free_pages, used.remove(&node.node).unwrap_or(0));
            assert!(used == taken || (used < taken && !is_idle), "{used} pages on {node:?}");
        }
    }

    fn check_counts(&self) {
        let planned: Vec<_> = self.run.watched.planned.iter().map(|planned| planned.id).collect();
        let done: Vec<_> = self.run.watched.done.iter().map(|done| done.planned.id).collect();
        assert_eq!(done.len(), planned.len());
        assert_eq!(done.iter().collect::<BTreeSet<_>>(), planned.iter().collect::<BTreeSet<_>>());
        let record = self.run.runner.governor().recorded();
        let mut recorded = record.moved_pages.clone();
        recorded.retain(|(from, to), _| from != to);
        assert_eq!(recorded, self.moved);
        let made = self.run.watched.done.iter().filter(|done| done.outcome.is_made()).count() as u64;
        let not_made: u64 = record.refused.values().chain(record.cancelled.values()).sum();
        assert_eq!(made + not_made, planned.len() as u64);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn counts_match_completions(
        epochs in prop::collection::vec(
            (prop::collection::vec(steps(), 0..4), prop::collection::vec(actions(), 0..12)),
            1..8,
        ),
    ) {
        let plans = epochs.iter().map(|(_, plan)| plan.clone()).collect();
        let mut counted = Counted::new(plans);
        for (steps, _) in &epochs {
            for step in steps {
                counted.step(step);
                counted.check_free_pages();
            }
            counted.count(|run| run.host.advance(EPOCH));
            counted.count(|run| _ = run.runner.epoch(&mut run.host, &mut run.watched));
            counted.check_free_pages();
        }
        counted.count(|run| run.host.advance(EPOCH * 1000));
        counted.count(|run| run.runner.collect(&mut run.host, &mut run.watched));
        prop_assert_eq!(counted.run.runner.governor().in_flight(), 0);
        counted.check_free_pages();
        counted.check_counts();
    }
}

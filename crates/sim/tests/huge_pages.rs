//! Huge pages that a policy splits, and base pages that it collapses.

use crate::runs;
use crate::support;
use std::sync::{Arc, Mutex};

use memtide_core::policy::{
    Action, Completion, Delivery, Event, Frame, Migration, Move, Outcome, Page, Plan, Reason, Refusal,
    Sensors, View, Wake,
};
use memtide_core::{NodeId, PageSize, TaskId, Time, Vpn};
use memtide_sim::{Policy, Report, run};

use crate::runs::job;
use crate::support::{MachineText, doing, follow, map, mixed};

const EPOCH: Time = Time::from_us(100);
const TASK: TaskId = TaskId(0);

/// Performs an action each `every` epochs, and keeps the outcomes.
struct Script {
    every: u32,
    epoch: u32,
    actions: Vec<Action>,
    outcomes: Arc<Mutex<Vec<(Action, Outcome)>>>,
}

impl Migration for Script {
    fn sensors(&self) -> Sensors {
        Sensors::new(Delivery::Deployable, EPOCH)
    }

    fn on_event(&mut self, event: &Event, _: &View, _: &mut Plan) {
        if let Event::Completion(Completion { planned, outcome, .. }) = event {
            self.outcomes.lock().unwrap().push((planned.action.clone(), *outcome));
        }
    }

    fn decide(&mut self, _: &View, plan: &mut Plan) -> Wake {
        self.epoch += 1;
        if self.epoch.is_multiple_of(self.every) && !self.actions.is_empty() {
            plan.push(self.actions.remove(0), Reason::Uneven);
        }
        Wake::After(EPOCH)
    }
}

/// A chase through 4 MiB on node 0, in pages of this size. Base pages are all there before the first action,
/// and one is done before the next.
fn run_with(size: PageSize, actions: Vec<Action>) -> (Report, Vec<(Action, Outcome)>) {
    let outcomes = Arc::default();
    let (every, steps) = if size == PageSize::Base { (12, 160_000) } else { (1, 40_000) };
    let script = Script { every, epoch: 0, actions, outcomes: Arc::clone(&outcomes) };
    let machine = MachineText::new("")
        .last_level(64, 1)
        .tlb(16, 60)
        .socket("s0", 1)
        .node("fast", 0, "s0", 64, 100.0, 20e3)
        .node("slow", 1, "s0", 64, 100.0, 20e3)
        .machine();
    let policy = Policy::new(runs::policy(&machine, "local").placement, Some(Box::new(script)));
    let line = |step: u64| mixed(step) % (1 << 16) * 64;
    let pages = (0..1024).map(|page| follow(page * 4096));
    let chase = doing(pages.chain((0..steps).map(move |step| follow(line(step)))));
    let chase = support::alone([map(0, 4 << 20, size), chase]);
    let report = run(&machine, vec![job(chase, &[0])], policy, 1, &mut |_| true).expect("it runs");
    let outcomes = std::mem::take(&mut *outcomes.lock().unwrap());
    (report, outcomes)
}

fn page(page: u64, size: PageSize) -> Page {
    Page { task: TASK, page: Vpn(page), size }
}

fn move_to_1(page: u64, size: PageSize) -> Action {
    let (from, to, wish) = (NodeId(0), NodeId(1), Frame::ANY);
    Action::Move(Move { task: TASK, page: Vpn(page), size, from, to, wish })
}

#[test]
fn parts_of_a_split_page_move_alone_and_the_other_page_stays_whole() {
    let split = |head| Action::Split(page(head, PageSize::Huge));
    let actions = vec![
        split(0),
        move_to_1(5, PageSize::Base),
        move_to_1(0, PageSize::Huge),
        split(0),
        move_to_1(512, PageSize::Huge),
    ];
    let (report, outcomes) = run_with(PageSize::Huge, actions.clone());
    let expected = [
        Outcome::MADE,
        Outcome::MADE,
        Outcome::Refused(Refusal::Gone),
        Outcome::Refused(Refusal::Gone),
        Outcome::MADE,
    ];
    assert_eq!(outcomes, actions.into_iter().zip(expected).collect::<Vec<_>>());
    assert_eq!(report.pages.migrated, 513);
}

/// How many times as long a run in pages of this size takes if both of its 2 MiB are changed.
fn slowdown(size: PageSize, change: impl Fn(Page) -> Action) -> f64 {
    let (as_is, _) = run_with(size, Vec::new());
    let changes = [0, 512].map(|head| change(page(head, PageSize::Huge))).into();
    let (changed, outcomes) = run_with(size, changes);
    assert_eq!(outcomes.iter().filter(|(_, outcome)| *outcome == Outcome::MADE).count(), 2, "{outcomes:?}");
    assert_eq!(as_is.accesses, changed.accesses);
    changed.time_ms / as_is.time_ms
}

#[test]
fn split_pages_cost_walks_of_the_page_table() {
    // A walk of 60 cycles at 2 GHz for each of the accesses after the first two epochs, on top of 100 ns.
    let slower = slowdown(PageSize::Huge, Action::Split);
    assert!((1.2..1.3).contains(&slower), "{slower}");
}

#[test]
fn base_pages_collapse_once_all_are_on_one_node() {
    let collapse = |head| Action::Collapse(page(head, PageSize::Huge));
    let (from, to, wish, size) = (NodeId(1), NodeId(0), Frame::ANY, PageSize::Base);
    let back = Action::Move(Move { task: TASK, page: Vpn(5), size, from, to, wish });
    let actions = vec![
        move_to_1(5, PageSize::Base),
        collapse(0),
        back,
        collapse(1),
        collapse(0),
        collapse(0),
        move_to_1(5, PageSize::Base),
        move_to_1(0, PageSize::Huge),
        collapse(2048),
    ];
    let (report, outcomes) = run_with(PageSize::Base, actions.clone());
    let gone = Outcome::Refused(Refusal::Gone);
    let made = Outcome::MADE;
    let expected = [made, gone, made, gone, made, gone, gone, made, gone];
    assert_eq!(outcomes, actions.into_iter().zip(expected).collect::<Vec<_>>());
    assert_eq!(report.pages.migrated, 2 + 512, "a collapse moves nothing");
}

#[test]
fn collapsed_pages_save_walks_of_the_page_table() {
    // A walk of 60 cycles at 2 GHz for each access, on top of 100 ns, but for those of the copies' time.
    let faster = 1.0 / slowdown(PageSize::Base, Action::Collapse);
    assert!((1.1..1.3).contains(&faster), "{faster}");
}

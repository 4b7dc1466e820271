use std::num::NonZeroU16;

use super::script::{SCRIPT, Step, UNPLUG};
use super::*;
use crate::epoch::{Host as _, Limits, PolicyRunner};
use crate::ids::{CpuId, NodeId};
use crate::policy::{Action, Cancellation, Page, Planned, Refusal};

const EPOCH: Time = Time::from_ms(10);
const TASK: TaskId = TaskId(0);

fn layout() -> Layout {
    Layout::from(VirtAddr(1 << 30), 5000)
}

/// Runs a script on the fake host.
fn run(script: &'static [Phase]) -> Log {
    let (policy, log) = ConformancePolicy::new(script, layout(), EPOCH);
    let mut host = FakeHost::new(&[8192, 4096], &policy.sensors()).expect("it answers every sensor");
    host.action_time = Time::from_us(1);
    let mut runner = PolicyRunner::new(Box::new(policy), Limits::default());
    host.start_task(TASK, "script");
    for phase in script {
        for epoch in 0..EPOCHS {
            if epoch == 0 {
                phase.steps.iter().for_each(|step| carry_out(&mut host, *step));
            }
            read_hot(&mut host);
            if epoch == PLAN_AT + 1 && phase.steps.contains(&Step::EndUnderway) {
                host.end_task(TASK);
            }
            host.advance(EPOCH);
            if phase.steps.contains(&Step::EndUnderway) {
                // Nothing is made before the task ends.
                host.action_time = EPOCH * 2;
            }
            let wake = runner.epoch(&mut host, &mut ());
            assert_eq!(wake, Wake::After(EPOCH));
        }
    }
    log
}

fn carry_out(host: &mut FakeHost, step: Step) {
    let pages = |area| {
        let Placed { start, pages } = layout().of(area);
        (0..pages).map(move |at| Vpn(start.page().0 + at))
    };
    match step {
        Step::Fill(area) => pages(area).for_each(|page| host.map(TASK, page, PageSize::Base, NodeId(0))),
        Step::Unmap(area) => pages(area).for_each(|page| host.unmap(TASK, page)),
        Step::UnplugSlow => host.unplug(script::SLOW),
        Step::EndUnderway => {}
    }
}

fn read_hot(host: &mut FakeHost) {
    let Placed { start, pages } = layout().of(Area::Hot);
    for at in 0..pages {
        if let Some(page) = host.page(TASK, Vpn(start.page().0 + at)) {
            page.reads += 1;
            host.hint_fault(TASK, Vpn(start.page().0 + at), CpuId(0));
        }
    }
}

#[test]
fn fake_host_conforms() {
    run(SCRIPT).check(SCRIPT, &layout()).unwrap_or_else(|wrong| panic!("{wrong}"));
    run(UNPLUG).check(UNPLUG, &layout()).unwrap_or_else(|wrong| panic!("{wrong}"));
}

#[test]
fn log_of_another_script_does_not_conform() {
    let wrong = run(UNPLUG).check(SCRIPT, &layout()).expect_err("phases are missing");
    for missing in ["hint faults tell", "moves are made", "a task that ends"] {
        assert!(wrong.contains(missing), "{wrong}");
    }
}

#[test]
fn fake_host_keeps_its_tables_after_every_script() {
    let (policy, _) = ConformancePolicy::new(SCRIPT, layout(), EPOCH);
    let mut host = FakeHost::new(&[64, 32], &policy.sensors()).expect("it answers every sensor");
    host.start_task(TASK, "one");
    host.map(TASK, Vpn(8), PageSize::Base, NodeId(0));
    host.end_task(TASK);
    let mut view = View::default();
    host.observe(&mut view, &mut Vec::new());
    assert_eq!(view.nodes.iter().map(|node| node.free_pages).collect::<Vec<_>>(), [64, 32]);
    assert_eq!(view.check(2), Ok(()));
}

/// A host without requested sensors, with [`TASK`] started and some base pages on node 0.
fn host(node_pages: &[u64], pages: std::ops::Range<u64>) -> FakeHost {
    let mut host =
        FakeHost::new(node_pages, &Sensors::new(Delivery::Deployable, EPOCH)).expect("it asks nothing");
    host.start_task(TASK, "one");
    pages.for_each(|page| host.map(TASK, Vpn(page), PageSize::Base, NodeId(0)));
    host
}

fn to(page: u64, from: u8, to: u8) -> Move {
    let (page, size, wish) = (Vpn(page), PageSize::Base, Frame::ANY);
    Move { task: TASK, page, size, from: NodeId(from), to: NodeId(to), wish }
}

fn planned(actions: impl IntoIterator<Item = Action>) -> Vec<Planned> {
    let mut plan = Plan::default();
    actions.into_iter().for_each(|action| _ = plan.push(action, Reason::Hot));
    plan.actions().to_vec()
}

/// The immediate outcome of an action.
fn outcome(host: &mut FakeHost, action: Action) -> Outcome {
    host.act(&planned([action]));
    completions(host)[0].outcome
}

fn completions(host: &mut FakeHost) -> Vec<Completion> {
    let mut done = Vec::new();
    host.completions(&mut done);
    done
}

#[test]
fn fake_host_fills_requested_sensors_only() {
    let mut host = host(&[64, 32], 0..1);
    host.hint_fault(TASK, Vpn(0), CpuId(0));
    host.node(NodeId(0)).loaded_latency = Some(EPOCH);
    let (mut view, mut events) = (View::default(), Vec::new());
    host.observe(&mut view, &mut events);
    assert_eq!((events.len(), view.threads.len(), view.regions.len()), (0, 0, 0));
    assert_eq!((view.nodes[0].watermarks, view.nodes[0].loaded_latency), (None, None));
}

#[test]
fn every_action_of_a_task_that_ends_is_cancelled() {
    let mut host = host(&[64, 32], 0..2);
    host.action_time = EPOCH;
    host.act(&planned([Action::Freeze(TASK), Action::Move(to(0, 0, 1)), Action::Thaw(TASK)]));
    host.end_task(TASK);
    let outcomes: Vec<Outcome> = completions(&mut host).iter().map(|done| done.outcome).collect();
    assert_eq!(outcomes, [Outcome::Cancelled(Cancellation::TaskEnded); 3]);
    assert_eq!([0, 1].map(|node| host.node(NodeId(node)).free_pages), [64, 32]);
}

#[test]
fn unplugged_node_cancels_moves_to_it() {
    let mut host = host(&[64, 32], 0..1);
    host.action_time = EPOCH;
    host.act(&planned([Action::Move(to(0, 0, 1))]));
    host.unplug(NodeId(1));
    assert_eq!(completions(&mut host)[0].outcome, Outcome::Cancelled(Cancellation::NodeOffline));
    assert_eq!((host.node(NodeId(1)).pages, host.node(NodeId(1)).free_pages), (0, 0));
}

#[test]
fn remapped_page_ignores_move_of_old_one() {
    let mut host = host(&[64, 32, 32], 0..1);
    host.action_time = EPOCH;
    host.act(&planned([Action::Move(to(0, 0, 1))]));
    host.unmap(TASK, Vpn(0));
    host.map(TASK, Vpn(0), PageSize::Base, NodeId(2));
    host.advance(EPOCH * 2);
    assert_eq!(completions(&mut host)[0].outcome, Outcome::Cancelled(Cancellation::Unmapped));
    assert_eq!([0, 1, 2].map(|node| host.node(NodeId(node)).free_pages), [64, 32, 31]);
}

#[test]
fn completion_of_move_has_actual_source_node() {
    let mut host = host(&[64, 32, 32], 0..1);
    host.act(&planned([Action::Move(to(0, 1, 2))]));
    assert_eq!(completions(&mut host)[0].planned.action.moves(), [to(0, 0, 2)]);
}

#[test]
fn exchange_needs_pages_of_one_size_that_are_where_each_other_goes() {
    let mut host = host(&[64, 2048, 32], 0..1);
    host.map(TASK, Vpn(1), PageSize::Base, NodeId(1));
    host.map(TASK, Vpn(512), PageSize::Huge, NodeId(1));
    let exchange = |a, b| Action::Exchange(Box::new([a, b]));
    let huge = Move { size: PageSize::Huge, ..to(512, 1, 0) };
    let unsupported = Outcome::Refused(Refusal::Unsupported);
    assert_eq!(outcome(&mut host, exchange(to(0, 0, 1), huge)), unsupported);
    let gone = Outcome::Refused(Refusal::Gone);
    assert_eq!(outcome(&mut host, exchange(to(0, 2, 1), to(1, 1, 2))), gone);
    assert_eq!(outcome(&mut host, exchange(to(0, 0, 1), to(1, 1, 0))), Outcome::MADE);
}

#[test]
fn collapse_needs_all_pages_on_one_node_and_no_free_memory() {
    let mut host = host(&[512, 32], 0..512);
    let huge = Page { task: TASK, page: Vpn(0), size: PageSize::Huge };
    host.act(&planned([Action::Move(to(7, 0, 1))]));
    completions(&mut host);
    assert_eq!(outcome(&mut host, Action::Collapse(huge)), Outcome::Refused(Refusal::Gone));
    host.act(&planned([Action::Move(to(7, 1, 0))]));
    completions(&mut host);
    assert_eq!(outcome(&mut host, Action::Collapse(huge)), Outcome::MADE);
    assert_eq!([0, 1].map(|node| host.node(NodeId(node)).free_pages), [0, 32]);
}

#[test]
fn wish_is_fulfilled_unless_its_frames_are_taken() {
    let mut host = host(&[64, 32], 0..1);
    let wish = |colour, bank| Frame { colour, bank };
    let wished = |from, node, wish| Action::Move(Move { wish, ..to(0, from, node) });
    host.take_frames(NodeId(1), wish(Some(2), Some(4)));
    host.take_frames(NodeId(1), wish(Some(3), None));
    let cases = [(2, 3, 3), (2, 4, 5)];
    for (colour, bank, got) in cases {
        let outcome = outcome(&mut host, wished(1, 1, wish(Some(colour), Some(bank))));
        assert_eq!(outcome, Outcome::Made(wish(Some(colour), Some(got))));
    }
    let satisfied = wished(1, 1, wish(None, Some(5)));
    assert_eq!(outcome(&mut host, satisfied), Outcome::Refused(Refusal::AlreadyThere));
    let by_colour = wished(1, 1, wish(Some(3), None));
    assert_eq!(outcome(&mut host, by_colour), Outcome::Made(wish(Some(4), None)));
    assert_eq!([0, 1].map(|node| host.node(NodeId(node)).free_pages), [64, 31]);
}

#[test]
fn cache_quotas_never_exceed_the_associativity() {
    let mut host = host(&[64, 32], 0..1);
    let other = TaskId(1);
    host.start_task(other, "other");
    let quota = |task, ways| Action::CacheQuota(task, NonZeroU16::new(ways));
    assert_eq!(outcome(&mut host, quota(TASK, 12)), Outcome::MADE);
    assert_eq!(outcome(&mut host, quota(other, 5)), Outcome::Refused(Refusal::NoRoom));
    assert_eq!(outcome(&mut host, quota(TASK, 11)), Outcome::MADE);
    assert_eq!(outcome(&mut host, quota(other, 5)), Outcome::MADE);
    assert_eq!(outcome(&mut host, quota(TASK, 0)), Outcome::MADE, "none");
    assert_eq!(outcome(&mut host, quota(TaskId(7), 1)), Outcome::Refused(Refusal::Gone));
    let quotas = [TASK, other].map(|task| host.task(task).expect("started").cache_quota);
    assert_eq!(quotas, [None, NonZeroU16::new(5)]);
}

#[test]
fn quotas_underway_are_refused_at_their_turn_once_others_have_the_ways() {
    let mut host = host(&[64, 32], 0..1);
    host.start_task(TaskId(1), "other");
    host.action_time = EPOCH;
    let quotas = [TASK, TaskId(1)].map(|task| Action::CacheQuota(task, NonZeroU16::new(9)));
    host.act(&planned(quotas));
    host.advance(EPOCH * 2);
    let outcomes: Vec<Outcome> = completions(&mut host).iter().map(|done| done.outcome).collect();
    assert_eq!(outcomes, [Outcome::MADE, Outcome::Refused(Refusal::NoRoom)]);
}

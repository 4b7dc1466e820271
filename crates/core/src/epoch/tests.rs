use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::ids::{ActionId, CpuId, NodeId, TaskId, ThreadId};
use crate::policy::{
    Action, Completion, Delivery, Frame, HintFault, Migration, Move, NodeView, Outcome, Page, Plan, Planned,
    Reason, Refusal, Sensor, Sensors, TaskView, Wake,
};
use crate::units::{PAGE_BYTES, PageSize, Time, Vpn};

const EPOCH: Time = Time::from_ms(100);

/// Outcomes delivered to a policy, shared with its test.
type Outcomes = std::sync::Arc<std::sync::Mutex<Vec<Outcome>>>;

/// Wants every faulting page on node 1, and records the outcomes.
#[derive(Default)]
struct Pull {
    outcomes: Outcomes,
}

impl Migration for Pull {
    fn sensors(&self) -> Sensors {
        Sensors::new(Delivery::Deployable, EPOCH).require(Sensor::HintFaults)
    }

    fn on_event(&mut self, event: &Event, _: &View, plan: &mut Plan) {
        match event {
            Event::HintFault(HintFault { task, page, size, node, .. }) => {
                let (from, to) = (*node, NodeId(1));
                let wanted = Move { task: *task, page: *page, size: *size, from, to, wish: Frame::ANY };
                plan.push_move(wanted, Reason::Locality);
            }
            Event::Completion(done) => self.outcomes.lock().expect("one thread").push(done.outcome),
            _ => {}
        }
    }

    fn decide(&mut self, _: &View, _: &mut Plan) -> Wake {
        Wake::After(EPOCH)
    }
}

/// Returns prepared events once, and refuses pages above 1000.
struct Bench {
    now: Time,
    events: Vec<Event>,
    moved: Vec<Vpn>,
    done: Vec<Completion>,
}

impl Host for Bench {
    fn now(&self) -> Time {
        self.now
    }

    fn observe(&mut self, _: &mut View, events: &mut Vec<Event>) {
        events.append(&mut self.events);
    }

    fn act(&mut self, actions: &[Planned]) {
        for planned in actions {
            let [wanted] = planned.action.moves() else { panic!("{planned:?} is no move") };
            let fits = wanted.page.0 <= 1000;
            let outcome = if fits { Outcome::MADE } else { Outcome::Refused(Refusal::NoRoom) };
            self.moved.extend(fits.then_some(wanted.page));
            self.done.push(Completion { time: self.now, planned: planned.clone(), outcome });
        }
    }

    fn completions(&mut self, done: &mut Vec<Completion>) {
        done.append(&mut self.done);
    }
}

fn fault(ms: u64, page: u64, node: u8, size: PageSize) -> Event {
    Event::HintFault(HintFault {
        time: Time::from_ms(ms),
        task: TaskId(0),
        thread: ThreadId(0),
        cpu: CpuId(0),
        page: Vpn(page),
        size,
        node: NodeId(node),
        write: false,
        pass: 0,
        idle: None,
    })
}

fn base(pages: impl IntoIterator<Item = u64>) -> Vec<Event> {
    pages.into_iter().map(|page| fault(1, page, 0, PageSize::Base)).collect()
}

fn bench(events: Vec<Event>) -> Bench {
    Bench { now: Time::from_ms(100), events, moved: Vec::new(), done: Vec::new() }
}

fn runner(limits: Limits) -> (PolicyRunner, Outcomes) {
    let policy = Pull::default();
    let outcomes = Outcomes::clone(&policy.outcomes);
    (PolicyRunner::new(Box::new(policy), limits), outcomes)
}

fn refusals(runner: &PolicyRunner) -> Vec<(Refusal, u64)> {
    runner.governor().recorded().refused.iter().map(|(&r, &n)| (r, n)).collect()
}

fn moved_pages(runner: &PolicyRunner) -> u64 {
    runner.governor().recorded().moved_pages.get(&(NodeId(0), NodeId(1))).copied().unwrap_or(0)
}

#[test]
fn planned_actions_are_made_recorded_and_completed() {
    let (mut host, (mut runner, outcomes)) = (bench(base([3, 2000])), runner(Limits::default()));
    runner.epoch(&mut host, &mut ());
    assert_eq!(host.moved, [Vpn(3)]);
    assert_eq!(refusals(&runner), [(Refusal::NoRoom, 1)]);
    assert_eq!(moved_pages(&runner), 1);
    assert!(outcomes.lock().unwrap().is_empty());
    runner.epoch(&mut host, &mut ());
    assert_eq!(*outcomes.lock().unwrap(), [Outcome::MADE, Outcome::Refused(Refusal::NoRoom)]);
    runner.epoch(&mut host, &mut ());
    assert_eq!(outcomes.lock().unwrap().len(), 2);
}

#[test]
fn duplicate_or_already_placed_page_does_not_move() {
    let events = vec![
        fault(1, 512, 0, PageSize::Huge),
        fault(2, 700, 0, PageSize::Huge),
        fault(3, 5, 1, PageSize::Base),
    ];
    let (mut host, (mut runner, _)) = (bench(events), runner(Limits::default()));
    runner.epoch(&mut host, &mut ());
    assert_eq!(host.moved, [Vpn(512)]);
    assert_eq!(refusals(&runner), [(Refusal::Duplicate, 1), (Refusal::AlreadyThere, 1)]);
    assert_eq!(moved_pages(&runner), 512);
}

#[test]
fn epoch_respects_move_cap() {
    let limits = Limits { moves_per_epoch: Some(2), ..Limits::default() };
    let (mut host, (mut runner, _)) = (bench(base(0..5)), runner(limits));
    runner.epoch(&mut host, &mut ());
    assert_eq!((host.moved.len(), refusals(&runner)), (2, vec![(Refusal::OverCap, 3)]));
    host.events = base(0..1);
    runner.epoch(&mut host, &mut ());
    assert_eq!(host.moved.len(), 3);
}

#[test]
fn new_limits_apply_at_once_and_history_stays() {
    let (mut host, (mut runner, _)) = (bench(base(0..5)), runner(Limits::default()));
    runner.epoch(&mut host, &mut ());
    assert_eq!(host.moved.len(), 5);
    let rate = Limits { bytes_per_second: Some(20 * PAGE_BYTES), ..Limits::default() };
    runner.set_limits(rate);
    host.events = base(10..30);
    host.now += Time::from_ms(50);
    runner.epoch(&mut host, &mut ());
    assert_eq!((host.moved.len(), refusals(&runner)), (6, vec![(Refusal::RateLimited, 19)]));
    runner.set_limits(Limits::default());
    host.events = base(40..50);
    runner.epoch(&mut host, &mut ());
    assert_eq!(moved_pages(&runner), 16);
}

#[test]
fn bytes_per_second_stay_within_rate() {
    let pages_per_second = 100;
    let limits = Limits { bytes_per_second: Some(pages_per_second * PAGE_BYTES), ..Limits::default() };
    let (mut host, (mut runner, _)) = (bench(Vec::new()), runner(limits));
    for epoch in 0..50 {
        host.now = Time::from_ms(100 * epoch);
        host.events = base(0..30);
        runner.epoch(&mut host, &mut ());
    }
    assert_eq!(host.moved.len(), 500, "10 an epoch of a tenth of a second");
    assert_eq!(refusals(&runner), [(Refusal::RateLimited, 1000)]);
}

#[test]
fn page_above_credit_moves_and_later_ones_wait() {
    let limits = Limits { bytes_per_second: Some(1 << 20), ..Limits::default() };
    let (mut host, (mut runner, _)) = (bench(Vec::new()), runner(limits));
    for epoch in 0..100 {
        host.now = Time::from_ms(100 * epoch);
        host.events = vec![fault(1, 512, 0, PageSize::Huge)];
        runner.epoch(&mut host, &mut ());
    }
    assert_eq!(host.moved.len(), 5, "a 2 MiB page each two seconds of ten");
}

#[test]
fn refused_move_returns_its_allowance() {
    let limits = Limits { bytes_per_second: Some(10 * PAGE_BYTES), ..Limits::default() };
    let (mut host, (mut runner, _)) = (bench(Vec::new()), runner(limits));
    for epoch in 0..100 {
        host.now = Time::from_ms(100 * epoch);
        host.events = base([if epoch % 2 == 0 { 2000 } else { 3 }]);
        runner.epoch(&mut host, &mut ());
    }
    assert_eq!(host.moved.len(), 50);
}

#[test]
fn in_kernel_move_completes_at_once_and_may_repeat() {
    let (mut host, (mut runner, outcomes)) = (bench(Vec::new()), runner(Limits::default()));
    for _ in 0..2 {
        runner.deliver(&mut host, &fault(1, 3, 0, PageSize::Base));
    }
    assert_eq!(host.moved, [Vpn(3), Vpn(3)]);
    assert_eq!(*outcomes.lock().unwrap(), [Outcome::MADE]);
}

#[test]
fn user_request_passes_the_governor_and_answers_the_user_alone() {
    let limits =
        Limits { bytes_per_second: Some(10 * 10 * PAGE_BYTES), cooldown: EPOCH, ..Limits::default() };
    let (mut host, (mut runner, outcomes)) = (bench(Vec::new()), runner(limits));
    let wanted = |page, to: u8| Move {
        task: TaskId(0),
        page: Vpn(page),
        size: PageSize::Base,
        from: NodeId(1 - to),
        to: NodeId(to),
        wish: Frame::ANY,
    };
    let moves: Vec<Move> = (0..12).map(|page| wanted(page, 1)).collect();
    assert_eq!(runner.request(&mut host, &mut (), &moves), ActionId(0)..ActionId(12));
    let answered: Vec<Outcome> = runner.take_answered().iter().map(|done| done.outcome).collect();
    let (made, limited) = (Outcome::MADE, Outcome::Refused(Refusal::RateLimited));
    assert_eq!(answered, [[made; 10].as_slice(), &[limited; 2]].concat(), "10 pages of credit");
    host.now += EPOCH;
    runner.request(&mut host, &mut (), &[wanted(0, 0)]);
    assert_eq!(runner.take_answered()[0].outcome, Outcome::MADE, "a user does not wait for a cooldown");
    host.events = base([0]);
    runner.epoch(&mut host, &mut ());
    runner.epoch(&mut host, &mut ());
    assert_eq!(*outcomes.lock().unwrap(), [Outcome::Refused(Refusal::Cooling)], "but the policy does");
}

fn page_3_to_node_1() -> Move {
    let (task, page, size, wish) = (TaskId(0), Vpn(3), PageSize::Base, Frame::ANY);
    Move { task, page, size, from: NodeId(0), to: NodeId(1), wish }
}

#[test]
fn pinned_page_stays_until_it_is_unpinned() {
    let page = Page { task: TaskId(0), page: Vpn(3), size: PageSize::Base };
    let (mut host, mut governor) = (bench(Vec::new()), Governor::new(Limits::default(), EPOCH));
    let wanted = page_3_to_node_1();
    let actions = [Action::Pin(page), Action::Move(wanted), Action::Unpin(page), Action::Move(wanted)];
    let mut plan = Plan::new(ActionId(0));
    actions.into_iter().for_each(|action| _ = plan.push(action, Reason::Request));
    governor.start_plan();
    let admitted: Vec<bool> =
        plan.actions().iter().map(|planned| governor.admit(host.now, planned)).collect();
    assert_eq!(admitted, [false, false, false, true]);
    let done: Vec<Outcome> = governor.take_refused().iter().map(|done| done.outcome).collect();
    assert_eq!(done, [Outcome::MADE, Outcome::Refused(Refusal::Pinned), Outcome::MADE]);
    host.act(&plan.actions()[3..]);
    let mut completions = Vec::new();
    host.completions(&mut completions);
    governor.complete(&completions[0]);
    assert_eq!(governor.in_flight(), 0);
}

#[test]
fn pin_ends_with_its_task() {
    let page = Page { task: TaskId(0), page: Vpn(3), size: PageSize::Base };
    let mut governor = Governor::new(Limits::default(), EPOCH);
    let mut plan = Plan::new(ActionId(0));
    plan.push(Action::Pin(page), Reason::Request);
    (0..2).for_each(|_| _ = plan.push(Action::Move(page_3_to_node_1()), Reason::Hot));
    let (name, footprint) = (String::new(), Vec::new());
    let (owner, priority, page_faults, rule) = (None, None, None, None);
    let task = TaskId(0);
    let task = TaskView { task, name, owner, priority, resident_pages: 1, page_faults, footprint, rule };
    let mut admits = |at: usize, tasks: Vec<TaskView>| {
        governor.unpin_tasks_not_in(&View { tasks, ..View::default() });
        governor.start_plan();
        governor.admit(Time::ZERO, &plan.actions()[at])
    };
    assert_eq!([admits(0, vec![task.clone()]), admits(1, vec![task])], [false, false]);
    assert!(admits(2, Vec::new()), "the page may belong to another task of the same id");
}

#[test]
fn move_within_a_node_needs_a_wish_and_an_exchange_two_pages() {
    let mut governor = Governor::new(Limits::default(), EPOCH);
    let (task, page, size) = (TaskId(0), Vpn(3), PageSize::Base);
    let wanted = |from, to, wish| Move { task, page, size, from: NodeId(from), to: NodeId(to), wish };
    let bank = Frame { colour: None, bank: Some(1) };
    let mut plan = Plan::new(ActionId(0));
    plan.push_move(wanted(0, 0, Frame::ANY), Reason::Hot);
    let pair = [wanted(0, 1, Frame::ANY), wanted(1, 0, Frame::ANY)];
    plan.push(Action::Exchange(Box::new(pair)), Reason::Hot);
    plan.push_move(wanted(0, 0, bank), Reason::Hot);
    let admitted = plan.actions().iter().map(|planned| governor.admit(Time::ZERO, planned));
    assert_eq!(admitted.collect::<Vec<_>>(), [false, false, true]);
    let refused = [(Refusal::Duplicate, 1), (Refusal::AlreadyThere, 1)];
    assert_eq!(governor.recorded().refused, refused.into());
}

#[test]
#[should_panic(expected = "was not in flight")]
fn second_completion_of_an_action_panics() {
    let mut governor = Governor::new(Limits::default(), EPOCH);
    let wanted = page_3_to_node_1();
    let planned = Planned { id: ActionId(7), action: Action::Move(wanted), reason: Reason::Hot };
    assert!(governor.admit(Time::ZERO, &planned));
    let done = Completion { time: Time::ZERO, planned, outcome: Outcome::MADE };
    governor.complete(&done);
    governor.complete(&done);
}

/// Asks to decide once free memory is short.
struct Kswapd;

impl Migration for Kswapd {
    fn sensors(&self) -> Sensors {
        Sensors::new(Delivery::InKernel, Time::NEVER).require(Sensor::SlowTierFaults)
    }

    fn on_event(&mut self, _: &Event, view: &View, plan: &mut Plan) {
        if view.nodes[0].free_pages < 10 {
            plan.decide_now();
        }
    }

    fn decide(&mut self, _: &View, _: &mut Plan) -> Wake {
        Wake::Never
    }
}

#[test]
fn event_in_the_kernel_has_free_memory_of_now_and_may_ask_for_a_decision() {
    struct Refreshing(Bench, u64);
    impl Host for Refreshing {
        fn now(&self) -> Time {
            self.0.now()
        }
        fn observe(&mut self, view: &mut View, events: &mut Vec<Event>) {
            self.0.observe(view, events);
        }
        fn refresh(&mut self, view: &mut View) {
            view.nodes = vec![NodeView::new(NodeId(0), 100, self.1)];
        }
        fn act(&mut self, actions: &[Planned]) {
            self.0.act(actions);
        }
        fn completions(&mut self, done: &mut Vec<Completion>) {
            self.0.completions(done);
        }
    }
    let bench = Bench { now: Time::ZERO, events: Vec::new(), moved: Vec::new(), done: Vec::new() };
    let mut host = Refreshing(bench, 10);
    let mut runner = PolicyRunner::new(Box::new(Kswapd), Limits::default());
    assert!(!runner.deliver(&mut host, &fault(1, 3, 0, PageSize::Base)));
    host.1 = 9;
    assert!(runner.deliver(&mut host, &fault(2, 3, 0, PageSize::Base)));
}

#[test]
fn credit_of_a_policy_without_an_epoch_accumulates_over_a_tenth_of_a_second() {
    let limits = Limits { bytes_per_second: Some(1_000_000), ..Limits::default() };
    let governor = Governor::new(limits, Time::NEVER);
    assert_eq!(governor.allowance_bytes(Time::from_ms(60_000)), Some(100_000));
}

/// Takes 7 ms of processor time in each decision.
struct Busy(Arc<AtomicU64>);

impl Migration for Busy {
    fn sensors(&self) -> Sensors {
        Sensors::new(Delivery::Deployable, EPOCH)
    }

    fn on_event(&mut self, _: &Event, _: &View, _: &mut Plan) {}

    fn decide(&mut self, _: &View, _: &mut Plan) -> Wake {
        self.0.fetch_add(7, Ordering::Relaxed);
        Wake::After(EPOCH)
    }
}

#[test]
fn view_has_the_processor_time_of_the_last_decision_and_of_its_actions() {
    struct Timed(Bench, Arc<AtomicU64>);
    impl Host for Timed {
        fn now(&self) -> Time {
            self.0.now()
        }
        fn processor_time(&self) -> Option<Time> {
            Some(Time::from_ms(self.1.load(Ordering::Relaxed)))
        }
        fn observe(&mut self, view: &mut View, events: &mut Vec<Event>) {
            self.1.fetch_add(100, Ordering::Relaxed);
            self.0.observe(view, events);
        }
        fn act(&mut self, actions: &[Planned]) {
            self.1.fetch_add(3, Ordering::Relaxed);
            self.0.act(actions);
        }
        fn completions(&mut self, done: &mut Vec<Completion>) {
            self.0.completions(done);
        }
    }
    let clock = Arc::new(AtomicU64::new(0));
    let bench = Bench { now: Time::ZERO, events: Vec::new(), moved: Vec::new(), done: Vec::new() };
    let mut host = Timed(bench, Arc::clone(&clock));
    let mut runner = PolicyRunner::new(Box::new(Busy(Arc::clone(&clock))), Limits::default());
    let mut times = || {
        runner.epoch(&mut host, &mut ());
        (runner.view().decision_time, runner.view().action_time)
    };
    let taken = (Some(Time::from_ms(7)), Some(Time::from_ms(3)));
    assert_eq!([times(), times(), times()], [(None, None), taken, taken]);
    runner.set_policy(Box::new(Busy(clock)));
    runner.epoch(&mut host, &mut ());
    assert_eq!(runner.view().decision_time, None, "of another policy");
}

use super::*;
use crate::ids::{CpuId, NodeId, TaskId, ThreadId};
use crate::policy::{Delivery, HintFault, Reason};
use crate::units::{PAGE_BYTES, PageSize, Vpn};

/// Wants every faulting page on node 1, and remembers what it was told.
#[derive(Default)]
struct Pull {
    slices: Vec<usize>,
    outcomes: Vec<Result<(), Refusal>>,
}

impl Migration for Pull {
    fn needs(&self) -> Needs {
        Needs { hint_faults: true, regions: None, delivery: Delivery::Deployable, epoch: Time::from_ms(100) }
    }

    fn on_events(&mut self, events: &[Event], plan: &mut Plan) {
        self.slices.push(events.len());
        for event in events {
            match event {
                Event::HintFault(fault) => plan.moves.push(Move {
                    task: fault.task,
                    page: fault.page,
                    size: fault.size,
                    from: fault.node,
                    to: NodeId(1),
                    reason: Reason::Locality,
                }),
                Event::Outcome(outcome) => self.outcomes.push(outcome.result),
            }
        }
    }

    fn decide(&mut self, _: &Observation, _: &mut Plan) {}
}

/// Gives prepared events once, and refuses pages above 1000.
struct Bench {
    now: Time,
    events: Vec<Event>,
    moved: Vec<Vpn>,
}

impl Host for Bench {
    fn now(&self) -> Time {
        self.now
    }

    fn observe(&mut self, _: &Needs, events: &mut Vec<Event>, _: &mut Observation) {
        events.append(&mut self.events);
    }

    fn act(&mut self, wanted: &[Move]) -> Vec<Result<(), Refusal>> {
        let fits = |wanted: &Move| if wanted.page.0 > 1000 { Err(Refusal::NoRoom) } else { Ok(()) };
        self.moved.extend(wanted.iter().filter(|&wanted| fits(wanted).is_ok()).map(|wanted| wanted.page));
        wanted.iter().map(fits).collect()
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
    })
}

fn base(pages: impl IntoIterator<Item = u64>) -> Vec<Event> {
    pages.into_iter().map(|page| fault(1, page, 0, PageSize::Base)).collect()
}

fn bench(events: Vec<Event>) -> Bench {
    Bench { now: Time::from_ms(100), events, moved: Vec::new() }
}

fn governor(limits: Limits) -> Governor {
    Governor::new(limits, Time::from_ms(100))
}

fn refusals(governor: &Governor) -> Vec<(Refusal, u64)> {
    governor.recorded().refused.iter().map(|(&r, &n)| (r, n)).collect()
}

#[test]
fn what_is_planned_is_done_recorded_and_told_to_the_policy() {
    let (mut host, mut policy, mut governor) =
        (bench(base([3, 2000])), Pull::default(), governor(Limits::default()));
    step(&mut host, &mut policy, &mut governor, &mut ());
    assert_eq!(host.moved, [Vpn(3)]);
    assert_eq!(refusals(&governor), [(Refusal::NoRoom, 1)]);
    assert_eq!(governor.recorded().moved_pages[&(NodeId(0), NodeId(1))], 1);
    assert!(policy.outcomes.is_empty());
    step(&mut host, &mut policy, &mut governor, &mut ());
    assert_eq!(policy.outcomes, [Ok(()), Err(Refusal::NoRoom)]);
    step(&mut host, &mut policy, &mut governor, &mut ());
    assert_eq!(policy.outcomes.len(), 2);
}

#[test]
fn a_page_named_twice_or_already_there_does_not_move() {
    let events = vec![
        fault(1, 512, 0, PageSize::Huge),
        fault(2, 700, 0, PageSize::Huge),
        fault(3, 5, 1, PageSize::Base),
    ];
    let (mut host, mut policy, mut governor) = (bench(events), Pull::default(), governor(Limits::default()));
    step(&mut host, &mut policy, &mut governor, &mut ());
    assert_eq!(host.moved, [Vpn(512)]);
    assert_eq!(refusals(&governor), [(Refusal::Duplicate, 1), (Refusal::AlreadyThere, 1)]);
    assert_eq!(governor.recorded().moved_pages[&(NodeId(0), NodeId(1))], 512);
}

#[test]
fn an_epoch_has_no_more_moves_than_its_cap() {
    let limits = Limits { moves_per_epoch: Some(2), ..Limits::default() };
    let (mut host, mut policy, mut governor) = (bench(base(0..5)), Pull::default(), governor(limits));
    step(&mut host, &mut policy, &mut governor, &mut ());
    assert_eq!((host.moved.len(), refusals(&governor)), (2, vec![(Refusal::OverCap, 3)]));
    host.events = base(0..1);
    step(&mut host, &mut policy, &mut governor, &mut ());
    assert_eq!(host.moved.len(), 3);
}

#[test]
fn other_limits_hold_at_once_and_what_was_recorded_stays() {
    let (mut host, mut policy, mut governor) =
        (bench(base(0..5)), Pull::default(), governor(Limits::default()));
    step(&mut host, &mut policy, &mut governor, &mut ());
    assert_eq!(host.moved.len(), 5);
    let rate = Limits { bytes_per_second: Some(20 * PAGE_BYTES), ..Limits::default() };
    governor.set_limits(rate, Time::from_ms(100));
    host.events = base(10..30);
    host.now += Time::from_ms(50);
    step(&mut host, &mut policy, &mut governor, &mut ());
    assert_eq!((host.moved.len(), refusals(&governor)), (6, vec![(Refusal::RateLimited, 19)]));
    governor.set_limits(Limits::default(), Time::from_ms(100));
    host.events = base(40..50);
    step(&mut host, &mut policy, &mut governor, &mut ());
    assert_eq!(governor.recorded().moved_pages[&(NodeId(0), NodeId(1))], 16);
}

#[test]
fn bytes_a_second_stay_within_the_rate() {
    let pages_per_second = 100;
    let limits = Limits { bytes_per_second: Some(pages_per_second * PAGE_BYTES), ..Limits::default() };
    let (mut host, mut policy, mut governor) = (bench(Vec::new()), Pull::default(), governor(limits));
    for epoch in 0..50 {
        host.now = Time::from_ms(100 * epoch);
        host.events = base(0..30);
        step(&mut host, &mut policy, &mut governor, &mut ());
    }
    assert_eq!(host.moved.len(), 500, "10 an epoch of a tenth of a second");
    assert_eq!(refusals(&governor), [(Refusal::RateLimited, 1000)]);
}

#[test]
fn a_page_larger_than_the_allowance_moves_and_later_ones_wait() {
    let limits = Limits { bytes_per_second: Some(1 << 20), ..Limits::default() };
    let (mut host, mut policy, mut governor) = (bench(Vec::new()), Pull::default(), governor(limits));
    for epoch in 0..100 {
        host.now = Time::from_ms(100 * epoch);
        host.events = vec![fault(1, 512, 0, PageSize::Huge)];
        step(&mut host, &mut policy, &mut governor, &mut ());
    }
    assert_eq!(host.moved.len(), 5, "a 2 MiB page each two seconds of ten");
}

#[test]
fn a_move_that_was_not_made_leaves_its_share_to_others() {
    let limits = Limits { bytes_per_second: Some(10 * PAGE_BYTES), ..Limits::default() };
    let (mut host, mut policy, mut governor) = (bench(Vec::new()), Pull::default(), governor(limits));
    for epoch in 0..100 {
        host.now = Time::from_ms(100 * epoch);
        host.events = base([if epoch % 2 == 0 { 2000 } else { 3 }]);
        step(&mut host, &mut policy, &mut governor, &mut ());
    }
    assert_eq!(host.moved.len(), 50);
}

#[test]
fn events_of_one_time_come_in_one_slice() {
    let mut events = base([1, 2]);
    events.push(fault(2, 3, 0, PageSize::Base));
    let (mut host, mut policy, mut governor) = (bench(events), Pull::default(), governor(Limits::default()));
    step(&mut host, &mut policy, &mut governor, &mut ());
    assert_eq!(policy.slices, [2, 1]);
}

#[test]
fn in_the_kernel_a_move_is_made_at_once_and_may_be_wanted_again() {
    let (mut host, mut policy, mut governor) =
        (bench(Vec::new()), Pull::default(), governor(Limits::default()));
    for _ in 0..2 {
        deliver(&mut host, &mut policy, &mut governor, fault(1, 3, 0, PageSize::Base));
    }
    assert_eq!(host.moved, [Vpn(3), Vpn(3)]);
    assert_eq!(policy.outcomes, [Ok(())]);
}

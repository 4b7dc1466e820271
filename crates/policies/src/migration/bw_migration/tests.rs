use proptest::prelude::*;

use super::*;
use crate::testing::{N, bmpm, cpu_of, machine, node};
use memtide_core::policy::{Action, Frame, Planned};
use memtide_core::{ActionId, NodeId, PageSize, TaskId, ThreadId, Vpn};

fn policy(machine: &Machine, text: &str) -> Box<dyn Migration> {
    crate::parse(&format!("bw-local+{text}")).unwrap_or_else(|e| panic!("{e}")).migration(machine)
}

fn fault(socket: u16, page: u64, node: u8) -> Event {
    Event::HintFault(HintFault {
        time: Time::ZERO,
        task: TaskId(0),
        thread: ThreadId(0),
        cpu: cpu_of(socket),
        page: Vpn(page),
        size: PageSize::Base,
        node: NodeId(node),
        write: false,
        pass: 0,
        idle: None,
    })
}

/// One batch: its events have equal times, hence are concurrent.
fn batch(policy: &mut dyn Migration, events: &[Event], plan: &mut Plan) {
    events.iter().for_each(|event| policy.on_event(event, &View::default(), plan));
    policy.decide(&View::default(), plan);
}

/// Number of moves caused by faults of a socket at pages on a node, where each page's second consecutive
/// fault counts.
fn moves(policy: &mut dyn Migration, socket: u16, node: u8, pages: std::ops::Range<u64>) -> usize {
    let mut plan = Plan::default();
    for page in pages {
        batch(policy, &[fault(socket, page, node)], &mut plan);
        batch(policy, &[fault(socket, page, node)], &mut plan);
    }
    plan.moves().count()
}

#[test]
fn thousand_migrations_one_way_allow_ten_more_back() {
    let m = bmpm(2.0);
    let mut p = policy(&m, "bw-migration");
    // bmpm section 3.3: with M = 10 and 1000 migrations from DRAM to NVM, 990 to 1010 from NVM to DRAM.
    let (mut to_nvm, mut to_dram) = (0, 0);
    for round in 0..200 {
        to_nvm += moves(p.as_mut(), 1, 0, round * 10..round * 10 + 5);
        to_dram += moves(p.as_mut(), 0, 1, round * 10 + 5..round * 10 + 10);
    }
    assert_eq!((to_nvm, to_dram), (1000, 1000));
    assert_eq!(moves(p.as_mut(), 0, 1, 5000..5100), 10);
    assert_eq!(moves(p.as_mut(), 1, 0, 6000..6100), 20);
}

#[test]
fn threshold_is_m() {
    let m = bmpm(2.0);
    for (threshold, allowed) in [(1, 1), (10, 10), (77, 77), (500, 100)] {
        let mut p = policy(&m, &format!("bw-migration:threshold={threshold}"));
        assert_eq!(moves(p.as_mut(), 0, 1, 0..100), allowed, "to DRAM");
        let mut p = policy(&m, &format!("bw-migration:threshold={threshold}"));
        assert_eq!(moves(p.as_mut(), 1, 0, 0..100), allowed, "to NVM");
    }
}

#[test]
fn moves_inside_a_tier_are_immediate_and_uncounted() {
    let m = machine(&[node(0, 0, 20e3), node(0, 1, 20e3), node(1, 2, 5e3)]);
    let mut p = policy(&m, "bw-migration:threshold=1");
    assert_eq!(moves(p.as_mut(), 1, 0, 0..100), 100);
    assert_eq!(moves(p.as_mut(), 1, 2, 200..300), 1);
    assert_eq!(moves(p.as_mut(), 0, 1, 300..400), 100);
}

#[test]
fn three_tiers_have_a_balance_for_each_pair() {
    let m = machine(&[node(0, 0, 30e3), node(1, 1, 20e3), node(2, 2, 10e3)]);
    let mut p = policy(&m, "bw-migration:threshold=3");
    assert_eq!(moves(p.as_mut(), 0, 1, 0..10), 3);
    assert_eq!(moves(p.as_mut(), 0, 2, 10..20), 3);
    assert_eq!(moves(p.as_mut(), 1, 2, 20..30), 3);
    assert_eq!(moves(p.as_mut(), 2, 1, 30..50), 6, "back over the pair's whole range");
    assert_eq!(moves(p.as_mut(), 1, 0, 50..70), 6);
}

#[test]
fn first_of_concurrent_faults_wins_compare_and_set() {
    let m = machine(&[node(0, 0, 30e3), node(1, 1, 20e3), node(2, 2, 10e3)]);
    let mut p = policy(&m, "bw-migration");
    let slice = [fault(0, 1, 1), fault(0, 2, 1), fault(1, 3, 0), fault(0, 4, 2), fault(1, 5, 2)];
    let mut plan = Plan::default();
    batch(p.as_mut(), &slice, &mut plan);
    assert!(plan.actions().is_empty(), "first faults");
    batch(p.as_mut(), &slice, &mut plan);
    let moved: Vec<u64> = plan.moves().map(|wanted| wanted.page.0).collect();
    assert_eq!(moved, [1, 4, 5], "one of each pair of tiers");
    batch(p.as_mut(), &slice[1..2], &mut plan);
    assert_eq!(plan.moves().count(), 4, "the loser may try again");
}

#[test]
fn unmapped_page_is_forgotten() {
    let m = bmpm(2.0);
    let mut p = policy(&m, "bw-migration");
    let mut plan = Plan::default();
    batch(p.as_mut(), &[fault(0, 1, 1)], &mut plan);
    let (from, to) = (NodeId(1), NodeId(0));
    let wanted = Move { task: TaskId(0), page: Vpn(1), size: PageSize::Base, from, to, wish: Frame::ANY };
    let planned = Planned { id: ActionId(0), action: Action::Move(wanted), reason: Reason::Locality };
    let refused = Completion { time: Time::ZERO, planned, outcome: Outcome::Refused(Refusal::Gone) };
    batch(p.as_mut(), &[Event::Completion(refused)], &mut plan);
    batch(p.as_mut(), &[fault(0, 1, 1)], &mut plan);
    assert!(plan.actions().is_empty());
}

#[test]
fn failed_moves_do_not_change_balance() {
    let m = bmpm(2.0);
    let mut p = policy(&m, "bw-migration:threshold=10");
    let mut plan = Plan::default();
    for page in 0..10 {
        batch(p.as_mut(), &[fault(0, page, 1)], &mut plan);
        batch(p.as_mut(), &[fault(0, page, 1)], &mut plan);
    }
    assert_eq!((plan.moves().count(), moves(p.as_mut(), 0, 1, 100..110)), (10, 0));
    let completed = |planned: &[Planned], outcome| -> Vec<Event> {
        let of = |planned: &Planned| Completion { time: Time::ZERO, planned: planned.clone(), outcome };
        planned.iter().map(of).map(Event::Completion).collect()
    };
    let (refused, cancelled) = plan.actions().split_at(4);
    let refused = completed(refused, Outcome::Refused(Refusal::AlreadyThere));
    batch(p.as_mut(), &refused, &mut Plan::default());
    let cancelled = completed(cancelled, Outcome::Cancelled(Cancellation::TaskEnded));
    batch(p.as_mut(), &cancelled, &mut Plan::default());
    assert_eq!(moves(p.as_mut(), 0, 1, 200..220), 10);
}

proptest! {
    #[test]
    fn balance_of_pair_stays_within_m(
        tiers in prop::collection::vec(0..4u8, 6),
        threshold in 1..6i64,
        faults in prop::collection::vec((0..6u16, 0..30u64, 0..4u8), 0..400),
    ) {
        let nodes: Vec<N> = (0..4).map(|t| node(t, u16::from(t), 9e3)).collect();
        let extra = tiers.iter().map(|&t| node(t, u16::from(t), 9e3));
        let m = machine(&nodes.into_iter().chain(extra).collect::<Vec<_>>());
        let mut p = policy(&m, &format!("bw-migration:threshold={threshold}"));
        let mut at = [0u8; 30];
        let mut balance = [[0i64; 4]; 4];
        for (socket, page, concurrent) in faults {
            let slice: Vec<Event> = (0..=u64::from(concurrent))
                .map(|other| (page + other) % 30)
                .map(|page| fault(socket % 4, page, at[page as usize]))
                .collect();
            let mut plan = Plan::default();
            batch(p.as_mut(), &slice, &mut plan);
            let mut crossed = 0;
            for wanted in plan.moves() {
                prop_assert_eq!(wanted.from.0, at[wanted.page.0 as usize]);
                at[wanted.page.0 as usize] = wanted.to.0;
                let [from, to] = [wanted.from, wanted.to].map(|n| m.tier_of(n).index());
                crossed += usize::from(from != to);
                balance[from][to] += 1;
                prop_assert!(from == to || (balance[from][to] - balance[to][from]).abs() <= threshold);
            }
            prop_assert!(crossed <= 3, "all faults of the slice go to one tier: a pair with each other tier");
        }
    }
}

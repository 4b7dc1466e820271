//! Against statements of Linux's source, named in the comments.

use memtide_core::epoch::ask;
use memtide_core::policy::{Completion, InactivePage, Outcome, Refusal};
use memtide_core::{PageSize, TaskId, ThreadId, Vpn};

use super::*;
use crate::testing::{cpu_of, machine, moves_of, node, node_view};

const FAST: NodeId = NodeId(0);
const SLOW: NodeId = NodeId(1);
const MARKS: Watermarks = Watermarks { low_pages: 10, high_pages: 20 };

fn ms(time: u64) -> Time {
    Time::from_ms(time)
}

/// Limits of 1,000 pages a second, adjusted each minute.
fn limits() -> Limits {
    let (window_pages, period_pages) = (1000, 60_000);
    Limits { reference: ms(1000), window: ms(1000), window_pages, period: ms(60_000), period_pages }
}

/// A fast node beside each of two sockets, and two slower tiers beside the first.
fn tiers() -> Machine {
    machine(&[node(0, 0, 20_000.0), node(1, 0, 10_000.0), node(0, 1, 20_000.0), node(2, 0, 5000.0)])
}

fn policy(machine: &Machine, parameters: &str) -> Box<dyn Migration> {
    crate::parse(&format!("local+linux-tiering{parameters}")).expect("a policy").migration(machine)
}

/// A view whose nodes have that many free pages of 100,000.
fn view(free: &[u64]) -> View {
    let node = |(node, &free): (usize, &u64)| {
        let watermarks = Some(MARKS);
        NodeView { watermarks, ..node_view(NodeId::from(node), 100_000, free) }
    };
    View { nodes: free.iter().enumerate().map(node).collect(), ..View::default() }
}

/// A fault of a thread of a socket, this long after the scan.
fn fault(page: u64, node: NodeId, socket: u16, idle: Time) -> HintFault {
    HintFault {
        time: ms(5000),
        task: TaskId(0),
        thread: ThreadId(0),
        cpu: cpu_of(socket),
        page: Vpn(page),
        size: PageSize::Base,
        node,
        write: false,
        pass: 0,
        idle: Some(idle),
    }
}

/// Targets and reasons of the moves at a fault, and whether it woke kswapd.
fn at_fault(policy: &mut dyn Migration, fault: HintFault, view: &View) -> (Vec<(NodeId, Reason)>, bool) {
    let mut plan = Plan::default();
    policy.on_event(&Event::HintFault(fault), view, &mut plan);
    (moves_of(&plan).iter().map(|(wanted, reason)| (wanted.to, *reason)).collect(), plan.decides_now())
}

fn demotions(policy: &mut dyn Migration, view: &View) -> Vec<(u64, NodeId)> {
    let mut plan = Plan::new(ActionId(100));
    assert_eq!(ask(policy, std::iter::empty::<Event>(), view, &mut plan), Wake::Never);
    assert!(moves_of(&plan).iter().all(|(_, reason)| *reason == Reason::Cold));
    plan.moves().map(|wanted| (wanted.page.0, wanted.to)).collect()
}

fn inactive(pages: std::ops::Range<u64>, node: NodeId) -> Vec<InactivePage> {
    let page = |page| InactivePage { task: TaskId(0), page: Vpn(page), size: PageSize::Base, node };
    pages.map(page).collect()
}

/// `numa_promotion_adjust_threshold`: sixteenths of twice the reference, once more than a period has passed.
#[test]
fn threshold_falls_by_a_step_if_candidates_exceed_110_percent_of_the_rate_and_rises_below_90() {
    let limits = limits();
    let after = |threshold: Option<u64>, candidates: u64| {
        let json = serde_json::json!({
            "threshold": threshold.map(ms), "pages": candidates, "window_start": 0, "pages_at_window": 0,
            "period_start": 0, "pages_at_period": 0,
        });
        let mut state: Candidates = serde_json::from_value(json).expect("a state");
        state.admits(&limits, ms(60_000), Time::NEVER, 1);
        assert_eq!(state.threshold(&limits), ms(threshold.unwrap_or(1000)), "the period has not ended");
        state.admits(&limits, ms(60_001), Time::NEVER, 1);
        let adjusted = state.threshold(&limits);
        state.admits(&limits, ms(120_001), Time::NEVER, 1);
        assert_eq!(state.threshold(&limits), adjusted, "nor has the next one");
        adjusted
    };
    for (threshold, candidates, expected) in [
        (None, 66_001, 875),
        (None, 66_000, 1000),
        (None, 54_000, 1000),
        (None, 53_999, 1125),
        (Some(250), 66_001, 125),
        (Some(125), 66_001, 125),
        (Some(1875), 0, 2000),
        (Some(2000), 0, 2000),
    ] {
        assert_eq!(after(threshold, candidates), ms(expected), "{threshold:?} with {candidates}");
    }
}

/// `numa_promotion_rate_limit`: refused once as many candidates as the rate are counted; a window ends more
/// than a second after its start.
#[test]
fn candidates_beyond_the_rate_are_refused_until_the_next_window() {
    let mut state = Candidates::default();
    let mut admits = |time, pages| state.admits(&limits(), ms(time), Time::ZERO, pages);
    assert!((1..1000).all(|time| admits(time, 1)));
    assert!(!admits(1000, 1), "the thousandth");
    assert!(admits(1001, 1), "it opens a window and is not counted to it");
    assert!(admits(1002, 487) && admits(1003, 512));
    assert!(!admits(1500, 512), "a huge page counts as its base pages");
    assert!(admits(2002, 512));
}

/// `should_numa_migrate_memory`: `latency >= th` is refused, and is no candidate.
#[test]
fn page_accessed_later_than_the_threshold_is_not_promoted() {
    let mut policy = policy(&tiers(), ":hot_threshold_ms=200:rate_limit_mbps=1");
    let view = view(&[1000, 0, 1000, 0]);
    for page in 0..1000 {
        assert_eq!(at_fault(policy.as_mut(), fault(page, SLOW, 0, ms(200)), &view), (vec![], false));
    }
    let unknown = HintFault { idle: None, ..fault(1, SLOW, 0, ms(0)) };
    assert_eq!(at_fault(policy.as_mut(), unknown, &view), (vec![], false));
    let hot = at_fault(policy.as_mut(), fault(1, SLOW, 0, ms(199)), &view);
    assert_eq!(hot, (vec![(FAST, Reason::Hot)], false));
}

/// `pgdat_free_space_enough`: above the promotion watermark and the larger of 1 GiB and a sixteenth.
#[test]
fn node_with_much_free_memory_takes_every_accessed_page() {
    let mut policy = policy(&tiers(), ":rate_limit_mbps=0");
    let mut free = |free, pages| {
        let mut view = view(&[free, 0, free, 0]);
        view.nodes[0].pages = pages;
        !at_fault(policy.as_mut(), fault(1, SLOW, 0, ms(10_000)), &view).0.is_empty()
    };
    let gib = (1 << 30) / PAGE_BYTES;
    assert!(!free(gib + 30, 8 * gib) && free(gib + 31, 8 * gib));
    assert!(!free(2 * gib + 30, 32 * gib) && free(2 * gib + 31, 32 * gib));
}

#[test]
fn enough_free_memory_and_rate_are_divided_as_capacity_and_times_as_the_scale() {
    let mut machine = tiers();
    (machine.slice, machine.scale) = (2, 8);
    let values = crate::parse("local+linux-tiering").expect("a policy").migration_values().clone();
    let policy = LinuxTiering::new(&machine, &values);
    assert_eq!(policy.enough_pages, (1 << 18) / 16);
    assert_eq!((policy.limits.reference, policy.limits.window), (ms(125), ms(125)));
    assert_eq!((policy.limits.window_pages, policy.limits.period), ((1 << 24) / 16, ms(7500)));
    assert_eq!(policy.limits.period_pages, 60 * (1 << 24) / 16);
}

#[test]
fn only_pages_below_the_fastest_tier_move_and_go_to_the_fast_node_nearest_to_the_cpu() {
    let mut policy = policy(&tiers(), "");
    let view = view(&[1000; 4]);
    for (node, socket, expected) in [
        (0, 0, None),
        (0, 1, None),
        (2, 0, None),
        (1, 0, Some(0)),
        (1, 1, Some(2)),
        (3, 0, Some(0)),
        (3, 1, Some(2)),
    ] {
        let (moves, _) = at_fault(policy.as_mut(), fault(1, NodeId(node), socket, Time::ZERO), &view);
        let expected: Vec<_> = expected.map(|node| (NodeId(node), Reason::Hot)).into_iter().collect();
        assert_eq!(moves, expected, "a page of node {node}, a CPU of socket {socket}");
    }
}

/// `migrate_misplaced_folio_prepare`: the high watermark must hold with the page; else kswapd is woken, which
/// frees memory up to the promotion watermark (`pgdat_balanced`).
#[test]
fn promotion_to_a_nearly_full_node_wakes_kswapd_which_demotes_up_to_the_promotion_watermark() {
    let mut policy = policy(&tiers(), "");
    let hot = || fault(1, SLOW, 0, Time::ZERO);
    assert_eq!(at_fault(policy.as_mut(), hot(), &view(&[22, 0, 0, 0])), (vec![(FAST, Reason::Hot)], false));
    let mut full = view(&[21, 50, 0, 0]);
    full.inactive = inactive(0..100, FAST);
    assert!(demotions(policy.as_mut(), &full).is_empty(), "kswapd sleeps");
    assert_eq!(at_fault(policy.as_mut(), hot(), &full), (vec![], true));
    let moved = demotions(policy.as_mut(), &full);
    assert_eq!(moved, (0..10).map(|page| (page, SLOW)).collect::<Vec<_>>(), "above 30 free pages");
    assert_eq!(at_fault(policy.as_mut(), hot(), &full), (vec![], false), "it runs");
    for id in 100..110 {
        let planned = memtide_core::policy::Planned {
            id: ActionId(id),
            action: memtide_core::policy::Action::Freeze(TaskId(0)),
            reason: Reason::Cold,
        };
        let (time, outcome) = (ms(1), Outcome::Refused(Refusal::Busy));
        let done = Event::Completion(Completion { time, planned, outcome });
        policy.on_event(&done, &full, &mut Plan::default());
    }
    assert_eq!(at_fault(policy.as_mut(), hot(), &full), (vec![], true), "it sleeps again");
}

#[test]
fn kswapd_that_found_too_little_rests() {
    let mut policy = policy(&tiers(), "");
    let at = |time| HintFault { time: ms(time), ..fault(1, SLOW, 0, Time::ZERO) };
    let full = View { time: ms(5000), ..view(&[0, 50, 0, 0]) };
    assert!(at_fault(policy.as_mut(), at(5000), &full).1);
    assert!(demotions(policy.as_mut(), &full).is_empty(), "no page is inactive");
    assert!(!at_fault(policy.as_mut(), at(5099), &full).1);
    assert!(at_fault(policy.as_mut(), at(5100), &full).1);
}

#[test]
fn without_demotion_nothing_is_demoted() {
    let mut policy = policy(&tiers(), ":demotion=off");
    let full = view(&[0, 50, 0, 0]);
    assert_eq!(at_fault(policy.as_mut(), fault(1, SLOW, 0, Time::ZERO), &full), (vec![], false));
    assert!(!policy.sensors().iter().any(|request| request.sensor == Sensor::InactivePages));
}

/// `next_demotion_node` and `demote_folio_list`: the next tier first, then any below.
#[test]
fn demotion_goes_to_the_next_tier_and_beyond_if_that_is_full() {
    let mut policy = policy(&tiers(), "");
    let mut full = view(&[0, 12, 0, 50]);
    full.inactive = inactive(0..100, FAST);
    assert!(at_fault(policy.as_mut(), fault(1, SLOW, 0, Time::ZERO), &full).1);
    let targets: Vec<u8> = demotions(policy.as_mut(), &full).iter().map(|(_, to)| to.0).collect();
    assert_eq!(targets, [vec![1; 2], vec![3; 29]].concat(), "2 pages fit above its low watermark");
}

#[test]
fn state_of_another_machine_is_refused() {
    let two = machine(&[node(0, 0, 20_000.0), node(1, 0, 10_000.0)]);
    assert!(policy(&two, "").resume(&policy(&tiers(), "").state()).is_err());
    assert!(policy(&two, "").resume(&policy(&two, "").state()).is_ok());
}

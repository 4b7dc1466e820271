use proptest::prelude::*;

use super::*;
use crate::testing::{machine, moves_of, node, node_view};
use memtide_core::{PageSize, TaskId};

const FAST: NodeId = NodeId(0);
const SLOW: NodeId = NodeId(2);

/// Two sockets, each with a fast node and a slow one.
fn four() -> Machine {
    machine(&[node(0, 0, 9000.0), node(0, 1, 9000.0), node(1, 0, 2000.0), node(1, 1, 2000.0)])
}

fn policy(machine: &Machine, text: &str) -> Box<dyn Migration> {
    crate::parse(&format!("local+{text}")).unwrap_or_else(|e| panic!("{e}")).migration(machine)
}

/// A region on a node: first page, pages, samples that were reads, age, intervals.
fn region(start: u64, pages: u64, node: NodeId, reads: u32, age: u32) -> Region {
    let (task, start, size) = (TaskId(0), Vpn(start), PageSize::Base);
    Region { task, start, pages, size, node, reads, writes: 0, age }
}

fn seen(regions: &[Region], free: u64) -> View {
    let nodes = [FAST, NodeId(1)].map(|node| node_view(node, 1000, free)).to_vec();
    let mut view = View { nodes, ..View::default() };
    regions.iter().for_each(|&region| view.regions.push(region));
    view
}

fn decide(text: &str, seen: &View) -> Vec<(Move, Reason)> {
    decide_on(&four(), text, seen)
}

/// The plan after two consecutive epochs with the same view.
fn decide_on(machine: &Machine, text: &str, seen: &View) -> Vec<(Move, Reason)> {
    let mut policy = policy(machine, text);
    policy.decide(seen, &mut Plan::default());
    let mut plan = Plan::default();
    policy.decide(seen, &mut plan);
    moves_of(&plan)
}

fn count(moves: &[(Move, Reason)], reason: Reason) -> usize {
    moves.iter().filter(|(_, why)| *why == reason).count()
}

#[test]
fn hot_is_promoted_cold_demoted_rest_stays() {
    let regions = [
        region(0, 10, SLOW, 10, 0),
        region(100, 10, FAST, 0, 1000),
        region(200, 10, SLOW, 1, 0),
        region(300, 10, FAST, 1, 1000),
        region(400, 10, FAST, 0, 3),
    ];
    let moves = decide("hot-cold:hot=20", &seen(&regions, 500));
    assert_eq!((count(&moves, Reason::Hot), count(&moves, Reason::Cold), moves.len()), (10, 10, 20));
    assert!(moves.iter().all(|(m, why)| (*why == Reason::Hot) == (m.page.0 < 10)));
}

#[test]
fn promotion_needs_two_consecutive_hot_epochs() {
    let mut policy = policy(&four(), "hot-cold");
    let mut hot = |start, pages| {
        let mut plan = Plan::default();
        policy.decide(&seen(&[region(start, pages, SLOW, 10, 0)], 500), &mut plan);
        plan.moves().map(|wanted| wanted.page.0).collect::<Vec<u64>>()
    };
    assert!(hot(0, 100).is_empty());
    assert_eq!(hot(90, 20), (90..100).collect::<Vec<_>>());
    assert_eq!(hot(80, 100), (90..110).collect::<Vec<_>>());
    assert!(hot(500, 10).is_empty());
}

#[test]
fn write_only_page_is_hot() {
    let written = Region { reads: 0, writes: 10, ..region(0, 10, SLOW, 0, 5000) };
    assert_eq!(count(&decide("hot-cold", &seen(&[written], 500)), Reason::Hot), 10);
}

#[test]
fn promotions_stop_at_the_low_watermark() {
    let moves = decide("hot-cold:low=3", &seen(&[region(0, 400, SLOW, 10, 0)], 100));
    assert_eq!(moves.len(), 2 * 70, "3 % of each of two nodes of 1000 pages stay free");
}

#[test]
fn region_less_than_half_as_hot_yields() {
    for (victim, moved) in [(2, 100), (6, 0)] {
        let regions = [region(0, 100, SLOW, 10, 0), region(1000, 900, FAST, victim, 50)];
        let moves = decide("hot-cold:hot=70:low=3:high=3", &seen(&regions, 30));
        assert_eq!((count(&moves, Reason::Hot), count(&moves, Reason::MakeRoom)), (moved, moved), "{victim}");
        let first_up = moves.iter().position(|(_, why)| *why == Reason::Hot).unwrap_or(0);
        assert!(moves[..first_up].iter().all(|(_, why)| *why == Reason::MakeRoom), "room is made first");
    }
}

#[test]
fn full_node_is_demoted_to_high_watermark() {
    let regions = [region(0, 500, FAST, 1, 0), region(500, 500, FAST, 2, 0)];
    let moves = decide("hot-cold:hot=50", &seen(&regions, 20));
    assert_eq!(moves.len(), 40, "from 2 % free to 6 %");
    assert!(moves.iter().all(|(m, _)| m.page.0 < 500), "the coolest first");
}

#[test]
fn epoch_respects_move_limit() {
    let regions = [region(0, 300, SLOW, 10, 0), region(1000, 300, FAST, 0, 900)];
    let moves = decide("hot-cold:pages=100", &seen(&regions, 500));
    assert_eq!((count(&moves, Reason::Hot), count(&moves, Reason::Cold)), (100, 100));
}

#[test]
fn samples_requested_fit_an_epoch() {
    let sensors = policy(&four(), "hot-cold:epoch_ms=10").sensors();
    let regions = sensors.regions().unwrap();
    assert_eq!(
        (sensors.first_epoch, regions.sampling, regions.aggregation),
        (Time::from_ms(10), Time::from_us(1000), sensors.first_epoch)
    );
}

proptest! {
    #[test]
    fn moves_name_observed_pages_and_fit_free_memory(
        kinds in proptest::collection::vec((1u64..200, 0u8..4, 0u32..=10, 0u32..400), 1..30),
        free in 0u64..1000,
    ) {
        let mut start = 0;
        let regions: Vec<Region> = kinds.iter().map(|&(pages, node, reads, age)| {
            start += pages + 1;
            region(start - pages, pages, NodeId(node), reads, age)
        }).collect();
        let moves = decide("hot-cold", &seen(&regions, free));
        let mut named = std::collections::BTreeSet::new();
        let mut room = [free as i64; 2];
        for (wanted, why) in &moves {
            let of = regions.iter().find(|r| (r.start.0..r.start.0 + r.pages).contains(&wanted.page.0));
            prop_assert_eq!(of.map(|r| r.node), Some(wanted.from));
            prop_assert!(named.insert(wanted.page));
            let (from, to) = (wanted.from.index() / 2, wanted.to.index() / 2);
            let expected = if from == 1 { (true, 1, 0) } else { (false, 0, 1) };
            prop_assert_eq!((*why == Reason::Hot, from, to), expected);
            if let Some(room) = room.get_mut(wanted.from.index()) { *room += 1; }
            if let Some(room) = room.get_mut(wanted.to.index()) {
                *room -= 1;
                prop_assert!(*room >= 30, "3 % stay free");
            }
        }
    }
}

#[test]
fn epoch_limit_scales_but_allows_a_huge_page() {
    let hot = seen(&[region(0, 9000, SLOW, 10, 0)], 9000);
    let moves = |pages: u32, scale| {
        decide_on(&Machine { scale, ..four() }, &format!("hot-cold:pages={pages}"), &hot).len()
    };
    assert_eq!([moves(4096, 1), moves(4096, 4), moves(4096, 64), moves(100, 64)], [4096, 1024, 512, 100]);
}

#[test]
fn write_weight_requests_writes_and_promotes_written_pages_first() {
    let written = Region { writes: 10, ..region(100, 10, SLOW, 10, 0) };
    let regions = [region(0, 10, SLOW, 10, 0), written];
    for (text, first, asked) in [("hot-cold", 0, false), ("hot-cold:write_weight=2", 100, true)] {
        assert_eq!(decide(text, &seen(&regions, 500))[0].0.page, Vpn(first), "{text}");
        assert_eq!(
            policy(&four(), text).sensors().regions().map(|regions| regions.writes),
            Some(asked),
            "{text}"
        );
    }
}

#[test]
fn state_with_overlapping_ranges_is_refused() {
    let resumed = |state: &str| policy(&four(), "hot-cold").resume(state);
    assert_eq!(resumed("[[1,0,10],[1,10,20],[2,0,5]]"), Ok(()));
    for (state, why) in [
        ("[[1,0,10],[1,9,20]]", "overlap"),
        ("[[2,0,10],[1,0,10]]", "out of order"),
        ("[[1,10,10]]", "empty"),
        ("[[1,10,5]]", "empty"),
    ] {
        assert!(resumed(state).is_err_and(|error| error.contains(why)), "{state}");
    }
}

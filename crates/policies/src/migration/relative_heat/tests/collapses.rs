//! Collapses of base pages into huge pages.

use memtide_core::machine::Tlb;

use super::*;

/// [`two`], whose page table is walked for 20 ns after a miss of the TLB.
fn with_tlb() -> Machine {
    let mut machine = two();
    machine.tlbs.push(Tlb {
        name: "L2".to_owned(),
        entries: 16,
        ways: 4,
        latency_cycles: 0.0,
        walk_cycles: 40.0,
        cold_walk_cycles: None,
        nested_walks: false,
        walkers: 1,
    });
    machine
}

/// Performs an epoch with these samples: the first pages of the blocks that its plan collapses, and the pages
/// that move up and down.
fn epoch(policy: &mut dyn Migration, view: &View, events: &[Event]) -> (Vec<u64>, [Vec<u64>; 2]) {
    let mut plan = Plan::default();
    events.iter().for_each(|event| policy.on_event(event, view, &mut plan));
    policy.decide(view, &mut plan);
    let collapses = plan.actions().iter().filter_map(|planned| match &planned.action {
        Action::Collapse(page) => Some(page.page.0),
        _ => None,
    });
    let to = |node| {
        let moves = moves_of(&plan).into_iter().filter(move |(wanted, _)| wanted.to == node);
        moves.map(|(wanted, _)| wanted.page.0).collect()
    };
    (collapses.collect(), [to(FAST), to(SLOW)])
}

/// The last of some epochs with the same samples.
fn last(policy: &mut dyn Migration, view: &View, events: &[Event]) -> (Vec<u64>, [Vec<u64>; 2]) {
    (1..EPOCHS_MIN).for_each(|_| _ = epoch(policy, view, events));
    epoch(policy, view, events)
}

fn refuse(policy: &mut dyn Migration, view: &View, page: u64, why: Refusal) {
    let page = Page { task: TaskId(0), page: Vpn(page), size: PageSize::Huge };
    let planned = Planned { id: ActionId(0), action: Action::Collapse(page), reason: Reason::TlbMisses };
    let done = Completion { time: Time::ZERO, planned, outcome: Outcome::Refused(why) };
    policy.on_event(&Event::Completion(done), view, &mut Plan::default());
}

/// A fast node with room, and `pages` of region 1024.. on it; those before are on the slow node.
fn block(pages: Range<u64>) -> View {
    let slow = region(1024, pages.start - 1024, SLOW, 0);
    let fast = region(pages.start, pages.end - pages.start, FAST, 0);
    let mut view = seen(&[slow, fast], 0);
    view.nodes = vec![node_view(FAST, 100_000, 50_000)];
    view
}

#[test]
fn hot_base_pages_on_one_node_are_collapsed_if_they_miss_the_tlb() {
    let view = block(1024..1900);
    let hot = samples(1024..1536, FAST, 20);
    assert_eq!(last(policy_on(&with_tlb(), "relative-heat").as_mut(), &view, &hot).0, [1024]);
    assert_eq!(last(policy("relative-heat").as_mut(), &view, &hot).0, [0; 0], "walks cost nothing");
    let few = samples(1024..1026, FAST, 1);
    let soon = "relative-heat:payback_ms=1000";
    assert_eq!(last(policy_on(&with_tlb(), soon).as_mut(), &view, &few).0, [0; 0]);
    assert_eq!(last(policy_on(&with_tlb(), soon).as_mut(), &view, &hot).0, [1024]);
    // Less than 2 MiB of a block, and one of which the first pages are not known.
    for pages in [1024..1500, 1025..1900] {
        let mut view = View { nodes: view.nodes.clone(), ..View::default() };
        view.regions.push(region(pages.start, pages.end - pages.start, FAST, 0));
        let hot = samples(pages, FAST, 20);
        assert_eq!(last(policy_on(&with_tlb(), "relative-heat").as_mut(), &view, &hot).0, [0; 0]);
    }
}

#[test]
fn pages_on_other_nodes_move_first() {
    // Those without samples may not take another's place, but are a part of the block.
    let (view, hot) = (block(1084..1536), samples(1090..1536, FAST, 20));
    let mut policy = policy_on(&with_tlb(), "relative-heat");
    let (collapses, [up, _]) = last(policy.as_mut(), &view, &hot);
    assert_eq!((collapses, up), (vec![], (1024..1084).collect()));
    assert_eq!(last(policy.as_mut(), &block(1024..1536), &hot).0, [1024]);
    let (view, hot) = (block(1100..1536), samples(1100..1536, FAST, 20));
    assert_eq!(last(policy_on(&with_tlb(), "relative-heat").as_mut(), &view, &hot).0, [0; 0], "too many");
}

#[test]
fn pages_with_a_part_that_others_may_replace_stay_base_pages() {
    let mut view = block(1024..1536);
    view.regions.push(region(4096, 100, SLOW, 0));
    view.nodes = vec![node_view(FAST, 1000, 20)];
    let others = samples(4096..4106, SLOW, 30);
    for (hot, expected) in [(1024..1536, vec![1024]), (1024..1472, vec![])] {
        let events = [samples(hot, FAST, 20), others.clone()].concat();
        assert_eq!(last(policy_on(&with_tlb(), "relative-heat").as_mut(), &view, &events).0, expected);
    }
}

#[test]
fn kernel_gets_free_memory_for_a_huge_page() {
    let mut view = block(1024..1536);
    view.regions.push(region(8192, 90_000, FAST, 0));
    view.nodes = vec![NodeView { per_cpu_pages: 5000, ..node_view(FAST, 100_000, 300) }];
    let hot = samples(1024..1536, FAST, 20);
    let (collapses, [_, down]) = last(policy_on(&with_tlb(), "relative-heat").as_mut(), &view, &hot);
    assert_eq!((collapses, down.len()), (vec![1024], 1236));
    assert!(down.iter().all(|&page| page >= 8192));
    let (_, [_, down]) = last(policy("relative-heat").as_mut(), &view, &hot);
    assert_eq!(down, [0; 0], "there is enough for base pages");
    // The coolest pages are the block's own: others leave.
    let mut view = block(1024..1536);
    // Less than 2 MiB each.
    let others: Vec<Range<u64>> = (16..26).map(|at| at * 512..at * 512 + 500).collect();
    others.iter().for_each(|pages| view.regions.push(region(pages.start, 500, FAST, 0)));
    view.nodes = vec![NodeView { per_cpu_pages: 5000, ..node_view(FAST, 10_000, 50) }];
    let hot = [samples(1024..1480, FAST, 20), samples(others.into_iter().flatten(), FAST, 1)].concat();
    let (collapses, [_, down]) = last(policy_on(&with_tlb(), "relative-heat").as_mut(), &view, &hot);
    assert_eq!((collapses, down.len()), (vec![1024], 150));
    assert!(down.iter().all(|&page| page >= 8192), "{down:?}");
}

#[test]
fn refused_collapses_are_not_tried_again_for_a_while() {
    let hot = samples(1024..1536, FAST, 20);
    let view = block(1024..1536);
    // Epochs without one: up to four for a decision.
    for (why, expected) in [
        (Refusal::NoRoom, 2..8),
        (Refusal::Busy, 20..80),
        (Refusal::NotAllowed, 20..80),
        (Refusal::Unsupported, 100..101),
    ] {
        let mut policy = policy_on(&with_tlb(), "relative-heat");
        assert_eq!(last(policy.as_mut(), &view, &hot).0, [1024]);
        refuse(policy.as_mut(), &view, 1024, why);
        let again = (0..100).take_while(|_| epoch(policy.as_mut(), &view, &hot).0.is_empty()).count();
        assert!(expected.contains(&again), "{why}: after {again}");
    }
}

//! Splits of huge pages.

use super::*;

/// The huge pages that the last of some epochs with the same samples splits, and its moves.
fn splits(policy: &mut dyn Migration, view: &View, events: &[Event]) -> (Vec<u64>, usize) {
    splits_after(policy, view, &vec![events.to_vec(); EPOCHS_MIN as usize])
}

fn splits_after(policy: &mut dyn Migration, view: &View, epochs: &[Vec<Event>]) -> (Vec<u64>, usize) {
    let mut plan = Plan::default();
    for events in epochs {
        plan = Plan::default();
        events.iter().for_each(|event| policy.on_event(event, view, &mut plan));
        policy.decide(view, &mut plan);
    }
    let split = plan.actions().iter().filter_map(|planned| match &planned.action {
        Action::Split(page) => Some(page.page.0),
        _ => None,
    });
    (split.collect(), moves_of(&plan).len())
}

#[test]
fn huge_page_with_a_hot_part_is_split_where_the_rest_makes_room() {
    let huge = |start, node| Region { size: PageSize::Huge, ..region(start, 1, node, 50) };
    let hot_quarter = |start, node| with_size(samples(start..start + 128, node, 20), PageSize::Huge);
    // Its cold part makes room for hot base pages.
    let view = seen(&[region(0, 100, SLOW, 0), huge(1024, FAST)], 20);
    let events = [samples(0..100, SLOW, 20), hot_quarter(1024, FAST)].concat();
    assert_eq!(splits(policy("relative-heat").as_mut(), &view, &events), (vec![1024], 0));
    // Its hot part takes the place of base pages that are not cold. If they are, it moves as a whole.
    let view = seen(&[huge(1024, SLOW), region(4096, 980, FAST, 0)], 20);
    let lukewarm = samples(4096..5076, FAST, 2);
    let events = [hot_quarter(1024, SLOW), lukewarm].concat();
    assert_eq!(splits(policy("relative-heat").as_mut(), &view, &events), (vec![1024], 0));
    let (split, moves) = splits(policy("relative-heat").as_mut(), &view, &hot_quarter(1024, SLOW));
    assert_eq!((split, moves), (vec![], 513));
    // There is too little free memory: the cold part is demoted. There is enough: it stays as it is.
    for (free, expected) in [(5, vec![1024]), (20, vec![])] {
        let view = seen(&[huge(1024, FAST), region(4096, 480, FAST, 50)], free);
        let events = [hot_quarter(1024, FAST), samples(4096..4576, FAST, 20)].concat();
        assert_eq!(splits(policy("relative-heat").as_mut(), &view, &events), (expected, 0), "{free} free");
    }
}

#[test]
fn huge_page_is_not_split_for_chance_nor_where_its_parts_are_alike() {
    let huge = |start, node| Region { size: PageSize::Huge, ..region(start, 1, node, 50) };
    let alike = seen(&[region(0, 512, SLOW, 0), huge(1024, FAST), huge(2048, SLOW)], 20);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut by_chance = |_| {
        let mut pages = |first| -> Vec<u64> { (0..128).map(|_| first + random.next_u64() % 512).collect() };
        let of_huge = |pages: Vec<u64>, node| with_size(samples(pages.into_iter(), node, 1), PageSize::Huge);
        let base = samples(pages(0).into_iter(), SLOW, 1);
        [base, of_huge(pages(1024), FAST), of_huge(pages(2048), SLOW)].concat()
    };
    for epochs in [3, 12, 50] {
        let epochs: Vec<Vec<Event>> = (0..epochs).map(&mut by_chance).collect();
        let changed = splits_after(policy("relative-heat").as_mut(), &alike, &epochs);
        assert_eq!(changed, (vec![], 0));
    }
}

/// Tells a policy that the huge page from this base page on was not split.
fn refuse_split(policy: &mut dyn Migration, view: &View, page: u64, why: Refusal) {
    let page = Page { task: TaskId(0), page: Vpn(page), size: PageSize::Huge };
    let planned = Planned { id: ActionId(0), action: Action::Split(page), reason: Reason::Uneven };
    let outcome = Outcome::Refused(why);
    let done = Event::Completion(Completion { time: Time::ZERO, planned, outcome });
    policy.on_event(&done, view, &mut Plan::default());
}

#[test]
fn host_that_cannot_split_is_not_asked_again() {
    let huge = Region { size: PageSize::Huge, ..region(1024, 1, FAST, 50) };
    let view = seen(&[region(0, 100, SLOW, 0), huge], 20);
    let events =
        [samples(0..100, SLOW, 20), with_size(samples(1024..1152, FAST, 20), PageSize::Huge)].concat();
    let mut policy = policy("relative-heat");
    assert_eq!(splits(policy.as_mut(), &view, &events).0, [1024]);
    refuse_split(policy.as_mut(), &view, 1024, Refusal::Unsupported);
    assert_eq!(splits(policy.as_mut(), &view, &events).0, [0; 0]);
}

#[test]
fn huge_page_that_was_not_split_moves_whole_for_some_epochs() {
    let huge = Region { size: PageSize::Huge, ..region(1024, 1, SLOW, 50) };
    let view = seen(&[huge, region(4096, 980, FAST, 0)], 20);
    let hot_quarter = with_size(samples(1024..1152, SLOW, 20), PageSize::Huge);
    let events = [hot_quarter, samples(4096..5076, FAST, 2)].concat();
    let mut policy = policy("relative-heat");
    assert_eq!(splits(policy.as_mut(), &view, &events), (vec![1024], 0));
    refuse_split(policy.as_mut(), &view, 1024, Refusal::Busy);
    let one = |policy: &mut dyn Migration| splits_after(policy, &view, std::slice::from_ref(&events));
    // The page for 512 base pages; the view says that it is on slow memory still.
    assert_eq!(one(policy.as_mut()), (vec![], 513));
    let tried_again = (0..30).find(|_| !one(policy.as_mut()).0.is_empty());
    assert_eq!(tried_again, Some(20));
}

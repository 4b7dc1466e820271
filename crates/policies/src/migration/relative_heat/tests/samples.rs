//! Decisions by access samples.

use super::*;

/// Later than any sample of an epoch that begins at time 0.
const LATER: Time = Time::from_ms(100_000);

#[test]
fn samples_find_the_hot_pages_in_regions_of_one_heat_and_each_moves_once() {
    let view = seen(&[region(0, 1000, SLOW, 25), region(2000, 980, FAST, 25)], 20);
    let scattered = || (0..1000).step_by(100).flat_map(|start| start..start + 4);
    let mut policy = policy("relative-heat");
    let moved = epochs(policy.as_mut(), &view, &samples(scattered(), SLOW, 10), EPOCHS_MIN);
    let (last, before) = moved.split_last().unwrap();
    assert!(before.iter().all(|[up, down]| up.is_empty() && down.is_empty()), "too early");
    let [mut up, down] = last.clone();
    up.sort_unstable();
    assert_eq!(up, scattered().collect::<Vec<_>>());
    assert_eq!(down.len(), 40);
    assert!(down.iter().all(|page| (2000..2980).contains(page)));
    // The regions still say that they are on the slow node, and the policy knows better.
    let moved = epochs(policy.as_mut(), &view, &samples(scattered(), FAST, 10), 5);
    assert!(moved.iter().all(|[up, down]| up.is_empty() && down.is_empty()), "{moved:?}");
    // They cool down, and others need their place.
    let others = 510..550;
    let moved = epochs(policy.as_mut(), &view, &samples(others.clone(), SLOW, 100), 40);
    let up: BTreeSet<u64> = moved.iter().flat_map(|[up, _]| up.clone()).collect();
    assert_eq!(up, others.collect());
}

#[test]
fn plans_grow_after_calm_ones_and_those_of_a_saved_policy_alike() {
    let mut view = seen(&[region(0, 10_000, SLOW, 25), region(20_000, 6000, FAST, 25)], 0);
    view.nodes = vec![node_view(FAST, 6150, 150)];
    let mut saved = policy("relative-heat");
    let calm = epochs(saved.as_mut(), &view, &samples(20_000..20_020, FAST, 20), 8);
    assert!(calm.iter().flatten().all(|pages| pages.is_empty()));
    let mut resumed = policy("relative-heat");
    resumed.resume(&saved.state()).unwrap();
    let [of_saved, of_resumed] = [saved, resumed].map(|mut policy| {
        let moved = epochs(policy.as_mut(), &view, &samples((0..10_000).step_by(2), SLOW, 10), 8);
        moved.into_iter().map(|[up, _]| up.len() as u64).filter(|&up| up > 0).collect::<Vec<_>>()
    });
    assert_eq!(of_saved, of_resumed);
    assert_eq!(of_saved[0], CANDIDATES_MIN);
    assert!(of_saved[1] > CANDIDATES_MIN, "{of_saved:?}");
}

#[test]
fn equally_sampled_pages_stay_and_so_do_those_that_prefetching_hides() {
    let view = seen(&[region(0, 1000, SLOW, 0), region(2000, 980, FAST, 0)], 20);
    let fast = samples(2000..2980, FAST, 2);
    let is_still = |events: &[Event]| {
        let moved = epochs(policy("relative-heat").as_mut(), &view, events, 4);
        moved.into_iter().flatten().all(|pages| pages.is_empty())
    };
    let mut slow = samples(0..1000, SLOW, 2);
    assert!(is_still(&[fast.clone(), slow].concat()));
    slow = with_latency(samples(0..1000, SLOW, 20), 12.0);
    assert!(is_still(&[fast, slow].concat()));
}

#[test]
fn cold_pages_of_a_saturated_huge_page_yield_by_samples() {
    // Each of them has an access in every sampling interval.
    let huge = |start, node| Region { size: PageSize::Huge, ..region(start, 1, node, 50) };
    let view = seen(&[huge(512, SLOW), huge(1024, FAST)], 20);
    let events = with_size(samples(512..1024, SLOW, 10), PageSize::Huge);
    let moved = epochs(policy("relative-heat").as_mut(), &view, &events, EPOCHS_MIN);
    assert_eq!(moved.last().unwrap(), &[vec![512], vec![1024]]);
    let none = epochs(policy("relative-heat:period=0").as_mut(), &view, &[], EPOCHS_MIN);
    assert!(none.iter().flatten().all(|pages| pages.is_empty()));
}

#[test]
fn pages_that_are_never_accessed_again_stop_being_promoted_until_others_stay_hot() {
    let view = seen(&[region(0, 100_000, SLOW, 0), region(200_000, 980, FAST, 0)], 20);
    let mut policy = policy("relative-heat:half_life_ms=500");
    let mut promoted = |first: u64| {
        let mut events = samples(first..first + 10, SLOW, 20);
        for event in &mut events {
            let Event::AccessSample(sample) = event else { continue };
            sample.period = 10;
        }
        epochs(policy.as_mut(), &view, &events, 1)[0][0].len()
    };
    let changing: Vec<usize> = (0..100).map(|epoch| promoted(epoch * 300)).collect();
    assert!((30..100).contains(&changing.iter().sum::<usize>()), "{changing:?}");
    assert_eq!(changing[10..].iter().sum::<usize>(), 0, "{changing:?}");
    let steady: Vec<usize> = (0..30).map(|_| promoted(50_000)).collect();
    assert!(steady.contains(&10), "{steady:?}");
}

/// Pages that go up in 60 epochs, over and over, if pages on slow memory from 0 on, and on fast memory from
/// 10,000 on, are accessed in proportion to these weights of pages on nodes.
fn promoted_by_chance(pages: u64, weight: impl Fn(u64, NodeId) -> u64) -> Vec<u64> {
    let mut view = seen(&[region(0, pages, SLOW, 25), region(10_000, pages, FAST, 25)], 0);
    view.nodes = vec![node_view(FAST, pages + pages / 50, pages / 50)];
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut nodes: Vec<NodeId> = (0..20_000).map(|page| if page < 10_000 { SLOW } else { FAST }).collect();
    let mut policy = policy("relative-heat");
    let mut promoted = Vec::new();
    for _ in 0..60 {
        let all = (0..pages).chain(10_000..10_000 + pages);
        let times = |page: u64| weight(page, nodes[page as usize]);
        let weighted: Vec<u64> = all.flat_map(|page| (0..times(page)).map(move |_| page)).collect();
        let events = (0..2000).flat_map(|_| {
            let page = weighted[random.next_u64() as usize % weighted.len()];
            samples([page].into_iter(), nodes[page as usize], 1)
        });
        let events: Vec<Event> = events.collect();
        let [up, down] = &epochs(policy.as_mut(), &view, &events, 1)[0];
        up.iter().for_each(|&page| nodes[page as usize] = FAST);
        down.iter().for_each(|&page| nodes[page as usize] = SLOW);
        promoted.extend(up);
    }
    promoted
}

#[test]
fn pages_that_are_accessed_alike_are_hardly_exchanged_by_chance() {
    let alike = promoted_by_chance(8000, |_, _| 1).len();
    assert!(alike < 240, "{alike} of 8000 pages: 3 % in 60 epochs");
    let is_hot = |page: u64| page < 8000 && page % 256 < 4;
    let promoted = promoted_by_chance(8000, |page, _| if is_hot(page) { 100 } else { 1 });
    let hot: BTreeSet<u64> = promoted.iter().copied().filter(|&page| is_hot(page)).collect();
    assert_eq!(hot.len(), 128, "of 8000 / 256 * 4 hot pages");
}

#[test]
fn pages_that_are_hot_wherever_memory_is_slow_are_not_exchanged_again_and_again() {
    // Prefetching hides nine tenths of a stream's accesses to fast memory. By what promotions keep alone,
    // each page is exchanged four times.
    let streamed = promoted_by_chance(1000, |_, node| if node == SLOW { 10 } else { 1 }).len();
    assert!(streamed < 2500, "{streamed} promotions of 1000 pages");
}

#[test]
fn huge_page_yields_to_base_pages_only_if_they_are_accessed_more_than_all_of_it() {
    let huge = Region { size: PageSize::Huge, ..region(1024, 1, FAST, 50) };
    let view = seen(&[region(0, 20, SLOW, 50), huge], 20);
    let of_huge = with_size(samples(1024..1536, FAST, 2), PageSize::Huge);
    for (each, up) in [(20, 0), (200, 20)] {
        let events = [samples(0..20, SLOW, each), of_huge.clone()].concat();
        let moved = epochs(policy("relative-heat").as_mut(), &view, &events, EPOCHS_MIN);
        let [promoted, demoted] = moved.last().unwrap();
        assert_eq!((promoted.len(), demoted.len()), (up, up.min(1)), "{each} of each");
    }
}

#[test]
fn pages_stay_where_moves_took_longer_than_they_save() {
    let view = seen(&[region(0, 1000, SLOW, 0), region(2000, 980, FAST, 0)], 20);
    let moved_after = |action_time| {
        let mut policy = policy("relative-heat");
        epochs(policy.as_mut(), &view, &samples(0..200, SLOW, 10), EPOCHS_MIN);
        let view = View { action_time, ..view.clone() };
        // 200 pages went up, and as many down.
        let up = &epochs(policy.as_mut(), &view, &samples(300..400, SLOW, 100), 1)[0][0];
        up.len()
    };
    assert_eq!(moved_after(None), 100);
    assert_eq!(moved_after(Some(Time::from_ms(1))), 100, "2.5 us a page");
    assert_eq!(moved_after(Some(Time::from_ms(60_000))), 0, "150 ms a page");
}

#[test]
fn access_samples_are_asked_for_before_regions_for_their_share_of_the_budget() {
    let sensors = policy("relative-heat:budget=2").sensors();
    let Sensor::AccessSamples(accesses) = sensors.iter().next().expect("a sensor").sensor else {
        panic!("samples come first");
    };
    assert_eq!(accesses.budget_bp, Some(80));
    let names: Vec<&str> = sensors.iter().map(|request| request.sensor.name()).collect();
    assert_eq!(names, ["access-samples", "regions"]);
}

#[test]
fn written_pages_go_before_read_ones_where_writes_are_dear() {
    let view = seen(&[region(0, 1000, SLOW, 0), region(2000, 980, FAST, 0)], 20);
    let written = as_stores(samples(500..510, SLOW, 10));
    for (write_ns, first) in [(240.0, 0..10), (560.0, 500..510)] {
        // Twice as many loads as stores: a store of 560 ns counts as 3 loads.
        let events = [samples(0..10, SLOW, 20), written.clone()].concat();
        let mut policy = policy_on(&with_writes(write_ns), "relative-heat:pages=10");
        let moved = epochs(policy.as_mut(), &view, &events, EPOCHS_MIN);
        let mut up = moved.last().unwrap()[0].clone();
        up.sort_unstable();
        assert_eq!(up, first.collect::<Vec<_>>(), "{write_ns} ns");
    }
}

#[test]
fn pages_accessed_while_slow_memory_is_loaded_go_before_ones_that_are_accessed_more() {
    let view = seen(&[region(0, 2000, SLOW, 0), region(4000, 980, FAST, 0)], 20);
    for (loaded_ns, first) in [(240.0, 0..10), (960.0, 1000..1010)] {
        let others = from_time(with_latency(samples(1000..1010, SLOW, 10), loaded_ns), LATER);
        let events = [from_time(samples(0..10, SLOW, 20), Time::ZERO), others].concat();
        let mut policy = policy("relative-heat:pages=10");
        let moved = epochs(policy.as_mut(), &view, &events, EPOCHS_MIN);
        let mut up = moved.last().unwrap()[0].clone();
        up.sort_unstable();
        assert_eq!(up, first.collect::<Vec<_>>(), "{loaded_ns} ns");
    }
}

#[test]
fn streamed_pages_on_fast_and_slow_memory_are_equally_hot() {
    let view = seen(&[region(0, 1000, SLOW, 0), region(2000, 980, FAST, 0)], 20);
    // Half of them move in an epoch, so that slow memory is not emptied of all load at once.
    for (stream_at, moves) in [(LATER, 0..=0), (Time::ZERO, 450..=500)] {
        let stream_on_slow = with_latency(samples(0..1000, SLOW, 2), 2400.0);
        let on_slow = from_time(stream_on_slow, LATER);
        let events = [from_time(samples(2000..2980, FAST, 2), stream_at), on_slow].concat();
        let others = from_time(samples(0..1000, SLOW, 1), Time::ZERO);
        let moved = epochs(policy("relative-heat").as_mut(), &view, &[events, others].concat(), EPOCHS_MIN);
        let up = moved.last().unwrap()[0].len();
        assert!(moves.contains(&up), "{stream_at:?}: {up}");
    }
}

#[test]
fn accesses_count_less_if_their_thread_waits_for_several_at_a_time() {
    let view = seen(&[region(0, 1000, SLOW, 0), region(2000, 980, FAST, 0)], 20);
    // One thread waits for a line after the other, 4.8 of 5 ms. Of the others' pages each has 2.5 times as
    // many accesses: of one thread, which waits for 4.8 at a time, or of five, which wait for one.
    let chase = of_thread(samples(0..10, SLOW, 10), 0, 20_000, Time::from_ms(5));
    for (threads, first) in [(1, 0..10), (5, 500..520)] {
        let others = (1..=threads).flat_map(|thread| {
            let pages = (500..520).filter(|page| page % threads == thread - 1);
            of_thread(samples(pages, SLOW, 25), thread as u32, 20_000, Time::from_ms(threads))
        });
        let others: Vec<Event> = others.collect();
        let events = [chase.clone(), others].concat();
        let mut policy = policy("relative-heat:pages=10");
        let moved = epochs(policy.as_mut(), &view, &events, EPOCHS_MIN);
        let up = &moved.last().unwrap()[0];
        assert!(up.len() == 10 && up.iter().all(|page| first.contains(page)), "{threads}: {up:?}");
    }
}

//! Loaded nodes, and latencies of samples.

use super::*;

#[test]
fn accesses_leave_a_loaded_fast_node_until_latencies_are_equal() {
    let mut view = seen(&[region(0, 500, SLOW, 0), region(2000, 980, FAST, 0)], 200);
    view.nodes.push(node_view(SLOW, 10_000, 9000));
    let down = |fast_ns, slow_ns| {
        let fast = with_latency(samples(2000..2980, FAST, 4), fast_ns);
        let slow = with_latency(samples(0..500, SLOW, 4), slow_ns);
        let moved = epochs(policy("relative-heat").as_mut(), &view, &[fast, slow].concat(), EPOCHS_MIN);
        let [up, down] = moved.last().unwrap().clone();
        (up.len(), down.len())
    };
    // The half of 1 - 240 / 480 of 980 pages that are accessed alike.
    assert_eq!(down(480.0, 240.0), (0, 245));
    assert_eq!(down(260.0, 240.0), (0, 0), "nearly equal");
    // A loaded slow node gives away a part of its accesses at once: free memory above 2 % is 180 pages.
    let (up, _) = down(80.0, 480.0);
    assert!((180..=500 * 400 / 960).contains(&up), "{up}");
    let (up, _) = down(200.0, 240.0);
    assert_eq!(up, 500 * 40 / 480, "a loaded fast node takes few");
}

#[test]
fn nodes_without_load_keep_their_pages_whichever_is_nearer() {
    // HBM, whose idle latency is above DDR5's.
    let hbm =
        machine(&[N { read_ns: 130.0, ..node(0, 0, 90_000.0) }, N { read_ns: 110.0, ..node(1, 0, 9000.0) }]);
    let policy = || crate::parse("local+relative-heat").unwrap().migration(&hbm);
    let view = seen(&[region(0, 500, SLOW, 0), region(2000, 500, FAST, 0)], 400);
    let with = |slow_ns| {
        let fast = with_latency(samples(2000..2500, FAST, 4), 130.0);
        let slow = with_latency(samples(0..500, SLOW, 4), slow_ns);
        let moved = epochs(policy().as_mut(), &view, &[fast, slow].concat(), EPOCHS_MIN);
        moved.last().unwrap().clone().map(|pages| pages.len())
    };
    assert_eq!(with(110.0), [0, 0]);
    let [up, down] = with(390.0);
    assert_eq!((up, down), (500 * 260 / 390 / 2, 0), "DDR5 is loaded");
}

/// As of streams, which wait less on fast memory than elsewhere, for prefetching hides more there.
#[test]
fn exchanges_of_pages_that_seem_hotter_on_slow_memory_alone_become_rare() {
    let view = seen(&[region(0, 1000, SLOW, 0), region(2000, 980, FAST, 0)], 20);
    let mut policy = policy("relative-heat");
    let mut fast: BTreeSet<u64> = (2000..2980).collect();
    let all: Vec<u64> = (0..1000).chain(2000..2980).collect();
    let mut moved = Vec::new();
    for _ in 0..60 {
        let (on_fast, on_slow): (Vec<u64>, Vec<u64>) = all.iter().partition(|&page| fast.contains(page));
        let events = [samples(on_fast.into_iter(), FAST, 1), samples(on_slow.into_iter(), SLOW, 4)].concat();
        let [up, down] = epochs(policy.as_mut(), &view, &events, 1).remove(0);
        moved.push(up.len() + down.len());
        down.iter().for_each(|page| _ = fast.remove(page));
        fast.extend(up);
    }
    let [first, last] = [&moved[..20], &moved[40..]].map(|part| part.iter().sum::<usize>());
    assert!(first > 500 && last * 10 < first, "{moved:?}");
}

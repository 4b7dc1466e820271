//! Free memory: what is kept, made and used.

use super::*;

#[test]
fn idle_pages_stay_on_fast_memory_that_has_room() {
    let regions = [region(0, 100, FAST, 0), region(100, 100, SLOW, 0), region(200, 50, SLOW, 30)];
    let (up, down) = decide("relative-heat", &regions, 800);
    assert_eq!((up, down), ((200..250).collect(), vec![]));
}

#[test]
fn hottest_go_first_and_limits_are_kept() {
    let regions = [
        region(0, 100, SLOW, 20),
        region(100, 100, SLOW, 40),
        region(200, 700, FAST, 1),
        region(900, 100, FAST, 0),
    ];
    let (up, down) = decide("relative-heat:pages=60", &regions, 20);
    assert_eq!((up, down), ((100..160).collect(), (900..960).collect()));
    let (up, down) = decide("relative-heat:low=3:high=3", &regions[..2], 100);
    assert_eq!((up.len(), down.len()), (70, 0), "3 % of the node's 1,000 pages stay free");
    let (up, down) = decide("relative-heat:low=2:high=4", &regions[..2], 100);
    assert_eq!((up.len(), down.len()), (60, 0), "room between low and high is not for promotions");
    let victims = [region(0, 100, SLOW, 40), region(200, 5, FAST, 0), region(300, 900, FAST, 40)];
    let (up, down) = decide("relative-heat:low=2:high=4", &victims, 30);
    assert_eq!((up.len(), down.len()), (5, 5), "nor if others make room");
}

#[test]
fn full_node_is_demoted_until_high_is_free() {
    let (up, down) =
        decide("relative-heat:low=2:high=5", &[region(0, 900, FAST, 9), region(900, 90, FAST, 2)], 10);
    assert_eq!((up, down), (vec![], (900..940).collect()));
}

#[test]
fn memory_as_hot_as_what_may_come_is_not_freed_for_it() {
    for reads in [1, 9, 50] {
        let alike = [region(0, 900, FAST, reads), region(900, 90, FAST, reads)];
        assert_eq!(decide("relative-heat", &alike, 0), (vec![], vec![]), "{reads}");
    }
    let idle = [region(0, 990, FAST, 0)];
    assert_eq!(decide("relative-heat", &idle, 0).1.len(), 20, "idle pages are");
    let mut view = seen(&idle, 0);
    for (per_cpu_pages, freed) in [(5, 15), (10, 0), (400, 0)] {
        view.nodes[0].per_cpu_pages = per_cpu_pages;
        assert_eq!(decide_on("relative-heat", &view).1.len(), freed, "{per_cpu_pages} on per-CPU lists");
    }
}

#[test]
fn pages_of_per_cpu_lists_are_promoted_to_while_low_free_memory_is_left_beside_them() {
    let regions = [region(0, 100, SLOW, 40), region(100, 900, FAST, 40)];
    // Of 1,000 pages at least 10 free ones stay, and at least 20 free ones and those of lists together.
    for (free, per_cpu_pages, promoted) in
        [(15, 0, 0), (15, 5, 0), (15, 8, 3), (15, 100, 5), (40, 100, 30), (0, 100, 0)]
    {
        let mut view = seen(&regions, free);
        view.nodes[0].per_cpu_pages = per_cpu_pages;
        let (up, down) = decide_on("relative-heat", &view);
        assert_eq!((up.len(), down.len()), (promoted, 0), "{free} free, {per_cpu_pages} on lists");
    }
}

#[test]
fn exchange_that_costs_more_than_it_saves_is_not_made() {
    // 10 pages are demoted for free memory before one is promoted to it; 9 to 1 in accesses.
    for (hot, exchanged) in [(1, (0, 0)), (2, (2, 12)), (20, (20, 30))] {
        let regions = [region(0, hot, SLOW, 40), region(100, 970, FAST, 8)];
        let mut view = seen(&regions, 0);
        view.nodes[0].per_cpu_pages = 100;
        let (up, down) = decide_on("relative-heat", &view);
        assert_eq!((up.len() as u64, down.len()), exchanged, "{hot} hot pages");
    }
}

#[test]
fn free_memory_that_an_exchange_needs_first_may_take_several_epochs() {
    // `pages` promotions in an epoch at most, and the demotions for them; before them 10 demotions for free
    // memory, of which an epoch has `pages` at most, too.
    for (pages, exchanged) in [(40, (40, 50)), (20, (20, 30)), (8, (0, 16))] {
        let regions = [region(0, 100, SLOW, 40), region(200, 970, FAST, 4)];
        let mut view = seen(&regions, 0);
        view.nodes[0].per_cpu_pages = 100;
        let (up, down) = decide_on(&format!("relative-heat:pages={pages}"), &view);
        assert_eq!((up.len(), down.len()), exchanged, "{pages} pages per epoch");
    }
}

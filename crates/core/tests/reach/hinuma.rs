//! hinuma (Duan et al. 2019): while DRAM is full, a hot page on NVM is exchanged with a cold one on DRAM.

use std::cmp::Reverse;

use memtide_core::epoch::Limits;
use memtide_core::policy::{
    Action, Cancellation, Delivery, Event, Migration, Outcome, Plan, Reason, Refusal, Region, Sensors, View,
    Wake,
};
use memtide_core::{NodeId, PageSize, Time, Vpn};

use super::{EPOCH, FAST, REGIONS, Run, SLOW, TASK, accesses, move_of, pages};

/// Pages with this many accesses an epoch are hot.
struct Hanb(u32);

impl Migration for Hanb {
    fn sensors(&self) -> Sensors {
        Sensors::new(Delivery::Deployable, EPOCH).require(REGIONS)
    }

    fn on_event(&mut self, _: &Event, _: &View, _: &mut Plan) {}

    fn decide(&mut self, view: &View, plan: &mut Plan) -> Wake {
        let on = |node: NodeId| view.regions.iter().filter(move |region| region.node == node);
        let mut hot: Vec<Region> = on(SLOW).filter(|region| accesses(region) >= self.0).collect();
        let mut cold: Vec<Region> = on(FAST).filter(|region| accesses(region) == 0).collect();
        hot.sort_by_key(|region| Reverse(accesses(region)));
        cold.sort_by_key(|region| Reverse(region.age));
        let (hot, cold) = (hot.iter().flat_map(pages), cold.iter().flat_map(pages));
        for (hot, cold) in hot.zip(cold) {
            let pair = [move_of(hot, SLOW, FAST), move_of(cold, FAST, SLOW)];
            plan.push(Action::Exchange(Box::new(pair)), Reason::Hot);
        }
        Wake::After(EPOCH)
    }
}

/// Pages 0 to 3 fill DRAM, 4 to 7 NVM; 5 and 7 are hot, 0 and 1 cold.
fn full(limits: Limits) -> Run {
    let mut run = Run::new(Hanb(3), &[4, 4], limits);
    run.map(0..4, FAST);
    run.map(4..8, SLOW);
    [2, 3].into_iter().for_each(|page| run.page(page).reads = 1);
    [5, 7].into_iter().for_each(|page| run.page(page).writes = page as u32);
    run
}

#[test]
fn hot_and_cold_pages_are_exchanged_on_full_nodes() {
    let mut run = full(Limits::default());
    run.epoch();
    let (f, s) = (FAST, SLOW);
    assert_eq!(run.nodes_of(0..8), [s, s, f, f, s, f, s, f]);
    assert_eq!([run.moved(SLOW, FAST), run.moved(FAST, SLOW)], [2, 2]);
    assert_eq!([FAST, SLOW].map(|node| run.host.node(node).free_pages), [0, 0]);
    run.epoch();
    assert_eq!(run.outcomes(), [Outcome::MADE; 2], "one completion for a pair, and then nothing is hot");
}

#[test]
fn exchange_fails_if_one_page_is_unmapped() {
    for unmapped in [0, 7] {
        let mut run = full(Limits::default());
        run.host.action_time = EPOCH;
        run.epoch();
        assert_eq!((run.runner.governor().in_flight(), run.moved_in_all()), (2, 0));
        run.host.unmap(TASK, Vpn(unmapped));
        let stays = 7 - unmapped;
        let node = run.page(stays).node;
        (0..3).for_each(|_| _ = run.epoch());
        assert_eq!(run.page(stays).node, node);
        assert_eq!(run.outcomes(), [Outcome::Cancelled(Cancellation::Unmapped), Outcome::MADE]);
        assert_eq!([run.moved(SLOW, FAST), run.moved(FAST, SLOW)], [1, 1], "5 and 1 alone");
    }
}

#[test]
fn governor_admits_both_pages_or_neither() {
    let mut run = full(Limits { moves_per_epoch: Some(3), ..Limits::default() });
    run.epoch();
    assert_eq!(run.moved_in_all(), 2);
    let over_cap = Outcome::Refused(Refusal::OverCap);
    assert_eq!(run.outcomes().iter().filter(|outcome| **outcome == over_cap).count(), 1);
    let page = PageSize::Base.bytes();
    let mut run = full(Limits { bytes_per_second: Some(10 * 2 * page), ..Limits::default() });
    run.epoch();
    assert_eq!(run.runner.governor().allowance_bytes(Time::from_ms(100)), Some(0), "both have their cost");
    assert_eq!(run.runner.governor().recorded().refused[&Refusal::RateLimited], 1);
}

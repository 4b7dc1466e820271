//! TPP (Maruf et al., ASPLOS 2023): idle pages are demoted proactively by watermarks; a second hint fault
//! promotes a page.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use memtide_core::epoch::Limits;
use memtide_core::policy::{
    Delivery, Event, Migration, Outcome, Page, Plan, Reason, Refusal, Region, Sensor, Sensors, View, Wake,
    Watermarks,
};
use memtide_core::{CpuId, TaskId, Time, Vpn};

use super::{EPOCH, FAST, REGIONS, Run, SLOW, TASK, move_of, pages};

/// Time to the next epoch if there is nothing to do.
const REST: Time = Time::from_ms(1000);

/// Epochs without an access that make a page idle.
const IDLE: u32 = 2;

#[derive(Default)]
struct Tpp {
    demotes: bool,
    /// Pages on slow memory with one fault.
    faulted: BTreeSet<(TaskId, Vpn)>,
}

impl Migration for Tpp {
    fn sensors(&self) -> Sensors {
        let sensors = Sensors::new(Delivery::Deployable, EPOCH);
        sensors.require(Sensor::Watermarks).require(Sensor::HintFaults).require(REGIONS)
    }

    fn on_event(&mut self, event: &Event, _: &View, plan: &mut Plan) {
        let Event::HintFault(fault) = event else { return };
        let key = (fault.task, fault.page);
        if fault.node == SLOW && !self.faulted.insert(key) {
            self.faulted.remove(&key);
            let page = Page { task: fault.task, page: fault.page, size: fault.size };
            plan.push_move(move_of(page, SLOW, FAST), Reason::Hot);
        }
    }

    fn decide(&mut self, view: &View, plan: &mut Plan) -> Wake {
        let fast = view.node(FAST).expect("a machine with fast memory");
        let Some(Watermarks { low_pages, high_pages }) = fast.watermarks else { return Wake::Never };
        self.demotes = fast.free_pages < if self.demotes { high_pages } else { low_pages };
        if self.demotes {
            let is_idle = |region: &Region| region.node == FAST && region.age >= IDLE;
            let mut idle: Vec<Region> = view.regions.iter().filter(is_idle).collect();
            idle.sort_by_key(|region| Reverse(region.age));
            let wanted = (high_pages - fast.free_pages) as usize;
            for page in idle.iter().flat_map(pages).take(wanted) {
                plan.push_move(move_of(page, FAST, SLOW), Reason::Cold);
            }
        }
        let is_busy = self.demotes || !plan.actions().is_empty();
        Wake::After(if is_busy { EPOCH } else { REST })
    }
}

/// Fast memory has 100 pages, a low watermark of 10 and a high one of 20.
fn machine() -> Run {
    let mut run = Run::new(Tpp::default(), &[100, 200], Limits::default());
    run.host.node(FAST).watermarks = Some(Watermarks { low_pages: 10, high_pages: 20 });
    run
}

/// An epoch in which the pages from `idle` on are read.
fn epoch(run: &mut Run, idle: u64, pages: u64) -> Wake {
    (idle..pages).for_each(|page| run.page(page).reads = 1);
    run.epoch()
}

fn free(run: &mut Run) -> u64 {
    run.host.node(FAST).free_pages
}

#[test]
fn idle_pages_are_demoted_below_the_low_watermark_until_the_high_one() {
    let mut run = machine();
    run.map(0..90, FAST);
    (0..4).for_each(|_| _ = epoch(&mut run, 50, 90));
    assert_eq!((free(&mut run), run.moved_in_all()), (10, 0), "not below the low watermark");
    run.map(90..92, FAST);
    (0..4).for_each(|_| _ = epoch(&mut run, 50, 92));
    assert_eq!((free(&mut run), run.moved(FAST, SLOW)), (20, 12));
    assert!(run.nodes_of(50..92).iter().all(|node| *node == FAST), "pages in use stay");
}

#[test]
fn demotion_continues_to_high_watermark_as_pages_become_idle() {
    let mut run = machine();
    run.map(0..92, FAST);
    (0..4).for_each(|_| _ = epoch(&mut run, 5, 92));
    assert_eq!((free(&mut run), run.moved_in_all()), (13, 5), "no more pages are idle");
    (0..4).for_each(|_| _ = epoch(&mut run, 50, 92));
    assert_eq!((free(&mut run), run.moved_in_all()), (20, 12), "though more than low was free");
}

#[test]
fn second_hint_fault_promotes_a_page() {
    let mut run = machine();
    run.map(0..8, SLOW);
    [3, 5].into_iter().for_each(|page| _ = run.host.hint_fault(TASK, Vpn(page), CpuId(0)));
    run.epoch();
    assert_eq!(run.moved_in_all(), 0);
    run.host.hint_fault(TASK, Vpn(5), CpuId(0));
    run.epoch();
    assert_eq!((run.page(5).node, run.page(3).node, run.moved(SLOW, FAST)), (FAST, SLOW, 1));
    run.map(100..199, FAST);
    run.host.hint_fault(TASK, Vpn(3), CpuId(0));
    run.epoch();
    assert_eq!(run.outcomes()[1], Outcome::Refused(Refusal::NoRoom));
    assert_eq!(run.page(3).node, SLOW);
}

#[test]
fn idle_policy_wakes_less_often() {
    let mut run = machine();
    run.map(0..92, FAST);
    run.map(200..201, SLOW);
    let wakes: Vec<Wake> = (0..5).map(|_| epoch(&mut run, 50, 92)).collect();
    let (busy, rest) = (Wake::After(EPOCH), Wake::After(REST));
    assert_eq!(wakes, [busy, busy, rest, rest, rest], "pages are idle in the second epoch");
    let fault = |run: &mut Run| _ = run.host.hint_fault(TASK, Vpn(200), CpuId(0));
    fault(&mut run);
    assert_eq!(epoch(&mut run, 50, 92), rest);
    fault(&mut run);
    assert_eq!(epoch(&mut run, 50, 92), busy);
}

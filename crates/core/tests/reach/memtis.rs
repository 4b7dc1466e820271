//! MEMTIS (Lee et al., SOSP 2023): a huge page with all samples in a few base pages is split, and only those
//! move.

use std::collections::BTreeMap;

use memtide_core::epoch::{Host as _, Limits};
use memtide_core::policy::{
    AccessSample, AccessSampling, Action, Cancellation, Delivery, Event, Migration, Outcome, Page, Plan,
    Reason, Sensor, Sensors, View, Wake,
};
use memtide_core::{PageSize, ThreadId, Time, Vpn};

use super::{EPOCH, FAST, Run, SLOW, TASK, move_of};

/// Minimum samples of a hot page.
const HOT: u32 = 4;

/// A huge page with fewer hot base pages than this is skewed.
const SKEWED: usize = 16;

/// Samples of base pages, by their huge page on slow memory.
#[derive(Default)]
struct Memtis(BTreeMap<Page, BTreeMap<Vpn, u32>>);

impl Migration for Memtis {
    fn sensors(&self) -> Sensors {
        Sensors::new(Delivery::Deployable, EPOCH)
            .require(Sensor::AccessSamples(AccessSampling { period: 200, budget_bp: None }))
    }

    fn on_event(&mut self, event: &Event, _: &View, plan: &mut Plan) {
        match event {
            Event::AccessSample(sample) if sample.node == SLOW && sample.size == PageSize::Huge => {
                let head = Vpn(sample.page.0 - sample.page.0 % PageSize::Huge.base_pages());
                let huge = Page { task: sample.task, page: head, size: PageSize::Huge };
                *self.0.entry(huge).or_default().entry(sample.page).or_default() += 1;
            }
            Event::Completion(done) => {
                let Action::Split(huge) = done.planned.action else { return };
                let samples = self.0.remove(&huge).unwrap_or_default();
                for (page, _) in samples.into_iter().filter(|(_, n)| *n >= HOT && done.outcome.is_made()) {
                    let base = Page { page, size: PageSize::Base, ..huge };
                    plan.push_move(move_of(base, SLOW, FAST), Reason::Hot);
                }
            }
            _ => {}
        }
    }

    fn decide(&mut self, _: &View, plan: &mut Plan) -> Wake {
        for (&huge, samples) in &self.0 {
            match samples.values().filter(|samples| **samples >= HOT).count() {
                0 => {}
                1..SKEWED => _ = plan.push(Action::Split(huge), Reason::Hot),
                _ => _ = plan.push_move(move_of(huge, SLOW, FAST), Reason::Hot),
            }
        }
        Wake::After(EPOCH)
    }
}

const SKEWED_PAGE: u64 = 512;
const EVEN_PAGE: u64 = 1024;
const COLD_PAGE: u64 = 1536;

/// A hot page with few hot base pages, a hot one with many, and a cold one.
fn three_huge_pages() -> Run {
    let mut run = Run::new(Memtis::default(), &[4096, 4096], Limits::default());
    for page in [SKEWED_PAGE, EVEN_PAGE, COLD_PAGE] {
        run.host.map(TASK, Vpn(page), PageSize::Huge, SLOW);
    }
    for _ in 0..HOT {
        [7, 300].into_iter().for_each(|at| sample(&mut run, SKEWED_PAGE + at));
        (0..256).for_each(|at| sample(&mut run, EVEN_PAGE + at * 2));
    }
    [0, 9].into_iter().for_each(|at| sample(&mut run, SKEWED_PAGE + at));
    sample(&mut run, COLD_PAGE);
    run
}

fn sample(run: &mut Run, page: u64) {
    let (time, thread, latency) = (run.host.now(), ThreadId(1), Some(Time::from_ns(300.0)));
    let (page, size, node) = (Vpn(page), PageSize::Huge, SLOW);
    let sample =
        AccessSample { time, task: TASK, thread, page, size, node, latency, period: 200, write: false };
    run.host.event(Event::AccessSample(sample));
}

#[test]
fn skewed_huge_page_is_split_and_its_hot_base_pages_move() {
    let mut run = three_huge_pages();
    run.host.action_time = EPOCH;
    run.epoch();
    assert_eq!((run.page(SKEWED_PAGE).size, run.moved_in_all()), (PageSize::Huge, 0), "it takes its time");
    (0..6).for_each(|_| _ = run.epoch());
    let on_fast: Vec<u64> = (SKEWED_PAGE..EVEN_PAGE).filter(|page| run.page(*page).node == FAST).collect();
    assert_eq!(on_fast, [SKEWED_PAGE + 7, SKEWED_PAGE + 300]);
    assert_eq!(run.page(SKEWED_PAGE).size, PageSize::Base);
    for (page, node) in [(EVEN_PAGE, FAST), (COLD_PAGE, SLOW)] {
        assert_eq!((run.page(page).size, run.page(page).node), (PageSize::Huge, node));
    }
    assert_eq!((run.moved(SLOW, FAST), run.moved_in_all()), (512 + 2, 512 + 2), "a split moves nothing");
}

#[test]
fn unmapped_huge_page_is_neither_split_nor_moved() {
    let mut run = three_huge_pages();
    run.host.action_time = EPOCH;
    run.epoch();
    run.host.unmap(TASK, Vpn(SKEWED_PAGE));
    (0..6).for_each(|_| _ = run.epoch());
    let outcomes = run.outcomes();
    assert!(outcomes.contains(&Outcome::Cancelled(Cancellation::Unmapped)), "{outcomes:?}");
    assert_eq!((run.moved_in_all(), run.host.node(FAST).free_pages), (512, 4096 - 512));
}

//! TLB misses of marked page table entries, and a policy's own CPU time.

use crate::runs;
use crate::support;
use std::sync::{Arc, Mutex};

use memtide_core::policy::{
    Delivery, Event, Migration, Page, Plan, Sensor, Sensors, TlbMissSampling, View, Wake,
};
use memtide_core::{Machine, PAGE_BYTES, PageSize, TaskId, Time, Vpn};
use memtide_sim::{Policy, Report, run, run_shared};

use crate::runs::{assert_near, job};
use crate::support::{MachineText, alone, doing, follow, map, mixed};

const EPOCH: Time = Time::from_us(100);
const PAGES: u64 = 64;

/// What a policy has seen.
#[derive(Default)]
struct Seen {
    misses: u64,
    /// Sum of the counts in the views.
    counted: u64,
    views: Vec<View>,
}

/// Counts TLB misses, and spends time at each epoch.
struct Counts {
    sensors: Vec<Sensor>,
    delivery: Delivery,
    epoch: Time,
    work: Time,
    /// Counts the misses of the pages from this one on, if it chooses: see [`Plan::count`].
    counted_from: Option<u64>,
    seen: Arc<Mutex<Seen>>,
}

impl Migration for Counts {
    fn sensors(&self) -> Sensors {
        let none = Sensors::new(self.delivery, self.epoch);
        self.sensors.iter().fold(none, |sensors, sensor| sensors.require(*sensor))
    }

    fn on_event(&mut self, event: &Event, _: &View, _: &mut Plan) {
        if let Event::TlbMiss(miss) = event {
            assert!(miss.page.0 < PAGES && miss.size == PageSize::Base && !miss.write, "{miss:?}");
            self.seen.lock().expect("no panic").misses += 1;
        }
    }

    fn decide(&mut self, view: &View, plan: &mut Plan) -> Wake {
        plan.spend(self.work);
        if let Some(from) = self.counted_from {
            let task = view.tasks.first().map_or(TaskId(0), |task| task.task);
            let pages = from..PAGES + 3;
            plan.count(pages.map(|page| Page { task, page: Vpn(page), size: PageSize::Base }).collect());
        }
        let mut seen = self.seen.lock().expect("no panic");
        seen.counted += view.regions.iter().map(|region| region.pages * u64::from(region.reads)).sum::<u64>();
        seen.views.push(view.clone());
        Wake::After(self.epoch)
    }
}

/// A TLB of `entries`, and caches that hold every line of the chases here.
fn machine(entries: u32, marked_miss_ns: u32) -> Machine {
    MachineText::new(&format!("marked_miss_ns = {marked_miss_ns}"))
        .last_level(64, 2)
        .tlb(entries, 20)
        .socket("s", 2)
        .node("n", 0, "s", 64, 90.0, 20_000.0)
        .machine()
}

/// A chase through the first line of each page, round and round.
fn chase(rounds: u64) -> support::Script {
    let each = (0..rounds).flat_map(|_| (0..PAGES).map(|page| follow(page * PAGE_BYTES)));
    alone([map(0, PAGES * PAGE_BYTES, PageSize::Base), doing(each)])
}

fn counting(marking: Time, every_miss: bool) -> Vec<Sensor> {
    vec![Sensor::TlbMisses(TlbMissSampling { marking, every_miss, planned: false })]
}

struct Run {
    alone: bool,
    delivery: Delivery,
    sensors: Vec<Sensor>,
    work: Time,
    counted_from: Option<u64>,
}

fn measure(machine: &Machine, script: support::Script, wanted: Run) -> (Report, Seen) {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let Run { alone, delivery, sensors, work, counted_from } = wanted;
    let counts = Counts { sensors, delivery, epoch: EPOCH, work, counted_from, seen: seen.clone() };
    let policy = Policy::new(runs::policy(machine, "local").placement, Some(Box::new(counts)));
    let report = if alone {
        run(machine, vec![job(script, &[0])], policy, 1, &mut |_| true)
    } else {
        run_shared(machine, vec![job(script, &[])], vec![policy], 1, &|_, _| true).remove(0)
    };
    let report = report.expect("it runs");
    let seen = std::mem::take(&mut *seen.lock().expect("no panic"));
    (report, seen)
}

fn runs_of(sensors: &[Sensor]) -> impl Iterator<Item = Run> {
    [true, false].into_iter().flat_map(move |alone| {
        [Delivery::InKernel, Delivery::Deployable].map(|delivery| {
            let sensors = sensors.to_vec();
            Run { alone, delivery, sensors, work: Time::ZERO, counted_from: None }
        })
    })
}

#[test]
fn first_miss_of_each_page_counts_once_per_marking_and_costs_its_fault() {
    // A TLB that holds all pages: without marks, each misses once.
    for wanted in runs_of(&counting(Time::from_us(250), false)) {
        let name = format!("alone: {}, {:?}", wanted.alone, wanted.delivery);
        let (report, seen) = measure(&machine(64, 700), chase(2_000), wanted);
        // Marks come at 250 us, 500 us, ... and each of them is met.
        let marks = (report.time_ms / 0.25).floor();
        assert!(marks > 5.0, "{name}: {marks}");
        let counted = report.spent.system_ms / 700e-6;
        assert_near(counted, marks * PAGES as f64, 0.15, &format!("{name}: faults"));
        assert_eq!(counted.round() as u64, report.pages.marked_misses, "{name}");
        let most = (seen.misses as f64).max(counted) - (seen.counted as f64).min(counted);
        assert!(most <= PAGES as f64 + 0.5, "{name}: {counted} {} {}", seen.misses, seen.counted);
    }
}

#[test]
fn only_chosen_pages_are_marked_at_once_and_at_each_marking() {
    let sampling = |planned| {
        let (marking, every_miss) = (Time::from_us(250), false);
        vec![Sensor::TlbMisses(TlbMissSampling { marking, every_miss, planned })]
    };
    let counted = |from: Option<u64>, planned: bool| {
        let sensors = sampling(planned);
        let run = |wanted| {
            let wanted = Run { counted_from: from, ..wanted };
            let (report, seen) = measure(&machine(64, 700), chase(2_000), wanted);
            (seen.misses, report.spent.system_ms / 700e-6, (report.time_ms / 0.1).floor())
        };
        runs_of(&sensors).map(run).collect::<Vec<_>>()
    };
    // An epoch of 100 us marks a quarter of the pages; markings of 250 us never come, as each restarts them.
    for (misses, faults, epochs) in counted(Some(PAGES * 3 / 4), true) {
        let expected = epochs * (PAGES / 4) as f64;
        assert_near(faults, expected, 0.1, "faults");
        assert!(misses as f64 <= faults + 0.5 && misses as f64 >= faults - (PAGES / 4) as f64, "{misses}");
    }
    assert!(
        counted(None, true).iter().all(|(misses, faults, _)| (*misses, *faults) == (0, 0.0)),
        "none are chosen"
    );
    assert_eq!(counted(Some(1), false), counted(None, false), "all are marked");
}

#[test]
fn every_miss_counts_if_entries_stay_marked() {
    // A TLB of 16 entries under 64 pages in turn: each access misses.
    for wanted in runs_of(&counting(Time::from_us(100), true)) {
        let name = format!("alone: {}, {:?}", wanted.alone, wanted.delivery);
        let (report, seen) = measure(&machine(16, 700), chase(400), wanted);
        let faults = report.spent.system_ms / 700e-6;
        assert_near(faults, 400.0 * PAGES as f64, 0.05, &format!("{name}: faults"));
        assert_near(seen.misses as f64, faults, 0.01, &format!("{name}: events"));
        assert_near(seen.counted as f64, faults, 0.01, &format!("{name}: counts in the views"));
    }
}

#[test]
fn views_list_every_page_with_its_count() {
    let wanted = Run {
        alone: true,
        delivery: Delivery::Deployable,
        sensors: counting(Time::from_us(100), false),
        work: Time::ZERO,
        counted_from: None,
    };
    let (_, seen) = measure(&machine(64, 0), chase(2_000), wanted);
    for view in &seen.views[1..] {
        let pages: u64 = view.regions.iter().map(|region| region.pages).sum();
        assert_eq!(pages, PAGES);
        assert!(view.regions.len() <= 3 && view.regions.iter().all(|region| region.reads <= 1), "{view:?}");
    }
}

#[test]
fn counting_without_cost_takes_walks_alone() {
    let times = [None, Some(false)].map(|counts| {
        let sensors = counts.map_or(Vec::new(), |every| counting(Time::from_us(100), every));
        let (delivery, work) = (Delivery::Deployable, Time::ZERO);
        let wanted = Run { alone: true, delivery, sensors, work, counted_from: None };
        measure(&machine(64, 0), chase(2_000), wanted).0
    });
    let walks = (times[1].tlb_misses - times[0].tlb_misses) as f64;
    // 20 cycles of 0.5 ns for each walk.
    assert_near(times[1].time_ms - times[0].time_ms, walks * 1e-5, 0.3, "time of the walks, ms");
}

#[test]
fn next_decision_waits_for_the_work_of_the_last() {
    let (delivery, work) = (Delivery::Deployable, Time::from_us(700));
    let wanted = Run { alone: true, delivery, sensors: Vec::new(), work, counted_from: None };
    let (report, seen) = measure(&machine(64, 0), chase(5_000), wanted);
    assert!(work > EPOCH && report.time_ms > 5.0);
    let decisions = (report.time_ms - 0.1) / 0.7;
    assert!((seen.views.len() as f64 - decisions).abs() <= 1.0, "{} {decisions}", seen.views.len());
}

#[test]
fn llc_misses_are_those_of_the_report() {
    let line = |step: u64| mixed(step) % (1 << 14) * 64;
    let script = alone([map(0, 1 << 20, PageSize::Huge), doing((0..30_000).map(move |n| follow(line(n))))]);
    let wanted = Run {
        alone: true,
        delivery: Delivery::Deployable,
        sensors: vec![Sensor::LlcMisses],
        work: Time::ZERO,
        counted_from: None,
    };
    let (report, seen) = measure(&machine(64, 0), script, wanted);
    let counts: Vec<_> = seen.views.iter().filter_map(|view| view.llc).collect();
    assert!(counts.is_sorted_by_key(|counts| (counts.accesses, counts.misses)));
    let last = counts.last().expect("epochs");
    assert!(last.misses < last.accesses);
    assert_near(last.misses as f64, report.llc_misses as f64, 0.1, "misses");
}

#[test]
fn work_of_a_policy_takes_the_cpu_of_a_program_only_if_none_is_idle() {
    let time = |threads: u64, work: Time| {
        let machine = machine(64, 0);
        let scripts = (0..threads).map(|cpu| job(chase(5_000), &[cpu as u16])).collect();
        let (delivery, epoch) = (Delivery::Deployable, Time::from_ms(1));
        let (sensors, seen) = Default::default();
        let counts = Counts { sensors, delivery, epoch, work, counted_from: None, seen };
        let policy = Policy::new(runs::policy(&machine, "local").placement, Some(Box::new(counts)));
        run(&machine, scripts, policy, 1, &mut |_| true).expect("it runs")
    };
    let [idle, busy] = [1, 2].map(|threads| {
        let [free, paid] = [Time::ZERO, Time::from_us(200)].map(|work| time(threads, work));
        (free.time_ms, paid.time_ms, paid.spent.system_ms - free.spent.system_ms)
    });
    assert_near(idle.1, idle.0, 0.001, "one thread on two CPUs");
    assert_eq!(idle.2, 0.0);
    // 200 us of every ms, on one of two CPUs in turn. Up to 256 loads of 90 ns that a core has dispatched
    // go on meanwhile.
    assert_near(busy.1 - busy.0, busy.1 * 0.1, 0.15, "time added");
    assert_near(busy.2, busy.1.floor() * 0.2, 0.05, "system time");
}

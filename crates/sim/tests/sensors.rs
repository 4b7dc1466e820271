//! Sensors match closed forms.

use crate::runs;
use crate::support;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use memtide_core::policy::{
    AccessSample, AccessSampling, Answer, Delivery, Event, Migration, NodeView, Plan, Sensor, Sensors, View,
    Wake, Watermarks,
};
use memtide_core::{Machine, PAGE_BYTES, PageSize, Time};
use memtide_sim::{Policy, SimError, run, run_shared};

use crate::runs::{assert_near, job};
use crate::support::{MachineText, alone, doing, follow, load, map, mixed};

const EPOCH: Time = Time::from_us(100);

/// Requests sensors, and keeps the views.
struct Watching {
    sensors: Vec<Sensor>,
    views: Arc<Mutex<Vec<View>>>,
}

impl Migration for Watching {
    fn sensors(&self) -> Sensors {
        let none = Sensors::new(Delivery::Deployable, EPOCH);
        self.sensors.iter().fold(none, |sensors, sensor| sensors.require(*sensor))
    }

    fn on_event(&mut self, _: &Event, _: &View, _: &mut Plan) {}

    fn decide(&mut self, view: &View, _: &mut Plan) -> Wake {
        self.views.lock().expect("no panic").push(view.clone());
        Wake::After(EPOCH)
    }
}

fn machine() -> Machine {
    MachineText::new("watermark_low_bp = 200\nwatermark_high_bp = 400")
        .last_level(64, 2)
        .socket("s", 2)
        .node("n", 0, "s", 64, 90.0, 3_000.0)
        .node("far", 1, "s", 64, 300.0, 20_000.0)
        .machine()
}

fn views(sensors: &[Sensor], script: support::Script) -> Result<Vec<View>, SimError> {
    let views = Arc::new(Mutex::new(Vec::new()));
    let watching = Watching { sensors: sensors.to_vec(), views: views.clone() };
    let policy = Policy::new(runs::policy(&machine(), "local").placement, Some(Box::new(watching)));
    run(&machine(), vec![job(script, &[0])], policy, 1, &mut |_| true)?;
    Ok(std::mem::take(&mut *views.lock().expect("no panic")))
}

/// A pointer chase, followed by as many independent loads.
fn chase_then_flood() -> support::Script {
    let line = |step: u64| mixed(step) % (1 << 18) * 64;
    let chase = doing((0..20_000).map(move |step| follow(line(step))));
    let flood = doing((20_000..60_000).map(move |step| load(line(step))));
    alone([map(0, 16 << 20, PageSize::Huge), chase, flood])
}

#[test]
fn loaded_latency_is_idle_under_a_chase_and_rises_under_a_flood() {
    let views = views(&[Sensor::LoadedLatency], chase_then_flood()).expect("a sensor that it has");
    let near: Vec<f64> =
        views.iter().filter_map(|view| Some(view.nodes[0].loaded_latency?.as_ns())).collect();
    assert!(near.len() > 10, "{near:?}");
    assert_near(near[5], 90.0, 0.03, "idle latency, ns");
    let last = near[near.len() - 2];
    assert!(last > 100.0, "a node at its bandwidth is slower than idle: {near:?}");
    assert!(views.iter().all(|view| view.nodes[1].loaded_latency.is_none()), "it has no reads");
}

#[test]
fn nodes_are_the_same_with_and_without_sensors() {
    let with = views(&[Sensor::Watermarks], chase_then_flood()).expect("a sensor that it has");
    let without = views(&[], chase_then_flood()).expect("no sensor is needed");
    let bare = |views: &[View]| -> Vec<(u64, u64)> {
        views.iter().flat_map(|view| &view.nodes).map(|node| (node.pages, node.free_pages)).collect()
    };
    assert_eq!(bare(&with), bare(&without));
    let used = 16 << 20;
    let NodeView { pages, free_pages, watermarks, .. } = &with.last().expect("epochs").nodes[0];
    assert_eq!((pages - free_pages) * PAGE_BYTES, used, "what the program touched is in use");
    let Some(Watermarks { low_pages, high_pages }) = *watermarks else { panic!("they were asked for") };
    assert!(low_pages < high_pages && high_pages < *pages);
    let task = &with.last().expect("epochs").tasks[0];
    assert_eq!(
        (task.footprint.as_slice(), task.resident_pages),
        (&[used / PAGE_BYTES, 0][..], used / PAGE_BYTES)
    );
    assert!(task.rule.is_some(), "the rule by which its pages are placed");
}

#[test]
fn answers_stamp_the_view() {
    let views_of = views(&[Sensor::LoadedLatency], chase_then_flood()).expect("a sensor that it has");
    let answer = views_of[0].answers.get(&Sensor::LoadedLatency);
    assert!(matches!(answer, Some(Answer::Observed(_))), "{answer:?}");
}

/// Keeps sampled accesses.
struct Sampling {
    sampling: AccessSampling,
    samples: Arc<Mutex<Vec<AccessSample>>>,
}

impl Migration for Sampling {
    fn sensors(&self) -> Sensors {
        Sensors::new(Delivery::Deployable, EPOCH).require(Sensor::AccessSamples(self.sampling))
    }

    fn on_event(&mut self, event: &Event, _: &View, _: &mut Plan) {
        if let Event::AccessSample(sample) = event {
            self.samples.lock().expect("no panic").push(*sample);
        }
    }

    fn decide(&mut self, _: &View, _: &mut Plan) -> Wake {
        Wake::After(EPOCH)
    }
}

/// The samples of a program, and its time.
fn samples(sampling: AccessSampling, script: support::Script) -> (Vec<AccessSample>, Time) {
    let samples = Arc::new(Mutex::new(Vec::new()));
    let policy = Sampling { sampling, samples: samples.clone() };
    let policy = Policy::new(runs::policy(&machine(), "local").placement, Some(Box::new(policy)));
    let report = run(&machine(), vec![job(script, &[0])], policy, 1, &mut |_| true).expect("it runs");
    let samples = std::mem::take(&mut *samples.lock().expect("no panic"));
    (samples, Time::from_ns(report.time_ms * 1e6))
}

#[test]
fn one_of_many_misses_is_sampled_with_its_page_and_latency() {
    let lines = 1u64 << 18;
    let script = |stores: bool| {
        let line = move |step: u64| mixed(step) % lines * 64;
        let chase = doing((0..20_000).map(move |step| follow(line(step))));
        let stores = doing((0..if stores { 20_000 } else { 0 }).map(move |step| support::store(line(step))));
        alone([map(0, 16 << 20, PageSize::Huge), chase, stores])
    };
    let every = |period| AccessSampling { period, budget_bp: None };
    let (none, without) = samples(every(u32::MAX), script(false));
    let (some, with) = samples(every(100), script(false));
    assert!(
        none.is_empty() && (180..=200).contains(&some.len()),
        "{} of 20,000, less the last epoch",
        some.len()
    );
    assert!(some.iter().all(|sample| sample.page.0 < lines / 64 && !sample.write && sample.period == 100));
    assert!(some.iter().all(|sample| sample.size == PageSize::Huge && sample.node.0 == 0));
    let pages: BTreeSet<u64> = some.iter().map(|sample| sample.page.0).collect();
    assert!(pages.len() > 150, "base pages within huge ones: {}", pages.len());
    let mean = some.iter().filter_map(|sample| sample.latency).map(|latency| latency.as_ns()).sum::<f64>()
        / some.len() as f64;
    assert_near(mean, 90.0, 0.03, "idle latency, ns");
    let cost = with.since(without).as_ns() / some.len() as f64;
    assert_near(cost, machine().kernel.access_sample_ns, 0.05, "a sample's cost to the thread, ns");
    let (both, _) = samples(every(100), script(true));
    assert!(both.iter().filter(|sample| sample.write).count() > 150, "{}", both.len());
}

#[test]
fn period_adjusts_to_the_budget() {
    let lines = 1u64 << 18;
    let chase = doing((0..200_000).map(move |step| follow(mixed(step) % lines * 64)));
    let script = alone([map(0, 16 << 20, PageSize::Huge), chase]);
    let sampling = AccessSampling { period: 2, budget_bp: Some(100) };
    let (samples, time) = samples(sampling, script);
    let late = Time(time.0 / 2);
    let spent = samples.iter().filter(|sample| sample.time >= late).count() as f64
        * machine().kernel.access_sample_ns;
    let share = spent / time.since(late).as_ns();
    assert!((0.005..0.02).contains(&share), "{share} of a core, not 1 %");
    assert!(samples.last().expect("samples").period > 100);
}

#[test]
fn report_has_the_answer_for_each_sensor() {
    let views = Arc::new(Mutex::new(Vec::new()));
    let sensors = vec![Sensor::Watermarks, Sensor::Threads];
    let policy =
        Policy::new(runs::policy(&machine(), "local").placement, Some(Box::new(Watching { sensors, views })));
    let jobs = vec![job(chase_then_flood(), &[0])];
    let report = run(&machine(), jobs, policy, 1, &mut |_| true).expect("it runs");
    let answers: Vec<_> = report.sensors.iter().map(|of| (&*of.sensor, &*of.answer, &*of.how)).collect();
    assert_eq!(answers, [("watermarks", "observed", "simulated"), ("threads", "observed", "simulated")]);
}

#[test]
fn traffic_and_page_faults_are_those_of_the_program() {
    let sensors = [Sensor::PageFaults, Sensor::ThreadTraffic, Sensor::Threads];
    // 4 MiB stored once, then read once: both caches are far smaller, so each line comes in twice and is
    // written once.
    let lines = (4 << 20) / 64;
    let stores = doing((0..lines).map(|line| support::store(line * 64)));
    let loads = doing((0..lines).map(|line| load(line * 64)));
    let views = views(&sensors, alone([stores, loads])).expect("sensors that it has");
    let last = views.last().expect("epochs");
    assert_eq!(last.tasks[0].page_faults, Some((4 << 20) / PAGE_BYTES));
    let traffic = last.threads[0].traffic.expect("it was asked for");
    // The last epoch is not the end.
    let of = |bytes: u64| bytes as f64 / f64::from(4 << 20);
    assert!((1.7..=2.0).contains(&of(traffic.read_bytes)), "{traffic:?}");
    assert!((0.95..=1.0).contains(&of(traffic.written_bytes)), "{traffic:?}");
    let bytes: Vec<u64> =
        views.iter().filter_map(|view| Some(view.threads.first()?.traffic?.read_bytes)).collect();
    assert!(bytes.is_sorted(), "{bytes:?}");
}

#[test]
fn one_pass_counts_the_traffic_of_runs_alone() {
    let sensors = [Sensor::ThreadTraffic, Sensor::Threads];
    let lines = (4 << 20) / 64;
    let script = || {
        // Eight stores of 8 bytes past the caches fill a line, which is written once.
        let past = doing((0..lines * 8).map(|word| support::store_past(word * 8)));
        let stores = doing((0..lines).map(|line| support::store(line * 64)));
        alone([past, stores, doing((0..lines).map(|line| load(line * 64)))])
    };
    let alone = views(&sensors, script()).expect("sensors that it has");
    let shared = Arc::new(Mutex::new(Vec::new()));
    let watching = Watching { sensors: sensors.to_vec(), views: shared.clone() };
    let policy = Policy::new(runs::policy(&machine(), "local").placement, Some(Box::new(watching)));
    let reports = run_shared(&machine(), vec![job(script(), &[])], vec![policy], 1, &|_, _| true);
    assert!(reports[0].is_ok());
    let last = |views: &[View]| views.last().expect("epochs").threads[0].traffic.expect("it was asked for");
    let (alone, shared) = (last(&alone), last(&shared.lock().expect("no panic")));
    assert_near(shared.read_bytes as f64, alone.read_bytes as f64, 0.02, "bytes read");
    assert_near(shared.written_bytes as f64, alone.written_bytes as f64, 0.02, "bytes written");
    let of = alone.written_bytes as f64 / f64::from(4 << 20);
    assert!((1.9..=2.0).contains(&of), "once past the caches, once by them: {of}");
}

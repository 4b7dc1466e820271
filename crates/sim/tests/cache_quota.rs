//! Quotas of the last cache level, and the policy that sets them.

use crate::runs;
use std::num::NonZeroU16;
use std::sync::{Arc, Mutex};

use memtide_core::policy::{
    Action, CacheUtility, Completion, Delivery, Event, Migration, Outcome, Plan, Reason, Refusal, Sensor,
    Sensors, View, Wake,
};
use memtide_core::{Machine, PageSize, TaskId, Time};
use memtide_sim::{Comparison, Job, Policy, Report, run, run_shared};

use crate::runs::{assert_near, job, try_jobs};
use crate::support::{MachineText, Script, alone, doing, follow, load, map, mixed, two_sockets};

const WAYS: u64 = 16;

/// Lines of a way: the last level has 256 KiB.
const WAY_LINES: u64 = 256 * 16 / WAYS;

/// Lines of the streaming program, each of which it loads once.
const STREAMED: u64 = 900_000;

/// Two CPUs that share a last level.
fn machine() -> Machine {
    MachineText::new("").last_level(256, 2).socket("s", 2).node("n", 0, "s", 64, 100.0, 12_000.0).machine()
}

/// A chase through as many lines as this many ways have.
fn friendly(ways: u64, loads: u64) -> Script {
    let line = move |step| follow(mixed(step) % (ways * WAY_LINES) * 64);
    alone([map(0, 2 << 20, PageSize::Huge), doing((0..loads).map(line))])
}

fn streaming() -> Script {
    let lines = (0..STREAMED).map(|line| load(line * 64));
    alone([map(0, 56 << 20, PageSize::Huge), doing(lines)])
}

fn both() -> Vec<Job<'static>> {
    vec![job(friendly(12, 200_000), &[0]), job(streaming(), &[1])]
}

fn simulate(policy: &str, jobs: Vec<Job<'static>>) -> Report {
    try_jobs(&machine(), policy, jobs).expect("a run")
}

const POLICY: &str = "local+utility-cache:epoch_ms=1";

#[test]
fn cache_friendly_program_beside_a_streaming_one_has_fewer_misses_and_both_run_faster_than_with_lru() {
    let [lru, utility] = ["local", POLICY].map(|policy| simulate(policy, both()));
    let misses = |report: &Report| report.llc_misses - STREAMED;
    println!("friendly misses: {} with LRU, {} by utility", misses(&lru), misses(&utility));
    assert!(misses(&utility) * 2 < misses(&lru), "{} and {}", misses(&utility), misses(&lru));
    let alone = [friendly(12, 200_000), streaming()].map(|script| simulate("local", vec![job(script, &[0])]));
    let all = Comparison::new(&machine(), vec!["lru".into(), "utility".into()], vec![lru, utility]);
    let all = Comparison { alone_ms: vec![alone.iter().map(|report| report.time_ms).collect(); 2], ..all };
    let [lru, utility] = [0, 1].map(|at| all.weighted_speedup(at).expect("times alone"));
    println!("weighted speed-up: {lru:.3} with LRU, {utility:.3} by utility; {:?}", all.slowdowns(1));
    assert!(utility > lru * 1.05, "{utility} and {lru}");
}

#[test]
fn one_pass_sets_quotas_too() {
    let policies = ["local", POLICY].map(|text| runs::policy(&machine(), text));
    let reports = run_shared(&machine(), both(), policies.into(), 1, &|_, _| true);
    let [lru, utility] = &reports[..] else { panic!("two policies") };
    let [lru, utility] = [lru, utility].map(|report| report.as_ref().expect("a run").llc_misses - STREAMED);
    assert!(utility * 2 < lru, "{utility} and {lru}");
}

#[test]
fn one_program_runs_as_without_the_policy() {
    let [without, with] = ["local", POLICY].map(|of| simulate(of, vec![job(friendly(14, 50_000), &[0])]));
    assert_eq!((without.time_ms, without.llc_misses), (with.time_ms, with.llc_misses));
    assert!(with.pages.refused.is_empty());
}

/// What happened in a run: each epoch's utilities, and outcomes.
#[derive(Default)]
struct Seen {
    views: Vec<Vec<CacheUtility>>,
    outcomes: Vec<Outcome>,
}

/// Passes on to a policy, and keeps its input.
struct Watching {
    policy: Box<dyn Migration>,
    seen: Arc<Mutex<Seen>>,
}

impl Migration for Watching {
    fn sensors(&self) -> Sensors {
        self.policy.sensors()
    }

    fn on_event(&mut self, event: &Event, view: &View, plan: &mut Plan) {
        if let Event::Completion(Completion { outcome, .. }) = event {
            self.seen.lock().expect("no panic").outcomes.push(*outcome);
        }
        self.policy.on_event(event, view, plan);
    }

    fn decide(&mut self, view: &View, plan: &mut Plan) -> Wake {
        self.seen.lock().expect("no panic").views.push(view.cache_utility.clone());
        self.policy.decide(view, plan)
    }
}

fn watch(machine: &Machine, policy: Box<dyn Migration>, jobs: Vec<Job<'static>>) -> (Seen, Report) {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let watching = Watching { policy, seen: seen.clone() };
    let policy = Policy::new(runs::policy(machine, "local").placement, Some(Box::new(watching)));
    let report = run(machine, jobs, policy, 1, &mut |_| true).expect("a run");
    let seen = std::mem::take(&mut *seen.lock().expect("no panic"));
    (seen, report)
}

fn utility_cache(machine: &Machine) -> Box<dyn Migration> {
    memtide_policies::parse(POLICY).expect("a policy").simulated_migration(machine)
}

/// Quotas of the tasks in a view, 0 for none.
fn quotas(view: &[CacheUtility]) -> Vec<u16> {
    view.iter().map(|utility| utility.quota_ways.map_or(0, NonZeroU16::get)).collect()
}

#[test]
fn quotas_sum_to_the_associativity_and_streaming_program_has_the_least() {
    let (seen, _) = watch(&machine(), utility_cache(&machine()), both());
    assert!(seen.outcomes.iter().all(Outcome::is_made), "{:?}", seen.outcomes);
    let together = seen.views.iter().skip(1).filter(|view| view.len() == 2);
    let quotas: Vec<Vec<u16>> = together.map(|view| quotas(view)).collect();
    assert!(quotas.len() >= 3, "{quotas:?}");
    for of in &quotas {
        assert!(of.iter().sum::<u16>() == WAYS as u16 && of[0] >= 12 && of[1] >= 1, "{quotas:?}");
    }
    let last = seen.views.last().expect("epochs");
    assert_eq!(last.len(), 1, "one of them runs longer");
    assert_eq!(last[0].quota_ways, None, "and has the cache to itself: {:?}", seen.views);
}

#[test]
fn equal_programs_get_nearly_equal_shares() {
    let jobs = [0, 1].map(|cpu| job(friendly(12, 160_000), &[cpu])).into();
    let (seen, _) = watch(&machine(), utility_cache(&machine()), jobs);
    let quotas: Vec<Vec<u16>> = seen.views.iter().skip(1).map(|view| quotas(view)).collect();
    let both = quotas.iter().filter(|quotas| quotas.len() == 2);
    assert!(both.clone().count() >= 3, "{quotas:?}");
    println!("{quotas:?}");
    assert!(both.flatten().all(|ways| (4..=12).contains(ways)), "{quotas:?}");
}

/// Sets quotas at the first epoch: tasks and ways.
struct Sets(Vec<(u32, u16)>, Vec<Sensor>);

impl Migration for Sets {
    fn sensors(&self) -> Sensors {
        let none = Sensors::new(Delivery::Deployable, Time::from_us(100));
        self.1.iter().fold(none, |sensors, sensor| sensors.require(*sensor))
    }

    fn on_event(&mut self, _: &Event, _: &View, _: &mut Plan) {}

    fn decide(&mut self, _: &View, plan: &mut Plan) -> Wake {
        for (task, ways) in std::mem::take(&mut self.0) {
            plan.push(Action::CacheQuota(TaskId(task), NonZeroU16::new(ways)), Reason::Request);
        }
        Wake::After(Time::from_us(100))
    }
}

fn sets(machine: &Machine, quotas: &[(u32, u16)], jobs: Vec<Job<'static>>) -> (Seen, Report) {
    watch(machine, Box::new(Sets(quotas.to_vec(), vec![Sensor::CacheUtility])), jobs)
}

/// Short runs of one program on each of these CPUs.
fn short(cpus: &[u16]) -> Vec<Job<'static>> {
    cpus.iter().map(|cpu| job(friendly(6, 20_000), &[*cpu])).collect()
}

#[test]
fn quotas_beyond_the_associativity_or_of_no_task_are_refused() {
    let (seen, report) = sets(&machine(), &[(0, 12), (1, 5), (1, 4), (7, 1), (0, 17)], short(&[0, 1]));
    let [full, gone] = [Refusal::NoRoom, Refusal::Gone].map(Outcome::Refused);
    assert_eq!(seen.outcomes, [Outcome::MADE, full, Outcome::MADE, gone, full]);
    assert_eq!(quotas(&seen.views[1]), [12, 4]);
    assert_eq!(report.pages.refused, [("no-room".to_owned(), 2), ("gone".to_owned(), 1)]);
}

#[test]
fn host_without_a_shared_last_level_refuses_quotas() {
    let machine = MachineText::new("").socket("s", 2).node("n", 0, "s", 64, 100.0, 12_000.0).machine();
    let (seen, _) = sets(&machine, &[(0, 1)], short(&[0]));
    assert_eq!(seen.outcomes, [Outcome::Refused(Refusal::Unsupported)]);
    assert!(seen.views.iter().all(Vec::is_empty));
    let (seen, _) = watch(&machine, utility_cache(&machine), short(&[0, 1]));
    assert!(seen.views.is_empty() && seen.outcomes.is_empty());
}

#[test]
fn caches_of_other_sockets_have_quotas_of_their_own() {
    let machine = two_sockets("", 2, [64, 64], [20e3, 20e3]);
    let (seen, _) = sets(&machine, &[(0, 12), (1, 12)], short(&[0, 2]));
    assert_eq!(seen.outcomes, [Outcome::MADE; 2]);
    let (seen, _) = sets(&machine, &[(0, 12), (1, 12)], short(&[0, 1]));
    assert_eq!(seen.outcomes, [Outcome::MADE, Outcome::Refused(Refusal::NoRoom)]);
}

/// Each task fills its own ways in its turns.
#[test]
fn quotas_hold_for_tasks_that_take_turns_on_a_cpu() {
    let both = || vec![job(friendly(6, 60_000), &[0]), job(friendly(14, 60_000), &[0])];
    let (seen, with) = sets(&machine(), &[(0, 8), (1, 8)], both());
    let (_, without) = sets(&machine(), &[], both());
    assert_eq!(seen.outcomes, [Outcome::MADE; 2]);
    // The second one's 14 ways do not fit into 8: 6 of 14 accesses miss.
    println!("{} {}", with.llc_misses, without.llc_misses);
    let expected = 60_000.0 * 6.0 / 14.0 + 14.0 * WAY_LINES as f64;
    assert_near(with.llc_misses as f64, expected, 0.1, "misses");
}

#[test]
fn monitors_cost_no_time_and_see_as_if_alone() {
    let run = |sensors: &[Sensor]| watch(&machine(), Box::new(Sets(Vec::new(), sensors.to_vec())), both());
    let ((seen, with), (_, without)) = (run(&[Sensor::CacheUtility]), run(&[]));
    assert_eq!((with.time_ms, with.llc_misses), (without.time_ms, without.llc_misses));
    let late = &seen.views[40];
    let [friendly, streaming] = &late[..] else { panic!("{late:?}") };
    assert_eq!(streaming.hits, [0; 16], "no line is loaded twice");
    let hits: u64 = friendly.hits.iter().sum();
    assert!(hits > 20 * friendly.misses, "its lines fit, alone: {friendly:?}");
    assert!(friendly.hits[..8].iter().sum::<u64>() < hits * 3 / 4, "{friendly:?}");
    assert_eq!(friendly.hits[14..], [0; 2], "about 12 lines of a set are in use: {friendly:?}");
}

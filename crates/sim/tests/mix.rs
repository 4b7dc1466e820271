//! Programs that run together: their starts, and how much they slow each other down, in closed form.

use memtide_core::{Mark, Then, Time};
use memtide_sim::{Comparison, Job, Report, can_share, run_shared};

use crate::runs::{assert_near, job, policy, try_jobs};
use crate::support::{Marked, Script, after, alone, doing, load, together, two_sockets};

/// Lines of a stream: 1.28 ms at the 2,000 MB/s of a node.
const LINES: u64 = 40_000;
const STREAM_MS: f64 = 1.28;

fn machine() -> memtide_core::Machine {
    two_sockets("", 2, [64, 64], [2000.0, 2000.0])
}

/// A program that is bound by its node's bandwidth.
fn stream() -> Script {
    alone([doing((0..LINES).map(|line| load(line * 64)))])
}

/// A program that takes this long, at 2 instructions a nanosecond, and uses no memory.
fn work(ms: u64) -> Script {
    alone([after([], Then::Work(ms * 2_000_000))])
}

fn ms(ms: f64) -> Time {
    Time::from_ns(ms * 1e6)
}

/// A job on these CPUs, from a time on.
fn from(start_ms: f64, script: Script, cpus: &[u16]) -> Job<'static> {
    Job { start: ms(start_ms), ..job(script, cpus) }
}

fn run(jobs: Vec<Job<'static>>) -> Report {
    try_jobs(&machine(), "local", jobs).expect("a run")
}

#[track_caller]
fn assert_times(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() <= 1e-3, "{found:?} instead of {expected:?}");
    }
}

#[test]
fn program_starts_at_its_time_and_its_time_counts_from_then() {
    let jobs = || vec![from(0.0, work(5), &[]), from(1.0, work(2), &[]), from(7.0, work(1), &[])];
    assert!(can_share(&machine(), &jobs()));
    let alone = run(jobs());
    let shared = run_shared(&machine(), jobs(), vec![policy(&machine(), "local")], 1, &|_, _| true);
    for report in shared.into_iter().map(|report| report.expect("a run")).chain([alone]) {
        assert_times(&report.program_started_ms, &[0.0, 1.0, 7.0]);
        assert_times(&report.program_times_ms, &[5.0, 2.0, 1.0]);
        assert_times(&report.program_ended_ms, &[5.0, 3.0, 8.0]);
        assert_times(&[report.time_ms, report.run_ms, report.spent.user_ms], &[8.0, 8.0, 8.0]);
        let threads_ms = 3.0 * 8.0 - 1.0 - 7.0;
        assert_times(&[report.spent.threads_ms()], &[threads_ms]);
        assert_eq!(report.threads, 3);
    }
}

#[test]
fn region_waits_for_the_initialisation_of_a_program_that_starts_later() {
    let half = || after([], Then::Work(2_000_000));
    let marked = together(1, |_| vec![half(), after([], Then::Mark(Mark::Begin)), half()]);
    let late = Job { start: ms(1.0), ..Job::new("marked", Box::new(Marked(marked))) };
    let report = run(vec![from(0.0, work(5), &[]), late]);
    assert!(report.marked);
    assert_times(&report.program_times_ms, &[5.0, 1.0]);
    let stages: Vec<_> = report.stages.iter().map(|of| (of.stage.as_str(), of.time_ms)).collect();
    assert_eq!(stages.iter().map(|of| of.0).collect::<Vec<_>>(), ["initialisation", "region"]);
    assert_times(&[stages[0].1, stages[1].1], &[1.0, 4.0]);
}

/// Slow-downs of two streams, the second of which starts later, on these CPUs.
fn slowdowns(start_ms: f64, cpus: [&[u16]; 2]) -> Comparison {
    let alone_ms = run(vec![job(stream(), &[0])]).time_ms;
    assert_near(alone_ms, STREAM_MS, 0.05, "time alone");
    let report = run(vec![from(0.0, stream(), cpus[0]), from(start_ms, stream(), cpus[1])]);
    let all = Comparison::new(&machine(), vec!["local".to_owned()], vec![report]);
    Comparison { alone_ms: vec![vec![alone_ms; 2]], ..all }
}

#[track_caller]
fn assert_slowdowns(all: &Comparison, expected: f64, tolerance: f64) {
    for slowdown in all.slowdowns(0).expect("times alone") {
        assert_near(slowdown, expected, tolerance, "slow-down");
    }
    assert_near(
        all.weighted_speedup(0).expect("times alone"),
        2.0 / expected,
        tolerance,
        "weighted speed-up",
    );
    assert_near(all.max_slowdown(0).expect("times alone"), expected, tolerance, "maximum slow-down");
    assert_near(all.fairness(0).expect("times alone"), 1.0, 2.0 * tolerance, "fairness");
}

#[test]
fn programs_that_share_nothing_do_not_slow_down() {
    assert_slowdowns(&slowdowns(0.0, [&[0], &[0, 2]]), 1.0, 0.005);
}

/// Alone, one drains at each page fault and has 97 % of the bandwidth.
#[test]
fn programs_that_share_a_saturated_node_take_twice_as_long() {
    assert_slowdowns(&slowdowns(0.0, [&[0, 1], &[0, 1]]), 2.0, 0.04);
}

/// Each has the node to itself for half of its work.
#[test]
fn programs_that_overlap_by_half_take_half_as_long_again() {
    assert_slowdowns(&slowdowns(STREAM_MS / 2.0, [&[0, 1], &[0, 1]]), 1.5, 0.04);
}

/// It has frames of the other's, 1,024 lines of which are still in the last cache: 2.4 % of what it reads.
#[test]
fn program_that_starts_after_the_other_has_ended_does_not_slow_down() {
    assert_slowdowns(&slowdowns(2.0, [&[0, 1], &[0, 1]]), 1.0, 0.03);
}

#[test]
fn comparison_without_times_alone_has_no_slowdowns() {
    let all = Comparison::new(&machine(), vec!["local".to_owned()], vec![run(vec![job(stream(), &[])])]);
    assert_eq!((all.slowdowns(0), all.weighted_speedup(0), all.fairness(0)), (None, None, None));
}

//! The timeline: what was migrated when, where pages were, and whose traffic it was.

use crate::runs;
use memtide_core::{CpuId, Machine, Mark, Then};
use memtide_sim::{NodeReport, Report, run_shared};

use crate::runs::{job, policy, simulate};
use crate::support::{Marked, Script, after, alone, doing, load, touch, two_sockets};

/// Bucket of a run shorter than 5 ms, in us.
const BUCKET_US: u64 = 10;

/// Two sockets; the scanner marks all memory every 20 us.
fn sockets() -> Machine {
    let scan = "numa_scan_period_ms = 0.02\nnuma_scan_mib = 64\n";
    two_sockets(scan, 2, [64, 64], [10_000.0, 10_000.0])
}

/// The reports of a run alone and of one pass.
fn both(name: &str, script: impl Fn() -> Script) -> [Report; 2] {
    let machine = sockets();
    let shared =
        run_shared(&machine, vec![job(script(), &[])], vec![policy(&machine, name)], 1, &|_, _| true);
    let shared = shared.into_iter().next().expect("a report").expect("a run");
    [simulate(&machine, name, script()), shared]
}

/// A thread that touches pages on one socket, from page 1 on, and reads them from the other.
fn follows(pages: u64, rounds: u64) -> Script {
    let in_round = move |round| (1..=pages).map(move |page| load(page * 4096 + round % 64 * 64));
    let loads = (0..rounds).flat_map(in_round);
    alone([touch(1, pages), after([], Then::OnCpu(CpuId(2))), doing(loads)])
}

fn sum(buckets: &[Vec<u64>]) -> Vec<u64> {
    buckets.iter().map(|node| node.iter().sum()).collect()
}

fn of_nodes(report: &Report, figure: fn(&NodeReport) -> u64) -> Vec<u64> {
    report.nodes.iter().map(figure).collect()
}

/// Checks what holds for every run: buckets add up to the totals, and pages end where they are reported.
fn assert_adds_up(report: &Report) {
    let line = &report.timeline;
    assert_eq!(sum(&line.demand_lines), of_nodes(report, |node| node.demand_lines));
    assert_eq!(sum(&line.prefetch_lines), of_nodes(report, |node| node.prefetch_lines));
    assert_eq!(sum(&line.copy_lines), of_nodes(report, |node| node.copy_lines));
    assert_eq!(sum(&line.migrated_pages).iter().sum::<u64>(), report.pages.migrated);
    assert_eq!(sum(&line.program_migrated_pages).iter().sum::<u64>(), report.pages.migrated);
    let buckets = (report.time_ms / line.bucket_ms).ceil() as usize;
    let all = [&line.demand_lines, &line.prefetch_lines, &line.copy_lines, &line.pages, &line.migrated_pages];
    assert!(all.iter().all(|nodes| nodes.iter().all(|node| node.len() == buckets)));
}

fn last_pages(report: &Report) -> Vec<u64> {
    report.timeline.pages.iter().map(|node| *node.last().expect("a bucket")).collect()
}

#[test]
fn each_program_has_its_own_bandwidth_and_migration() {
    let machine = sockets();
    // The first misses with each load and its pages move; the second waits for as long and touches no memory.
    let idles = || alone([after([], Then::OnCpu(CpuId(1))), after([], Then::Work(1_000_000))]);
    let jobs = vec![job(follows(200, 100_000), &[]), job(idles(), &[])];
    let shared = run_shared(&machine, jobs, vec![policy(&machine, "local+anb")], 1, &|_, _| true);
    let report = shared.into_iter().next().expect("a report").expect("a run");
    assert_adds_up(&report);
    let line = &report.timeline;
    assert!(report.pages.migrated >= 200);
    assert_eq!(sum(&line.program_migrated_pages), [report.pages.migrated, 0]);
    let lines = |program: &Vec<f64>| {
        let (whole, rest) = program.split_at(program.len() - 1);
        let rest_ms = report.time_ms - line.bucket_ms * whole.len() as f64;
        (whole.iter().sum::<f64>() * line.bucket_ms + rest[0] * rest_ms) * 1e3 / 64.0
    };
    let [first, second] = [0, 1].map(|program| lines(&line.program_bandwidth_mbps[program]));
    let requested = sum(&line.demand_lines).iter().sum::<u64>() as f64;
    assert!((first / requested - 1.0).abs() < 0.01, "{first} lines of {requested}");
    assert_eq!(second, 0.0);
}

#[test]
fn pages_move_in_the_bucket_of_their_second_hint_fault() {
    let second_scan = 2 * 20 / BUCKET_US as usize;
    // In one pass a page in use has a record every 20,000 instructions: 10 us.
    let latest = [second_scan, second_scan + 1];
    // A page used without pause, too: nothing else has a record there.
    let of = |pages: u64| both("local+anb", move || follows(pages, 200_000 / pages)).into_iter().zip(latest);
    for (pages, (report, latest)) in of(1).map(|it| (1, it)).chain(of(2).map(|it| (2, it))) {
        let report = &report;
        assert_adds_up(report);
        let line = &report.timeline;
        assert!(line.pages[0].len() > latest + 1 && line.bucket_ms * 1e3 == BUCKET_US as f64);
        for bucket in (0..second_scan).chain(latest..line.pages[0].len()) {
            let expected = if bucket < second_scan { [pages, 0] } else { [0, pages] };
            assert_eq!([0, 1].map(|node| line.pages[node][bucket]), expected, "bucket {bucket}");
        }
        let in_them = |node: &Vec<u64>| node[second_scan..=latest].iter().sum::<u64>();
        assert_eq!(line.migrated_pages.iter().map(in_them).collect::<Vec<_>>(), [0, pages]);
        // A copy reads every line on one node and writes it on the other.
        assert_eq!(line.copy_lines.iter().map(in_them).collect::<Vec<_>>(), [pages * 64; 2]);
    }
}

#[test]
fn timeline_adds_up_and_ends_with_the_page_shares() {
    for rounds in [2_000, 20_000] {
        for report in both("local+anb", || follows(50, rounds)) {
            assert_adds_up(&report);
            assert_eq!(last_pages(&report), of_nodes(&report, |node| node.pages));
            assert_eq!((last_pages(&report), report.pages.migrated), (vec![0, 50], 50));
            let line = &report.timeline;
            let mut arrived = 0;
            for bucket in 0..line.pages[0].len() {
                arrived += line.migrated_pages[1][bucket];
                assert_eq!([0, 1].map(|node| line.pages[node][bucket]), [50 - arrived, arrived]);
            }
        }
    }
}

/// Fixed nodes merge no writes and serve none of their reads from queues: they move what is requested.
#[test]
fn parts_of_the_traffic_are_the_nodes_traffic() {
    for report in both("interleave+anb", || follows(300, 2_000)) {
        assert!(report.pages.migrated > 0);
        let parts = of_nodes(&report, |node| node.demand_lines + node.prefetch_lines + node.copy_lines);
        assert_eq!(parts, of_nodes(&report, |node| node.reads + node.writes));
        let line = &report.timeline;
        for (node, rates) in line.bandwidth_mbps.iter().enumerate() {
            let parts = [&line.demand_lines, &line.prefetch_lines, &line.copy_lines];
            let requested = |bucket: usize| parts.iter().map(|part| part[node][bucket]).sum::<u64>();
            for (bucket, rate) in rates[..rates.len() - 1].iter().enumerate() {
                let lines = rate * line.bucket_ms * 1e3 / 64.0;
                assert!((lines - requested(bucket) as f64).abs() <= 20.0, "{lines}, {}", requested(bucket));
            }
        }
    }
}

#[test]
fn run_without_migration_has_no_migration_over_time() {
    for report in both("local", || follows(50, 2_000)) {
        assert_adds_up(&report);
        let zero = |nodes: &[Vec<u64>]| nodes.iter().flatten().all(|&count| count == 0);
        assert!(zero(&report.timeline.migrated_pages) && zero(&report.timeline.copy_lines));
        assert_eq!(last_pages(&report), [50, 0]);
    }
}

#[test]
fn merged_buckets_keep_sums_and_last_pages() {
    let script = || {
        let mut batches = follows(50, 2_000).0.remove(0);
        batches.push_back(after([], Then::Work(40_000_000)));
        batches.push_back(touch(51, 7));
        Script(vec![batches])
    };
    for report in both("local+anb", script) {
        assert!(report.timeline.bucket_ms * 1e3 > BUCKET_US as f64, "{} ms", report.timeline.bucket_ms);
        assert_adds_up(&report);
        assert_eq!(last_pages(&report).iter().sum::<u64>(), 57);
        let before_last = report.timeline.pages.iter().map(|node| node[node.len() - 2]).sum::<u64>();
        assert_eq!(before_last, 50);
    }
}

#[test]
fn pages_over_time_end_with_the_region() {
    let mark = |mark| after([], Then::Mark(mark));
    let batches = [touch(1, 10), mark(Mark::Begin), touch(11, 20), mark(Mark::End), touch(31, 40)];
    let job =
        || memtide_sim::Job { program: Box::new(Marked(alone(batches.clone()))), ..job(alone([]), &[]) };
    let machine = sockets();
    let alone = runs::try_jobs(&machine, "local", vec![job()]).expect("a run");
    let shared = run_shared(&machine, vec![job()], vec![policy(&machine, "local")], 1, &|_, _| true);
    for report in shared.into_iter().map(|report| report.expect("a run")).chain([alone]) {
        assert_adds_up(&report);
        assert_eq!((last_pages(&report), report.nodes[0].pages), (vec![30, 0], 70));
    }
}

//! Reports are of the region of interest: what the whole run has, less what came before.

use memtide_core::{Batch, Machine, Mark, Program, ProgramError, Then, ThreadId};
use memtide_sim::{Job, Report, SimError, run};
use memtide_workloads::{BoxedProgram, Params};

use crate::runs::policy;
use crate::support::{MachineText, Marked, Script, after, doing, load, mixed, together, touch};

/// A program without its marks; it may end where it makes one.
struct Unmarked {
    program: BoxedProgram,
    ends_at: Option<Mark>,
    ended: bool,
}

impl Program for Unmarked {
    fn threads(&self) -> usize {
        self.program.threads()
    }

    fn next(&mut self, thread: ThreadId, batch: &mut Batch) -> Result<(), ProgramError> {
        if self.ended {
            batch.clear();
            batch.then = Then::End;
            return Ok(());
        }
        self.program.next(thread, batch)?;
        if let Then::Mark(mark) = batch.then {
            self.ended = self.ends_at == Some(mark);
            batch.then = if self.ended { Then::End } else { Then::Continue };
        }
        Ok(())
    }
}

/// Two sockets with DRAM and NVM that wears, a kernel with costs, and a prefetcher.
fn machine() -> Machine {
    let kernel = "fault_ns = 500\nshootdown_ns = 100\nunmap_ns = 200\nremap_ns = 100\n\
        hint_fault_ns = 200\nsample_ns = 80\nnuma_scan_period_ms = 10\nnuma_scan_mib = 64";
    let machine = MachineText::new(kernel)
        .last_level(64 << 6, 2)
        .tlb(64 << 6, 30)
        .with("[prefetcher]\nstreams = 4\ndistance_lines = 4\n")
        .socket("s0", 2)
        .socket("s1", 2)
        .node("fast", 0, "s0", 8 << 6, 90.0, 10_000.0)
        .node("slow", 1, "s1", 64 << 6, 250.0, 3_000.0)
        .with("endurance_writes = 1e8\n[node.energy]\nread_nj = 2.0\nwrite_nj = 5.0\nstandby_mw = 100.0\n")
        .link("s0", "s1", 30.0, 5_000.0);
    let mut machine = machine.machine();
    machine.scale = 1 << 6;
    machine
}

fn program(name: &str, params: &str) -> BoxedProgram {
    let params: Params = params.parse().expect("parameters");
    memtide_workloads::program(name, &params, 1).expect("a workload")
}

fn simulate(program: BoxedProgram, name: &str) -> Report {
    let machine = machine();
    let job = Job::new("test", program);
    run(&machine, vec![job], policy(&machine, name), 1, &mut |_| true).expect("a run")
}

/// All counts of a report, by name.
fn counts(report: &Report) -> Vec<(String, u64)> {
    let mut counts = vec![
        ("instructions".to_owned(), report.instructions),
        ("accesses".to_owned(), report.accesses),
        ("shared accesses".to_owned(), report.shared_accesses),
        ("LLC misses".to_owned(), report.llc_misses),
        ("prefetched lines".to_owned(), report.prefetched_lines),
        ("TLB misses".to_owned(), report.tlb_misses),
        ("faults".to_owned(), report.pages.faults),
        ("swapped".to_owned(), report.pages.swapped_out + report.pages.swapped_in),
        ("migrated".to_owned(), report.pages.migrated),
        ("hint faults".to_owned(), report.pages.hint_faults),
    ];
    for (level, &hits) in report.private_hits.iter().enumerate() {
        counts.push((format!("hits of level {level}"), hits));
    }
    for node in &report.nodes {
        for (what, lines) in [
            ("reads", node.reads),
            ("writes", node.writes),
            ("demand", node.demand_lines),
            ("prefetches", node.prefetch_lines),
            ("copies", node.copy_lines),
        ] {
            counts.push((format!("{what} of {}", node.name), lines));
        }
    }
    counts
}

/// All sums of a report that are no counts, by name.
fn sums(report: &Report) -> Vec<(String, f64)> {
    let spent = &report.spent;
    let mut sums = vec![
        ("time".to_owned(), report.time_ms),
        ("user".to_owned(), spent.user_ms),
        ("system".to_owned(), spent.system_ms),
        ("stall".to_owned(), spent.stall_ms),
        ("idle".to_owned(), spent.idle_ms),
        ("kernel threads".to_owned(), spent.kernel_threads_ms),
        ("energy".to_owned(), report.energy_mj),
    ];
    for link in &report.links {
        sums.push(("forward".to_owned(), link.forward_mbps * report.time_ms));
        sums.push(("back".to_owned(), link.back_mbps * report.time_ms));
    }
    for (node, rates) in report.nodes.iter().zip(&report.timeline.bandwidth_mbps) {
        let whole = report.timeline.bucket_ms * rates.len().saturating_sub(1) as f64;
        let (last, all) = (rates.last().copied().unwrap_or(0.0), rates.iter().sum::<f64>());
        let lines = (all - last) * report.timeline.bucket_ms + last * (report.time_ms - whole);
        sums.push((format!("timeline of {}", node.name), lines));
    }
    sums
}

const CASES: [(&str, &str); 4] = [
    ("uniform", "footprint_mib=8,threads=4,operations=40000"),
    ("gups", "footprint_mib=4,threads=3,operations=20000"),
    ("stream", "footprint_mib=2,threads=4,iterations=1,kernel=triad"),
    ("chase", "footprint_mib=1,threads=1,operations=20000"),
];

#[test]
fn region_is_the_whole_run_less_its_initialisation() {
    for (name, params) in CASES {
        for policy in ["local", "interleave", "local+anb", "interleave+hot-cold:epoch_ms=10:sampling_us=100"]
        {
            let case = format!("{name}:{params} under {policy}");
            let cut = |ends_at| {
                let program = program(name, params);
                simulate(Box::new(Unmarked { program, ends_at, ended: false }), policy)
            };
            let (marked, whole) = (simulate(program(name, params), policy), cut(None));
            let before = cut(Some(Mark::Begin));
            assert!(marked.marked && !whole.marked && whole.stages.is_empty(), "{case}");
            assert_eq!((marked.run_ms, whole.run_ms), (whole.time_ms, whole.time_ms), "{case}");
            for ((region, whole), before) in counts(&marked).iter().zip(counts(&whole)).zip(counts(&before)) {
                assert_eq!(region.1, whole.1 - before.1, "{case}: {} of {}", region.0, whole.1);
            }
            for ((region, whole), before) in sums(&marked).iter().zip(sums(&whole)).zip(sums(&before)) {
                let error = (region.1 - (whole.1 - before.1)).abs();
                assert!(error <= 1e-6 * whole.1.max(1e-3), "{case}: {region:?}, {whole:?}, {before:?}");
            }
            let reads = |report: &Report| {
                let mean = report.latency.mean_ns.unwrap_or(0.0);
                mean * report.nodes.iter().map(|node| node.demand_lines).sum::<u64>() as f64
            };
            assert!(reads(&marked) > 0.0, "{case}");
        }
    }
}

#[test]
fn stages_add_up_to_the_run() {
    let report = simulate(program("stream", "footprint_mib=2,threads=4,iterations=3"), "local");
    let whole = {
        let program = program("stream", "footprint_mib=2,threads=4,iterations=3");
        simulate(Box::new(Unmarked { program, ends_at: None, ended: false }), "local")
    };
    let names: Vec<&str> = report.stages.iter().map(|stage| stage.stage.as_str()).collect();
    assert_eq!(names, ["initialisation", "warm-up", "region"]);
    let [initialisation, warm_up, region] = &report.stages[..] else { panic!("three stages") };
    let sum: f64 = report.stages.iter().map(|stage| stage.time_ms).sum();
    assert!((sum / report.run_ms - 1.0).abs() < 1e-9, "{sum} of {}", report.run_ms);
    assert_eq!(report.stages.iter().map(|stage| stage.accesses).sum::<u64>(), whole.accesses);
    assert_eq!(report.stages.iter().map(|stage| stage.faults).sum::<u64>(), whole.pages.faults);
    assert!(initialisation.faults >= 500, "every page faults in the initialisation");
    assert_eq!((warm_up.faults, region.faults), (0, 0));
    assert_eq!(region.accesses, 2 * warm_up.accesses, "two iterations, and one before them");
    assert_eq!((region.time_ms, region.accesses), (report.time_ms, report.accesses));
}

/// A region that ends and begins again counts as one: work outside of it does not.
#[test]
fn regions_of_a_program_are_summed() {
    let read = |from: u64, count| doing((from..from + count).map(|n| load(mixed(n) % (1 << 14) * 64)));
    let mark = |mark| after([], Then::Mark(mark));
    let batches = vec![
        touch(0, 256),
        mark(Mark::Begin),
        read(0, 1_000),
        mark(Mark::WarmUp),
        mark(Mark::End),
        mark(Mark::End),
        read(0, 7_000),
        mark(Mark::WarmUp),
        read(3, 100),
        mark(Mark::Begin),
        mark(Mark::Begin),
        read(7_000, 3_000),
        mark(Mark::End),
        read(0, 5_000),
    ];
    let report = simulate(Box::new(Marked(together(1, |_| batches.clone()))), "local");
    assert_eq!(report.accesses, 4_000);
    let stages: Vec<_> = report.stages.iter().map(|stage| (stage.stage.as_str(), stage.accesses)).collect();
    let expected = [("initialisation", 256), ("outside", 12_000), ("warm-up", 100), ("region", 4_000)];
    assert_eq!(stages, expected);
    assert_eq!(report.program_times_ms, [report.time_ms]);
}

fn job(script: Script, marked: bool) -> Job<'static> {
    let program: BoxedProgram = if marked { Box::new(Marked(script)) } else { Box::new(script) };
    Job::new("test", program)
}

#[test]
fn region_of_several_programs_is_where_all_live_ones_are_in_theirs() {
    let work = |instructions| after([], Then::Work(instructions));
    let begin = || after([], Then::Mark(Mark::Begin));
    // 2 instructions a nanosecond: an instruction a cycle at 2 GHz.
    let early = together(1, |_| vec![work(2_000_000), begin(), work(10_000_000)]);
    let late = together(1, |_| vec![work(6_000_000), begin(), work(10_000_000)]);
    let machine = machine();
    let jobs = vec![job(early, true), job(late, true), job(together(1, |_| vec![work(2_000_000)]), false)];
    let report = run(&machine, jobs, policy(&machine, "local"), 1, &mut |_| true).expect("a run");
    assert!((report.time_ms - 5.0).abs() < 1e-3, "{} ms", report.time_ms);
    assert!((report.run_ms - 8.0).abs() < 1e-3, "{} ms", report.run_ms);
    for (time, expected) in report.program_times_ms.iter().zip([5.0, 5.0, 1.0]) {
        assert!((time - expected).abs() < 1e-3, "{:?}", report.program_times_ms);
    }
}

#[test]
fn announced_region_that_never_begins_is_an_error() {
    let machine = machine();
    let jobs = vec![job(together(1, |_| vec![touch(0, 1)]), true)];
    let error = run(&machine, jobs, policy(&machine, "local"), 1, &mut |_| true).expect_err("no region");
    assert!(matches!(error, SimError::NoRegion { .. }), "{error}");
    let unannounced = together(1, |_| vec![touch(0, 1), after([], Then::Mark(Mark::End)), touch(1, 1)]);
    let report = run(&machine, vec![job(unannounced, false)], policy(&machine, "local"), 1, &mut |_| true);
    let report = report.expect("a run");
    assert_eq!((report.marked, report.accesses), (false, 2));
}

use memtide_core::machine::bundled;
use memtide_sim::{EnergyReport, KernelReport, LatencyReport, PagesReport, SensorReport, TimelineReport};

use super::*;

/// A run on `bmpm-2` that waits for memory for 80 of 100 ms.
pub fn report(mbps: [f64; 2], latency_ns: [f64; 2]) -> Report {
    let node = |(name, index): (&str, usize)| NodeReport {
        name: name.to_owned(),
        tier: index as u8,
        reads: 1000,
        writes: 0,
        bandwidth_mbps: mbps[index],
        read_bandwidth_mbps: mbps[index],
        access_share: 0.5,
        demand_lines: 1000,
        prefetch_lines: 0,
        copy_lines: 0,
        demand_share: 0.5,
        pages: 10,
        page_share: 0.5,
        latency_mean_ns: Some(latency_ns[index]),
        latency_p99_ns: None,
        row_hit_rate: None,
        energy_mj: 0.0,
        energy: EnergyReport::default(),
        wear: None,
        channels: Vec::new(),
    };
    let mean_ns = Some(latency_ns.iter().sum::<f64>() / 2.0);
    Report {
        machine: "bmpm-2".to_owned(),
        slice: 1,
        scale: 64,
        programs: vec!["chase".to_owned()],
        seed: 1,
        marked: false,
        time_ms: 25.0,
        run_ms: 25.0,
        threads: 4,
        program_times_ms: vec![25.0],
        program_started_ms: vec![0.0],
        program_ended_ms: vec![25.0],
        stages: Vec::new(),
        spent: TimeReport { user_ms: 20.0, stall_ms: 80.0, ..TimeReport::default() },
        instructions: 1_000_000,
        accesses: 100_000,
        private_hits: Vec::new(),
        shared_accesses: 10_000,
        llc_misses: 2_000,
        llc_misses_per_kilo_instruction: 2.0,
        prefetched_lines: 0,
        tlb_misses: 100,
        latency: LatencyReport { mean_ns, ..LatencyReport::default() },
        nodes: ["dram", "nvm"].into_iter().zip(0..).map(node).collect(),
        links: Vec::new(),
        pages: PagesReport::default(),
        timeline: TimelineReport::default(),
        heat_maps: Vec::new(),
        energy_mj: 0.0,
        sensors: Vec::new(),
        page_samples: Vec::new(),
        full: Vec::new(),
    }
}

fn idle() -> Report {
    report([100.0, 100.0], [90.0, 150.0])
}

fn text_of(report: Report) -> String {
    let machine = bundled::machine("bmpm-2").expect("a bundled machine").expect("a sound file");
    let comparison = Comparison::new(&machine, vec!["local".to_owned()], vec![report]);
    explained(&comparison)[0].sentences().join(" ")
}

/// Whether a text has these parts, and lacks those.
#[track_caller]
fn check(text: &str, parts: &[&str], others: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no '{part}': {text}");
    }
    for other in others {
        assert!(!text.contains(other), "'{other}': {text}");
    }
}

const BOUNDS: [&str; 3] = ["Bandwidth-bound", "Latency-bound", "Compute-bound"];

#[test]
fn idle_nodes_leave_latency_as_the_bound() {
    let text = text_of(idle());
    let latency =
        "Latency-bound: a read that misses the caches takes 120 ns on average (dram 90 ns, nvm 150 ns)";
    check(&text, &[latency, "80.0 % waiting for memory"], &[BOUNDS[0], BOUNDS[2]]);
    check(
        &text,
        &[],
        &["Page faults", "Swap", "Migration", "Monitoring", "walk the page table", "Threads wait"],
    );
}

#[test]
fn busy_node_is_the_bound() {
    let text = text_of(report([15_000.0, 100.0], [300.0, 150.0]));
    check(&text, &["Bandwidth-bound: dram is ", " busy, at 15.0 GB/s", "takes 225 ns"], &BOUNDS[1..]);
}

#[test]
fn queue_without_a_busy_node_is_a_bound_for_a_part_of_the_time() {
    let text = text_of(report([100.0, 100.0], [900.0, 150.0]));
    check(
        &text,
        &["Bandwidth-bound for a part of the time: reads queue at dram, where they take 900 ns"],
        &[],
    );
}

#[test]
fn instructions_are_the_bound_if_they_take_most_of_the_time() {
    let spent = TimeReport { user_ms: 95.0, stall_ms: 5.0, ..TimeReport::default() };
    let text = text_of(Report { spent, ..idle() });
    check(&text, &["Compute-bound: 95.0 % of the time", "2.00 of 1,000 miss every cache"], &BOUNDS[..2]);
}

#[test]
fn kernel_time_is_explained_by_its_cause() {
    let kernel = KernelReport {
        faults_ms: 4.0,
        swap_ms: 6.0,
        unmapping_ms: 0.0,
        migration_ms: 10.0,
        monitoring_ms: 20.0,
    };
    let pages = PagesReport {
        faults: 11,
        huge_faults: 3,
        hint_faults: 77,
        marked_misses: 6,
        swapped_out: 5,
        swapped_in: 2,
        migrated: 8,
        moves: vec![MoveReport { from: NodeId(1), to: NodeId(0), pages: 8 }],
        refused: vec![("no-room".to_owned(), 4)],
        ..PagesReport::default()
    };
    let spent = TimeReport {
        user_ms: 30.0,
        system_ms: 40.0,
        kernel,
        stall_ms: 10.0,
        idle_ms: 20.0,
        kernel_threads_ms: 1.5,
    };
    let sensor = ["hint_faults", "observed", "page faults"].map(str::to_owned);
    let [sensor, answer, how] = sensor;
    let sensors = vec![SensorReport { sensor, answer, how }];
    let text = text_of(Report { spent, pages, sensors, ..idle() });
    let parts = [
        "11 first touches of 4 KiB pages and 3 of 2 MiB pages take 4.0 %",
        "5 pages written out and 2 read back take 6.0 %",
        "Migration: 8 pages move from nvm to dram;",
        "waits for them take 10.0 %",
        "Waits for memory are latency-bound: ",
        "Actions refused: 4 no-room.",
        "Monitoring takes 20.0 % of the threads' time (77 NUMA hint faults, 6 marked TLB misses)",
        "run 1.500 ms beside the threads",
        "for the end of the run for 20.0 % of their time.",
    ];
    check(&text, &parts, &["cancelled"]);
}

#[test]
fn walks_are_reported_if_frequent() {
    check(
        &text_of(Report { tlb_misses: 40_000, ..idle() }),
        &["40 of 100 accesses walk the page table"],
        &[],
    );
}

#[test]
fn best_worst_and_baseline_are_explained_once_each_and_their_shares_add_up() {
    let machine = bundled::machine("bmpm-2").expect("a bundled machine").expect("a sound file");
    let times = [("interleave", 30.0), ("local", 25.0), ("ratio", 20.0)];
    let reports = times.map(|(_, time_ms)| Report { time_ms, ..idle() });
    let names = times.map(|(name, _)| name.to_owned());
    let all = Comparison::new(&machine, names.into(), reports.into());
    let roles: Vec<_> = explained(&all).iter().map(|run| (run.policy().to_owned(), run.role())).collect();
    let wanted = [("ratio", "best"), ("interleave", "worst"), ("local", "baseline")];
    assert_eq!(roles, wanted.map(|(policy, role)| (policy.to_owned(), role.to_owned())));
    for run in explained(&all) {
        let shares = run.rows(false).into_iter().filter_map(|row| row[4].number());
        assert!((shares.sum::<f64>() - 1.0).abs() < 1e-9);
        assert_eq!(run.rows(true).len(), 2, "parts without time are left out");
        assert_eq!(run.sentences().join(" ").contains("Compared with ratio"), run.policy() != "ratio");
    }
}

//! Linux's memory tiering: what it promotes and demotes, in runs alone and in one pass for several policies.

use memtide_core::{Batch, Machine, PageSize, Then};
use memtide_sim::{Report, run, run_shared};

use crate::runs::{assert_near, job, policy};
use crate::support::{MachineText, Script, after, alone, doing, load, map, touch};

const SCALE: u32 = 1024;

/// One socket with a fast and a slow node of that many MiB each, of a machine that is [`SCALE`] times as
/// large. The kernel's figures are those of the large one.
fn machine(kernel: &str, mib: [u64; 2]) -> Machine {
    let machine = MachineText::new(kernel)
        .last_level(64 * u64::from(SCALE), 2)
        .socket("s", 2)
        .node("fast", 0, "s", mib[0] * u64::from(SCALE), 100.0, 10_000.0)
        .node("slow", 1, "s", mib[1] * u64::from(SCALE), 200.0, 10_000.0)
        .machine();
    Machine { scale: SCALE, ..machine }
}

/// The scanner marks 64 MiB each 20 us.
fn scanned(kernel: &str, mib: [u64; 2]) -> Machine {
    let scan = format!("numa_scan_period_ms = {}\nnuma_scan_mib = {}\n", 0.02 * f64::from(SCALE), 64 * SCALE);
    machine(&format!("{scan}{kernel}"), mib)
}

/// Reports of a run alone, and of one pass.
fn both(machine: &Machine, name: &str, script: impl Fn() -> Script) -> [Report; 2] {
    let alone = run(machine, vec![job(script(), &[])], policy(machine, name), 1, &mut |_| true);
    let mut shared =
        run_shared(machine, vec![job(script(), &[])], vec![policy(machine, name)], 1, &|_, _| true);
    [alone.expect("a run"), shared.remove(0).expect("a run")]
}

fn pages(report: &Report) -> [u64; 2] {
    [report.nodes[0].pages, report.nodes[1].pages]
}

fn moved(report: &Report, from: u8, to: u8) -> u64 {
    let of = report.pages.moves.iter().filter(|m| (m.from.0, m.to.0) == (from, to));
    of.map(|m| m.pages).sum()
}

/// Loads of a line of each page of these ranges (end exclusive), in turn, repeatedly.
fn reading(ranges: &[(u64, u64)], rounds: u64) -> Batch {
    let pages: Vec<u64> = ranges.iter().flat_map(|&(start, end)| start..end).collect();
    let of_round = |round: u64| pages.iter().map(move |page| load(page * 4096 + round % 64 * 64));
    doing((0..rounds).flat_map(of_round))
}

#[test]
fn hot_pages_of_the_slow_node_are_promoted_at_their_first_hint_fault() {
    let machine = scanned("", [64, 64]);
    let script = || alone([touch(0, 100), reading(&[(0, 100)], 200)]);
    for report in both(&machine, "preferred:node=slow+linux-tiering", script) {
        assert_eq!((pages(&report), moved(&report, 1, 0)), ([100, 0], 100));
        assert_eq!(report.pages.hint_faults, 100, "promoted pages stay mapped");
        assert_eq!(report.nodes[0].copy_lines, 100 * 64);
    }
    for report in both(&machine, "local+linux-tiering", script) {
        assert_eq!((pages(&report), report.pages.hint_faults), ([100, 0], 0));
    }
}

#[test]
fn huge_pages_are_promoted_whole() {
    let batches = || alone([map(0, 4 << 20, PageSize::Huge), touch(0, 1024), reading(&[(0, 1024)], 60)]);
    for report in both(&scanned("", [64, 64]), "preferred:node=slow+linux-tiering", batches) {
        assert_eq!((pages(&report), report.pages.hint_faults), ([1024, 0], 2));
    }
}

/// The scanner unmaps 20 pages of the slow node after 5 ms; half of them are read 0.1 ms later, the others
/// 1.5 ms.
fn late() -> Script {
    let work = |ms: f64| after([], Then::Work((ms * 2e6) as u64));
    let first = reading(&[(0, 10)], 1);
    let second = reading(&[(10, 20)], 1);
    alone([touch(0, 20), work(5.1), first, work(1.4), second])
}

#[test]
fn page_accessed_later_than_the_threshold_stays_unless_much_memory_is_free() {
    let scan =
        format!("numa_scan_period_ms = {}\nnuma_scan_mib = {}\nhint_fault_ns = 500", 5 * SCALE, 64 * SCALE);
    // The threshold is 1 s of the large machine, 0.98 ms of this one; much free memory is more than 1 GiB,
    // here 1 MiB.
    for (mib, promoted) in [(1, 10), (2, 20)] {
        for report in both(&machine(&scan, [mib, 64]), "preferred:node=slow+linux-tiering", late) {
            assert_eq!((report.pages.hint_faults, moved(&report, 1, 0)), (20, promoted));
            assert_eq!(report.pages.moves.len(), 1);
        }
    }
    for report in both(&machine(&scan, [1, 64]), "preferred:node=slow+linux-tiering:rate_limit_mbps=0", late)
    {
        assert_eq!(moved(&report, 1, 0), 0);
        assert_near(report.spent.system_ms, 20.0 * 0.5e-3, 1e-6, "hint faults, ms");
    }
}

#[test]
fn promotions_beyond_the_rate_are_refused() {
    // 10 pages in 0.98 ms; the tenth candidate reaches the rate.
    let name = "preferred:node=slow+linux-tiering:rate_limit_mbps=40";
    let script = |rounds| move || alone([touch(0, 100), reading(&[(0, 100)], rounds)]);
    for report in both(&scanned("", [1, 64]), name, script(80)) {
        assert!(report.time_ms < 0.9, "{} ms", report.time_ms);
        assert_eq!(moved(&report, 1, 0), 9);
        assert!(report.pages.hint_faults > 1000, "refused pages are unmapped again");
    }
    for report in both(&scanned("", [1, 64]), name, script(400)) {
        let windows = (report.time_ms * f64::from(SCALE) / 1000.0) as u64;
        assert!((1..8).contains(&windows), "{} ms", report.time_ms);
        assert_eq!(moved(&report, 1, 0), 9 + 10 * windows, "{} ms", report.time_ms);
    }
}

/// Fills the fast node of 1,024 pages down to its low watermark, and 50 pages of the slow one. Then it uses
/// the first half of the fast node and the slow pages.
fn half_idle() -> Script {
    alone([touch(0, 1014), touch(2000, 50), reading(&[(0, 500), (2000, 2050)], 200)])
}

#[test]
fn full_fast_node_demotes_inactive_pages_for_hot_ones_and_never_active_pages() {
    // Watermarks: low 10 pages, high 20, for promotions 30.
    let machine = scanned("watermark_low_bp = 100\nwatermark_high_bp = 200\nsample_ns = 100000", [4, 64]);
    for report in both(&machine, "local+linux-tiering", half_idle) {
        assert_eq!(moved(&report, 1, 0), 50, "each hot page once: none was demoted again");
        // kswapd frees memory from 10 pages to 31, and again from 21, as often as promotions need.
        assert_eq!(moved(&report, 0, 1), 21 + 4 * 10);
        assert_eq!(report.nodes[0].pages, 1014 + 50 - 61);
        assert_eq!(report.pages.swapped_out, 0);
        assert!(report.spent.kernel_threads_ms > 1014.0 * 100e-6, "the first run checks every page");
    }
}

#[test]
fn full_fast_node_of_pages_in_use_demotes_none() {
    let kernel = "watermark_low_bp = 100\nwatermark_high_bp = 200";
    let script = || alone([touch(0, 1014), touch(2000, 50), reading(&[(0, 1014), (2000, 2050)], 100)]);
    for report in both(&scanned(kernel, [4, 64]), "local+linux-tiering", script) {
        assert_eq!((moved(&report, 0, 1), moved(&report, 1, 0)), (0, 0));
        assert!(report.pages.hint_faults > 100);
    }
    for report in both(&scanned(kernel, [4, 64]), "local+linux-tiering:demotion=off", half_idle) {
        assert_eq!(report.pages.migrated, 0);
    }
}

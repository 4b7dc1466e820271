//! Migration: which pages move, its cost, and who waits.

use crate::support;
use memtide_core::machine::bundled;
use memtide_core::{Batch, CpuId, Machine, PageSize, Then};
use memtide_sim::Report;

use crate::runs::{assert_near, simulate};
use crate::support::{MachineText, Script, after, alone, doing, load, map, touch, two_sockets};

/// The scanner marks all memory every 20 us.
const SCAN: &str = "numa_scan_period_ms = 0.02\nnuma_scan_mib = 64\n";

fn sockets(kernel: &str) -> Machine {
    two_sockets(&format!("{SCAN}{kernel}"), 2, [64, 64], [10_000.0, 10_000.0])
}

/// Loads of a page's lines in turn, from this many pages, repeatedly.
fn reading(pages: u64, rounds: u64) -> Batch {
    doing((0..rounds).flat_map(move |round| (0..pages).map(move |page| load(page * 4096 + round % 64 * 64))))
}

fn on(cpu: u16) -> Batch {
    after([], Then::OnCpu(CpuId(cpu)))
}

fn moved(report: &Report, from: u8, to: u8) -> u64 {
    let of = report.pages.moves.iter().filter(|m| (m.from.0, m.to.0) == (from, to));
    of.map(|m| m.pages).sum()
}

#[test]
fn pages_follow_the_thread_that_reads_them() {
    let script = |migrates: &str| {
        let report = simulate(&sockets(""), migrates, alone([touch(0, 50), on(2), reading(50, 2000)]));
        (report.nodes.iter().map(|n| n.pages).collect::<Vec<u64>>(), report)
    };
    let (pages, report) = script("local+anb");
    assert_eq!(pages, [0, 50]);
    assert_eq!((report.pages.migrated, moved(&report, 0, 1)), (50, 50));
    assert!(report.pages.hint_faults >= 100, "each page is moved at its second hint fault");
    assert_eq!(report.nodes[1].writes, 50 * 64, "every line of every page is copied once");
    assert!(report.nodes[0].reads >= 50 * 64);
    let copied: Vec<u64> = report.nodes.iter().map(|n| n.copy_lines).collect();
    assert_eq!(copied, [50 * 64; 2], "a copy reads every line on one node and writes it on the other");
    assert_eq!(report.nodes[1].demand_lines, report.nodes[1].reads, "copies are no demand");
    let (pages, report) = script("local");
    assert_eq!(pages, [50, 0]);
    assert_eq!((report.pages.migrated, report.pages.hint_faults), (0, 0));
}

#[test]
fn pages_follow_the_thread_on_a_slice_too() {
    let mut machine = bundled::machine("bmpm-2").expect("bundled").expect("checked");
    (machine.slice, machine.scale) = (4, 64);
    // All memory, every 20 us of the reduced machine's time.
    (machine.kernel.numa_scan_period_ms, machine.kernel.numa_scan_mib) = (0.02 * 64.0, 65_536.0);
    let on_second_node = |cpu| {
        let script = alone([touch(0, 50), on(cpu), reading(50, 2000)]);
        simulate(&machine, "local+anb", script).nodes[1].pages
    };
    assert_eq!([1, 2, 3].map(on_second_node), [0, 50, 50], "CPUs 0 and 1 are of the first socket");
}

#[test]
fn huge_pages_move_whole() {
    let batches = [map(0, 4 << 20, PageSize::Huge), touch(0, 1024), on(2), reading(1024, 150)];
    let report = simulate(&sockets(""), "local+anb", alone(batches));
    assert_eq!(report.nodes.iter().map(|n| n.pages).collect::<Vec<u64>>(), [0, 1024]);
    assert_eq!((report.pages.migrated, report.nodes[1].writes), (1024, 1024 * 64));
}

#[test]
fn copies_load_the_link_between_the_nodes() {
    let machine = MachineText::new(SCAN)
        .socket("s0", 1)
        .socket("s1", 1)
        .node("a", 0, "s0", 64, 100.0, 10_000.0)
        .node("b", 1, "s1", 64, 100.0, 10_000.0)
        .link("s0", "s1", 50.0, 10_000.0)
        .machine();
    let report = simulate(&machine, "local+anb", alone([touch(0, 20), on(1), reading(20, 4000)]));
    assert_eq!(report.pages.migrated, 20);
    let link_bytes = report.links[0].forward_mbps * report.time_ms * 1e3;
    assert_near(link_bytes, report.nodes[0].reads as f64 * 64.0, 0.01, "what socket 1 read from socket 0");
    assert!(report.nodes[0].reads >= 20 * 64);
}

/// One page, which moves once, at the second hint fault from the other socket.
fn one_move(kernel: &str) -> Report {
    let report = simulate(&sockets(kernel), "local+anb", alone([touch(0, 1), on(2), reading(1, 200_000)]));
    assert_eq!((report.pages.migrated, moved(&report, 0, 1)), (1, 1), "{kernel}");
    report
}

#[test]
fn move_costs_kernel_figures_and_copy() {
    // Ten lines at a time, each ten 120 ns (100 ns in the node, 20 ns over the link) after the previous ten;
    // the last four arrive one by one at 10 GB/s.
    let copy_ns = 7.0 * 120.0 + 3.0 * 6.4;
    for costs in [
        [0, 0, 0, 0],
        [1000, 0, 0, 0],
        [0, 2000, 0, 0],
        [0, 0, 3000, 0],
        [0, 0, 0, 4000],
        [1000, 2000, 3000, 4000],
    ] {
        let [hint, unmap, shootdown, remap] = costs;
        let report = one_move(&format!(
            "hint_fault_ns = {hint}\nunmap_ns = {unmap}\nshootdown_ns = {shootdown}\nremap_ns = {remap}"
        ));
        // Each step of the scanner interrupts the CPU that runs the task; the CPU that unmaps the page
        // interrupts the task's other one.
        let interrupts = (report.time_ms / 0.02).floor() + 1.0;
        let faults = report.pages.hint_faults as f64;
        let [hint, unmap, shootdown, remap] = costs.map(f64::from);
        let expected = faults * hint + unmap + interrupts * shootdown + remap + copy_ns;
        let found = report.spent.system_ms * 1e6;
        assert!((found - expected).abs() < 0.01, "{costs:?}: {found} ns in the system, not {expected}");
    }
}

#[test]
fn access_to_migrating_page_blocks() {
    // A line takes 1 us, a page 64 us.
    let machine = two_sockets(SCAN, 2, [64, 64], [64.0, 64.0]);
    let readers = |count: usize| {
        let reader = |cpu: u16| [on(cpu), reading(1, 100_000)];
        let mut threads = vec![vec![touch(0, 1)]];
        threads[0].extend((1..count).map(|t| after([], Then::Spawn(memtide_core::ThreadId::from(t)))));
        threads[0].extend(reader(2));
        threads.extend((1..count).map(|_| reader(3).to_vec()));
        Script(threads.into_iter().map(Into::into).collect())
    };
    let [one, two] = [1, 2].map(|count| simulate(&machine, "local+anb", readers(count)));
    assert_eq!((one.pages.migrated, two.pages.migrated), (1, 1));
    // The first line arrives after 0.12 us, each of the others 1 us after the previous one; both threads
    // fault at once.
    assert_near(one.spent.system_ms, 0.06312, 1e-6, "a reader waits for the whole copy");
    assert_near(two.spent.system_ms, 2.0 * 0.06312, 1e-6, "both wait");
}

#[test]
fn pages_migrated_are_those_that_moved_between_nodes() {
    // Two threads on different sockets share pages, which move back and forth.
    let threads = |cpu: u16| (0..300).flat_map(move |_| [on(cpu), reading(30, 40)]);
    for policy in ["local+anb", "interleave+anb", "bw-local+bw-migration", "local+anb:filter=linux-6"] {
        let first = [touch(0, 30), after([], Then::Spawn(memtide_core::ThreadId(1)))];
        let script = Script(vec![first.into_iter().chain(threads(0)).collect(), threads(2).collect()]);
        let report = simulate(&sockets("unmap_ns = 100"), policy, script);
        let between: u64 = report.pages.moves.iter().filter(|m| m.from != m.to).map(|m| m.pages).sum();
        assert_eq!(report.pages.migrated, between, "{policy}: {:?}", report.pages);
        assert_eq!(report.nodes.iter().map(|n| n.pages).sum::<u64>(), 30);
        let net = moved(&report, 0, 1) as i64 - moved(&report, 1, 0) as i64;
        let placed = if policy.starts_with("local") { 0 } else { 15 };
        assert_eq!(report.nodes[1].pages as i64, placed + net, "{policy}: {:?}", report.pages);
    }
}

#[test]
fn bw_migration_keeps_the_balance_between_tiers() {
    for (policy, threshold) in [
        ("local+bw-migration:threshold=7:delivery=in-kernel", 7),
        ("local+bw-migration:threshold=20", 20),
        ("local+bw-migration:threshold=1000:delivery=in-kernel", 100),
    ] {
        let report = simulate(&sockets(""), policy, alone([touch(0, 100), on(2), reading(100, 1500)]));
        assert_eq!(report.nodes[1].pages, threshold, "{policy}: {:?}", report.pages);
    }
}

#[test]
fn page_unmapped_during_migration_is_gone() {
    let machine = two_sockets(SCAN, 2, [64, 64], [64.0, 64.0]);
    for drop in [support::unmap(0, 4096), after([], Then::Exec)] {
        let waits = after([], Then::Work(100_000));
        let first =
            [touch(0, 1), after([], Then::Spawn(memtide_core::ThreadId(1))), waits, drop, touch(7, 2)];
        let script = Script(vec![first.into(), [on(2), doing((0..300_000).map(|_| load(0)))].into()]);
        let report = simulate(&machine, "local+anb", script);
        assert_eq!((report.pages.faults, report.pages.migrated), (4, 0));
        assert_eq!(report.nodes.iter().map(|n| n.pages).collect::<Vec<u64>>(), [2, 1]);
        assert_eq!(report.nodes[1].writes, 64, "the copy went on");
    }
}

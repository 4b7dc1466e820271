//! Non-temporal stores: traffic, write combining and bandwidth.

use memtide_core::{Access, Then};
use memtide_memory::probe::{Load, Pattern, probe};
use memtide_sim::{Job, Report};

use crate::runs::{assert_near, policy, simulate};
use crate::support::{MachineText, Script, after, alone, doing, load, store, store_past, together};

const LINE: u64 = 64;
const PAGE: u64 = 4096;

/// A machine of one fixed node of this bandwidth, with 10 write-combining buffers in each core.
fn machine(mbps: f64) -> memtide_core::Machine {
    MachineText::new("").last_level(64, 4).socket("s", 4).node("n", 0, "s", 64, 90.0, mbps).machine()
}

fn run(script: Script) -> Report {
    simulate(&machine(12_000.0), "local", script)
}

/// Lines that the node read and wrote.
fn traffic(report: &Report) -> [u64; 2] {
    [report.nodes[0].reads, report.nodes[0].writes]
}

/// A load of each page, so that later stores do not fault, and of nothing else.
fn map_in(pages: u64) -> impl Iterator<Item = Access> {
    (0..pages).map(|page| load(page * PAGE))
}

fn half(line: u64, which: u64) -> Access {
    Access { size: 32, ..store_past(line * LINE + which * 32) }
}

#[test]
fn stream_moves_a_third_or_a_quarter_less_with_non_temporal_stores() {
    for (kernel, ordinary_bytes, non_temporal_bytes) in [("triad", 32.0, 24.0), ("copy", 24.0, 16.0)] {
        for (stores, bytes) in [("ordinary", ordinary_bytes), ("non-temporal", non_temporal_bytes)] {
            let params = format!("kernel={kernel},stores={stores},footprint_mib=12,threads=4,iterations=3");
            let program = memtide_workloads::program("stream", &params.parse().unwrap(), 1).unwrap();
            let machine = machine(12_000.0);
            let job = Job::new("stream", program);
            let policy = policy(&machine, "local");
            let report = memtide_sim::run(&machine, vec![job], policy, 1, &mut |_| true).unwrap();
            let elements = f64::from(2 * (12 << 20) / 3 / 8 / 1024 * 1024);
            let lines: u64 = traffic(&report).iter().sum();
            assert_near(
                (lines * LINE) as f64 / elements,
                bytes,
                0.01,
                &format!("{params}: bytes an element"),
            );
            let [_, writes] = traffic(&report);
            assert_near((writes * LINE) as f64 / elements, 8.0, 0.01, &format!("{params}: bytes written"));
            assert_near(report.nodes[0].bandwidth_mbps, 12_000.0, 0.05, &format!("{params}: bandwidth"));
        }
    }
}

#[test]
fn non_temporal_fill_is_limited_by_bandwidth_of_its_node() {
    for mbps in [2_000.0, 8_000.0] {
        let lines = 20_000;
        let fill = |thread: usize| {
            let line = move |n: u64| thread as u64 * lines + n;
            let stores = (0..lines).flat_map(move |n| [half(line(n), 0), half(line(n), 1)]);
            vec![doing(stores)]
        };
        let report = simulate(&machine(mbps), "local", together(4, fill));
        assert_eq!(traffic(&report), [0, 4 * lines]);
        assert_near((4 * lines * LINE) as f64 / report.time_ms / 1e3, mbps, 0.02, "bandwidth of a fill");
    }
}

/// The first pass, in which pages fault, is left out.
#[test]
fn non_temporal_fill_of_dram_has_the_bandwidth_of_probed_writes() {
    let text = include_str!("../../../machines/ddr4-2400.toml");
    let machine = memtide_core::Machine::parse("ddr4-2400.toml", text).expect("a bundled machine");
    let lines = 100_000;
    let [first, both] = [1, 2].map(|passes| {
        let pass = || doing((0..lines).flat_map(|n| [half(n, 0), half(n, 1)]));
        let report = simulate(&machine, "local", alone((0..passes).map(|_| pass())));
        let queue = u64::from(machine.nodes[0].dram.as_ref().expect("DRAM").write_queue);
        let [reads, writes] = traffic(&report);
        assert!(reads == 0 && (passes * lines - queue..=passes * lines).contains(&writes), "{writes} writes");
        report.time_ms
    });
    let load =
        Load { pattern: Pattern::Sequential, read_share: 0.0, share_of_peak: 1.5, requests: lines, seed: 1 };
    let probed = probe(&machine.nodes[0], load).achieved.as_mbps();
    assert_near((lines * LINE) as f64 / (both - first) / 1e3, probed, 0.05, "bandwidth of a fill");
}

#[test]
fn partly_written_line_is_one_write_and_no_read() {
    let report = run(alone([doing((0..1000).map(|n| store_past(n * LINE)))]));
    assert_eq!(traffic(&report), [0, 1000]);
    assert_eq!((report.llc_misses, report.private_hits.as_slice()), (0, &[0, 0][..]));
}

#[test]
fn lines_written_in_turn_are_combined_while_buffers_suffice() {
    for (streams, writes) in [(10, 1), (11, 2)] {
        let lines = 64;
        let part = |n: u64, which| (0..streams).map(move |stream| half(stream * LINE + n, which));
        let rounds = (0..lines).flat_map(|n| part(n, 0).chain(part(n, 1)));
        let report = run(alone([doing(map_in(streams).chain(rounds))]));
        assert_eq!(traffic(&report), [streams, writes * streams * lines], "{streams} streams");
    }
}

#[test]
fn cached_line_is_evicted_and_written_once() {
    let whole = Access { size: 64, ..store_past(0) };
    let report = run(alone([doing([store(0), whole, load(0)])]));
    assert_eq!(traffic(&report), [2, 1], "fetched by the store, and again by the load");
    let report = run(alone([doing([store(0), store_past(0), load(LINE)])]));
    assert_eq!(traffic(&report), [2, 1], "the rest of a partly written line is merged");
}

#[test]
fn load_of_a_line_being_written_closes_its_buffer() {
    let report = run(alone([doing([half(0, 0), load(0), half(0, 1)])]));
    assert_eq!(traffic(&report), [1, 2]);
    let report = run(alone([doing([half(0, 0), load(LINE), half(0, 1)])]));
    assert_eq!(traffic(&report), [1, 1]);
}

#[test]
fn barrier_waits_for_non_temporal_stores() {
    let lines = 1000;
    let time_ns = |then| {
        let stores = map_in(20).chain((0..lines).map(|n| store_past((n + 64) * LINE)));
        let other_line = 18 * PAGE + LINE;
        let script = alone([after(stores, then), doing([load(other_line)])]);
        let report = simulate(&machine(1_000.0), "local", script);
        assert_eq!(traffic(&report), [21, lines]);
        report.time_ms * 1e6
    };
    let (open, closed) = (time_ns(Then::Continue), time_ns(Then::Barrier));
    // The load begins when the last write has been accepted, and waits for its 64 ns on the node.
    assert!(closed >= open + 64.0, "{closed} ns with a barrier, {open} without");
}

//! Closed forms that the simulator must match.

use memtide_core::machine::bundled;
use memtide_core::{Access, Batch, Machine, PageSize, Then};
use memtide_memory::probe::{Load, Pattern, probe};

use crate::runs::{assert_near, simulate, try_jobs};
use crate::support::{
    MachineText, Script, after, alone, doing, follow, load, map, mixed, store, together, touch, two_sockets,
};
use memtide_sim::Job;

const LINE: u64 = 64;

/// Loads of this many lines of an area, each once, in an order that defeats prefetchers; each depends on the
/// previous one.
fn chase(lines: u64, steps: u64) -> Batch {
    assert!(lines.is_power_of_two());
    doing((0..steps).map(|step| follow(step.wrapping_mul(0x9E37_79B1) % lines * LINE)))
}

fn chased(machine: &Machine, page: PageSize, expected_ns: f64) {
    let (lines, steps) = (1 << 19, 20_000);
    let script = alone([map(0, lines * LINE, page), chase(lines, steps)]);
    let report = simulate(machine, "local", script);
    assert_eq!(report.llc_misses, steps);
    assert_near(report.latency.mean_ns.expect("reads"), expected_ns, 0.02, "mean memory latency");
    assert_near(report.time_ms * 1e6 / steps as f64, expected_ns, 0.02, "time a step");
}

fn one_node(mib: u64, latency_ns: f64, mbps: f64) -> MachineText {
    MachineText::new("").last_level(64, 2).socket("s", 2).node("n", 0, "s", mib, latency_ns, mbps)
}

#[test]
fn pointer_chase_step_takes_configured_latency() {
    chased(&one_node(64, 90.0, 20_000.0).machine(), PageSize::Base, 90.0);
    chased(&one_node(64, 350.0, 5_000.0).machine(), PageSize::Base, 350.0);
}

#[test]
fn huge_pages_need_no_walks_and_base_pages_one_per_step() {
    let machine = || one_node(64, 90.0, 20_000.0).tlb(64, 30);
    chased(&machine().machine(), PageSize::Huge, 90.0);
    let script = alone([chase(1 << 19, 20_000)]);
    let report = simulate(&machine().machine(), "local", script);
    assert_near(report.latency.mean_ns.expect("reads"), 90.0, 0.02, "mean memory latency");
    assert_near(report.time_ms * 1e6 / 20_000.0, 90.0 + 15.0, 0.02, "time a step");
}

/// 8192 pages have 1024 lines of page table. Of the 128 lines of the private caches every other one is then a
/// line of the table, so that one walk in 16 finds its line. A nested walk reads two lines: those of the last
/// 42 pages are there.
#[test]
fn walks_of_chase_over_large_memory_are_cold() {
    for (nested, warm_share) in [("", 64.0 / 1024.0), ("nested_walks = true\n", 42.0 / 1024.0)] {
        let tlb = format!(
            "[[tlb]]\nname = \"L1\"\nentries = 64\nways = 4\nwalk_cycles = 30\n\
             cold_walk_cycles = 200\n{nested}"
        );
        let machine = one_node(64, 90.0, 20_000.0).with(&tlb).machine();
        let random = doing((0..20_000).map(|step| follow(mixed(step) % (1 << 19) * LINE)));
        let report = simulate(&machine, "local", alone([random]));
        let walk_ns = 15.0 * warm_share + 100.0 * (1.0 - warm_share);
        assert_near(report.time_ms * 1e6 / 20_000.0, 90.0 + walk_ns, 0.02, "time a step");
    }
}

/// Stores leave their queue in order: one of S that misses lets 64 / S misses overlap. Loads between them
/// that hit do not wait.
#[test]
fn store_queue_bounds_misses_of_stores() {
    for stores in [8, 16, 32, 64] {
        let mut machine = one_node(64, 400.0, 20_000.0).machine();
        machine.core.outstanding_misses = 64;
        let access = |n: u64| match n % (2 * stores) {
            0 => store((1 + mixed(n) % (1 << 18)) * LINE),
            other if other % 2 == 0 => store(0),
            _ => load(0),
        };
        let time_ms = |misses: u64| {
            let run = doing((0..2 * stores * misses).map(access));
            simulate(&machine, "local", alone([touch(0, 1 << 13), run])).time_ms
        };
        let step_ns = (time_ms(3000) - time_ms(1000)) * 1e6 / 2000.0;
        assert_near(step_ns, 400.0 * stores as f64 / 64.0, 0.05, "time a miss");
    }
}

#[test]
fn link_adds_its_latency() {
    let machine = MachineText::new("")
        .socket("s", 2)
        .node("n", 0, "", 64, 90.0, 20_000.0)
        .link("s", "n", 70.0, 20_000.0);
    chased(&machine.machine(), PageSize::Base, 160.0);
}

/// STREAM's triad: every thread loads two lines and stores a third, sequentially in its own arrays.
fn triad(threads: usize, lines: u64) -> Script {
    together(threads, |thread| {
        let array = |which: u64| (thread as u64 * 3 + which) * lines * LINE;
        let step = |line: u64| {
            let wide = |access: Access| Access { size: 64, ..access };
            [load(array(0) + line * LINE), load(array(1) + line * LINE), store(array(2) + line * LINE)]
                .map(wide)
        };
        vec![doing((0..lines).flat_map(step))]
    })
}

/// Repeated loads of every line of a thread's own array.
fn scan(threads: usize, lines: u64, passes: usize) -> Script {
    together(threads, |thread| {
        let pass = doing((0..lines).map(|line| load((thread as u64 * lines + line) * LINE)));
        vec![pass; passes]
    })
}

/// Bandwidth of a scan, without the first pass, in which every page faults.
fn scan_mbps(machine: &Machine, threads: usize, lines: u64) -> f64 {
    let [first, both] = [1, 2].map(|passes| simulate(machine, "local", scan(threads, lines, passes)));
    (both.nodes[0].reads - first.nodes[0].reads) as f64 * LINE as f64 / (both.time_ms - first.time_ms) / 1e3
}

#[test]
fn stream_on_a_fixed_node_has_its_bandwidth() {
    for mbps in [4_000.0, 12_000.0] {
        let machine = MachineText::new("").last_level(64, 8).socket("s", 8).node("n", 0, "s", 64, 90.0, mbps);
        let report = simulate(&machine.machine(), "local", triad(8, 4096));
        assert_near(report.nodes[0].bandwidth_mbps, mbps, 0.05, "bandwidth");
        assert_near(report.nodes[0].writes as f64, report.nodes[0].reads as f64 / 3.0, 0.05, "writes");
        let seconds = report.time_ms / 1e3;
        assert_near((4 * 8 * 4096 * LINE) as f64 / seconds / 1e6, mbps, 0.05, "work done in the time");
    }
}

#[test]
fn stream_with_the_prefetcher_has_the_same_bandwidth() {
    let machine = MachineText::new("")
        .last_level(256, 8)
        .with("[prefetcher]\nstreams = 16\ndistance_lines = 16\n")
        .socket("s", 8)
        .node("n", 0, "s", 64, 90.0, 12_000.0)
        .machine();
    let report = simulate(&machine, "local", triad(8, 4096));
    assert!(report.prefetched_lines > 40_000, "{} lines prefetched", report.prefetched_lines);
    assert_near(report.nodes[0].bandwidth_mbps, 12_000.0, 0.05, "bandwidth");
}

/// Of a chase through lines in order, the prefetcher misses the first three lines of each page; if it follows
/// to the next page, those of the first alone.
#[test]
fn prefetcher_that_follows_to_next_page_misses_once() {
    let misses = |next_page: &str| {
        let machine = MachineText::new("")
            .last_level(256, 8)
            .with(&format!("[prefetcher]\nstreams = 16\ndistance_lines = 16\n{next_page}"))
            .socket("s", 8)
            .node("n", 0, "s", 64, 90.0, 12_000.0)
            .machine();
        let (pages, page_lines) = (64, 64);
        // Pages that are not mapped yet have no next page.
        let touched = doing((0..pages).map(|page| follow((page * page_lines + 32) * LINE)));
        let in_order = doing((0..pages * page_lines).map(|line| follow(line * LINE)));
        let map = map(0, pages * page_lines * LINE, PageSize::Base);
        simulate(&machine, "local", alone([map, touched, in_order])).llc_misses - pages
    };
    assert_eq!((misses(""), misses("next_page = true\n")), (64 * 3, 3));
}

/// A chase at a stride has the distance's lines in flight and the one that it waits for. Lines that go into
/// the first cache take no time of the shared one's.
#[test]
fn prefetcher_that_recognises_strides_divides_latency_by_its_lines() {
    let step_ns = |prefetcher: &str, latency: f64| {
        let machine = MachineText::new("")
            .last_level(1024, 8)
            .with(&format!("[prefetcher]\nstreams = 2\ndistance_lines = 4\nnext_page = true\n{prefetcher}"))
            .socket("s", 8)
            .node("n", 0, "s", 64, latency, 50_000.0)
            .machine();
        let pages = 512;
        let touched = doing((0..pages).map(|page| follow((page * 64 + 32) * LINE)));
        let in_order = doing((0..pages * 64).step_by(4).map(|line| follow(line * LINE)));
        let map = map(0, pages * 64 * LINE, PageSize::Base);
        let time = |batches: Vec<Batch>| simulate(&machine, "local", alone(batches)).time_ms * 1e6;
        let before = time(vec![map.clone(), touched.clone()]);
        (time(vec![map, touched, in_order]) - before) / (pages * 16) as f64
    };
    let last_level = 20.0;
    assert_near(step_ns("stride_lines = 4\n", 200.0), 200.0 / 5.0, 0.05, "time a step");
    assert!(step_ns("", 200.0) > 100.0, "every fourth of the next lines alone");
    assert_near(step_ns("stride_lines = 4\n", 60.0), last_level, 0.05, "time a step");
    assert_near(step_ns("stride_lines = 4\nfirst_cache = true\n", 60.0), 60.0 / 5.0, 0.05, "time a step");
}

/// STREAM's kernels in the shared cache of pms' machine, and in its core's time.
#[test]
fn elements_of_stream_take_a_cortex_a53s_cycles() {
    for (kernel, cycles) in [("copy", 4.0), ("scale", 10.0), ("add", 11.0), ("triad", 15.0)] {
        let mut machine = bundled::machine("pms").expect("a bundled machine").expect("a checked machine");
        machine.caches[1].capacity_kib = 4096;
        machine.tlbs[1].ways = 512;
        let params = format!("kernel={kernel},code=cortex-a53,threads=1,footprint_mib=1,iterations=2");
        let program = memtide_workloads::program("stream", &params.parse().expect("parameters"), 1);
        let job = Job::new("stream", program.expect("a bundled workload"));
        let report = try_jobs(&machine, "local", vec![job]).expect("a run");
        let elements = f64::from((1 << 20) / 24 / 1024 * 1024);
        let element = report.time_ms * 1e6 / elements;
        assert_near(element * machine.core.clock_mhz / 1e3, cycles, 0.03, kernel);
    }
}

#[test]
fn one_core_is_limited_by_misses_over_latency() {
    let mbps = scan_mbps(&one_node(64, 160.0, 50_000.0).machine(), 1, 20_000);
    assert_near(mbps, 10.0 * 64.0 / 160.0 * 1e3, 0.05, "bandwidth");
}

#[test]
fn stream_over_narrow_link_has_link_bandwidth() {
    let machine = MachineText::new("")
        .last_level(64, 8)
        .socket("s", 8)
        .node("n", 0, "", 64, 90.0, 20_000.0)
        .link("s", "n", 70.0, 5_000.0)
        .machine();
    let report = simulate(&machine, "local", scan(8, 8192, 1));
    assert_near(report.nodes[0].bandwidth_mbps, 5_000.0, 0.05, "bandwidth");
    assert_near(report.links[0].back_mbps, 5_000.0, 0.05, "bandwidth of the link");
    assert_eq!(report.links[0].forward_mbps, 0.0);
    assert_near(report.links[0].back_share, 1.0, 0.05, "utilisation of the link");
    assert_eq!(report.links[0].forward_share, 0.0);
}

const THREADS: usize = 16;

/// Every thread places its share of an area, and then all of them read random lines of the whole area.
fn random_reads(pages: u64, reads: u64) -> Script {
    together(THREADS, |thread| {
        let thread = thread as u64;
        let own = pages / THREADS as u64;
        let read = move |n: u64| load(mixed(thread << 32 | n) % (pages * 64) * LINE);
        vec![after(touch(thread * own, own).accesses, Then::Barrier), doing((0..reads).map(read))]
    })
}

/// Time of the reads alone: placing the pages takes the same time for any number of reads.
fn bandwidth_bound_ms(machine: &Machine, policy: &str) -> f64 {
    let time = |reads| simulate(machine, policy, random_reads(1 << 13, reads)).time_ms;
    time(9_000) - time(1_000)
}

#[test]
fn bandwidth_aware_placement_speedup_matches_paper() {
    for r in [2.0, 5.0, 10.0] {
        let machine = two_sockets("", 8, [64, 64], [2_000.0 * r, 2_000.0]);
        let [one_to_one, by_bandwidth, local] =
            ["interleave", "bw-interleave", "bw-local"].map(|policy| bandwidth_bound_ms(&machine, policy));
        let cut = 1.0 - by_bandwidth / one_to_one;
        assert_near(cut, (r - 1.0) / (r + 1.0), 0.03, &format!("the cut at ratio {r}"));
        assert_near(local, by_bandwidth, 0.02, &format!("bw-local at ratio {r}"));
        let ideal = (8_000.0 * THREADS as f64 * LINE as f64) / (2_000.0 * (r + 1.0)) / 1e3;
        assert_near(by_bandwidth, ideal, 0.04, &format!("time at the sum of both bandwidths, ratio {r}"));
    }
}

#[test]
fn cached_program_gains_nothing() {
    let machine = two_sockets("", 8, [64, 64], [20_000.0, 2_000.0]);
    let script = |loads: u64| {
        together(THREADS, |thread| {
            let base = thread as u64 * 4096;
            vec![doing((0..loads).map(|n| load(base + n % 24 * LINE)))]
        })
    };
    let time_ms = |policy| {
        let [cold, both] = [1_000, 101_000].map(|loads| simulate(&machine, policy, script(loads)).time_ms);
        both - cold
    };
    let local = time_ms("local");
    for policy in ["interleave", "fast-only", "bw-interleave", "bw-local", "low-latency"] {
        assert_near(time_ms(policy), local, 0.01, policy);
    }
}

const DDR4: &str = "[[node]]\nname = \"n\"\ntier = 0\ncapacity_mib = 256\ninitiator = \"s\"\n[node.dram]\n\
    channels = 1\nranks = 2\nbank_groups = 4\nbanks = 4\nrows = 65536\nrow_bytes = 8192\n\
    address_map = \"row|bank|bank_group|rank|column\"\nt_ck_ps = 833\nburst = 4\ncl = 17\ncwl = 12\n\
    rcd = 17\nrp = 17\nras = 39\nccd_s = 4\nccd_l = 6\nrrd_s = 4\nrrd_l = 6\nfaw = 26\nwtr_s = 3\nwtr_l = 9\n\
    wr = 18\nrtp = 9\nrank_switch = 2\nrfc = 420\nrefi = 9360\n";

fn dram(cpus: u16) -> Machine {
    MachineText::new("").last_level(64, cpus).socket("s", cpus).with(DDR4).machine()
}

fn probed(machine: &Machine, pattern: Pattern) -> memtide_memory::probe::ProbePoint {
    let load = Load { pattern, read_share: 1.0, share_of_peak: 1.5, requests: 100_000, seed: 1 };
    probe(&machine.nodes[0], load)
}

#[test]
fn chase_on_a_dram_node_matches_probe() {
    let machine = dram(2);
    let lines = 1 << 21;
    let chase = |steps| doing((0..steps).map(|n| follow(mixed(n) % lines * LINE)));
    let after = |steps| simulate(&machine, "local", alone([touch(0, lines / 64), chase(steps)])).time_ms;
    let step_ns = (after(30_000) - after(10_000)) * 1e6 / 20_000.0;
    let through_caches = 20.0;
    let expected = probed(&machine, Pattern::Chase).mean_ns + through_caches;
    assert_near(step_ns, expected, 0.02, "time a step");
}

#[test]
fn scan_of_a_dram_node_matches_probe() {
    let mut machine = dram(2);
    machine.core.outstanding_misses = 64;
    machine.core.reorder_buffer = 4096;
    let mbps = scan_mbps(&machine, 1, 100_000);
    let expected = probed(&machine, Pattern::Sequential).achieved.as_mbps();
    assert_near(mbps, expected, 0.05, "bandwidth of a scan");
}

#[test]
fn random_reads_of_a_dram_node_match_probe() {
    let machine = dram(16);
    let pages = 1 << 13;
    let all = |reads| simulate(&machine, "local", random_reads(pages, reads));
    let (short, long) = (all(1_000), all(9_000));
    let lines = long.nodes[0].reads - short.nodes[0].reads;
    let mbps = (lines * LINE) as f64 / (long.time_ms - short.time_ms) / 1e3;
    let expected = probed(&machine, Pattern::Random).achieved.as_mbps();
    assert_near(mbps, expected, 0.05, "bandwidth of random reads");
}

/// Without caches, the controller merges stores to a line in its write queue, and forwards loads from there.
#[test]
fn queue_hits_are_not_traffic() {
    let text = include_str!("../../../machines/ddr4-2400.toml");
    let machine = Machine::parse("ddr4-2400.toml", text).expect("a bundled machine");
    let again =
        |n: u64| if n.is_multiple_of(2) { store(n / 64 % 32 * LINE) } else { load(n / 64 % 32 * LINE) };
    let report = simulate(&machine, "local", alone([doing((0..200_000).map(again))]));
    let node = &report.nodes[0];
    let peak = 64.0 / (4.0 * 0.833) * 1e3;
    assert!(
        200_000.0 * LINE as f64 / report.time_ms / 1e3 > peak,
        "the program asks for more than the bus carries"
    );
    assert!(node.bandwidth_mbps <= peak, "{} MB/s over a bus of {peak}", node.bandwidth_mbps);
    let most = report.timeline.bandwidth_mbps[0].iter().fold(0.0, |a: f64, &b| a.max(b));
    assert!(most > 0.0 && most <= peak, "{most} MB/s over a bus of {peak}");
    assert_near(
        node.read_bandwidth_mbps,
        node.reads as f64 * LINE as f64 / report.time_ms / 1e3,
        1e-6,
        "reads",
    );
}

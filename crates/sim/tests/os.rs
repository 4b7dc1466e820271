//! The operating system: page placement, faults, swap, unmapping, and time slices.

use memtide_core::{Batch, CpuId, Machine, NodeId, PageSize, Program, ProgramError, Then, ThreadId};
use memtide_sim::{Job, Report, SimError, run};

use crate::runs::{assert_near, job, policy, simulate, try_jobs, try_run};
use crate::support::{
    MachineText, Script, after, alone, doing, follow, load, map, mixed, store, together, touch,
};
use crate::support::{two_sockets, unmap};

const MIB: u64 = 1 << 20;

fn pages(report: &Report) -> Vec<u64> {
    report.nodes.iter().map(|node| node.pages).collect()
}

fn small(kernel: &str) -> Machine {
    two_sockets(kernel, 2, [1, 1], [10_000.0, 10_000.0])
}

fn large() -> Machine {
    two_sockets("", 2, [64, 64], [10_000.0, 5_000.0])
}

#[test]
fn pages_follow_the_rule() {
    let expected: [(&str, [u64; 2]); 6] = [
        ("local", [1200, 0]),
        ("fast-only", [1200, 0]),
        ("interleave", [600, 600]),
        ("ratio:weights=4:1", [960, 240]),
        ("ratio:weights=1:5", [200, 1000]),
        ("bw-interleave", [800, 400]),
    ];
    for (name, pages_of_nodes) in expected {
        let report = simulate(&large(), name, alone([touch(5, 1200)]));
        assert_eq!(pages(&report), pages_of_nodes, "{name}");
        assert_eq!(report.pages.faults, 1200);
    }
}

/// Where no node has room, migration finds none, or that of reclaimed pages, and the program goes on.
#[test]
fn full_memory_swaps_under_every_migration_policy() {
    let machine = small("fault_ns = 100\nswap_ns = 1000\nnuma_scan_period_ms = 1");
    for migration in memtide_policies::migrations() {
        let name = format!("interleave+{}", migration.name);
        let reads = (0..28_000).map(|read| load(read * 7 % 700 * 4096 + read / 700 % 64 * 64));
        let report = simulate(&machine, &name, alone([touch(0, 700), doing(reads)]));
        assert!(report.pages.swapped_out >= 700 - 512, "{name}: {:?}", report.pages);
        assert!(pages(&report).iter().all(|&pages| pages <= 256), "{name}: {:?}", pages(&report));
        let resident = 700 + report.pages.swapped_in - report.pages.swapped_out;
        assert_eq!(pages(&report).iter().sum::<u64>(), resident, "{name}");
    }
}

#[test]
fn rule_state_is_per_thread() {
    let report = simulate(&large(), "ratio:weights=4:1", together(4, |t| vec![touch(1000 * t as u64, 7)]));
    assert_eq!(pages(&report), [4 * 6, 4]);
}

#[test]
fn local_is_node_of_touching_cpu() {
    let script = alone([touch(0, 30), after([], Then::OnCpu(CpuId(3))), touch(100, 50)]);
    assert_eq!(pages(&simulate(&large(), "local", script)), [30, 50]);
    let report = try_jobs(&large(), "local", vec![job(alone([touch(0, 9)]), &[2])]).unwrap();
    assert_eq!(pages(&report), [0, 9]);
}

#[test]
fn full_node_spills_to_next_node_above_its_watermark() {
    assert_eq!(pages(&simulate(&small(""), "local", alone([touch(0, 300)]))), [256, 44]);
    let kept = small("watermark_low_bp = 1000\nwatermark_high_bp = 2000");
    assert_eq!(pages(&simulate(&kept, "local", alone([touch(0, 300)]))), [256 - 25, 300 - (256 - 25)]);
}

#[test]
fn full_memory_swaps_least_recent_pages() {
    let machine = small("fault_ns = 100\nswap_ns = 1000");
    let script = alone([touch(0, 700), touch(0, 700), doing((0..700).map(|page| load(page * 4096)))]);
    let report = simulate(&machine, "local", script);
    let moved = &report.pages;
    assert!(moved.swapped_in >= 188, "{} pages came back", moved.swapped_in);
    assert_eq!(moved.faults, 700 + moved.swapped_in);
    assert_eq!(pages(&report).iter().sum::<u64>(), 700 + moved.swapped_in - moved.swapped_out);
    assert!(pages(&report).iter().all(|&pages| pages <= 256));
    let cost_us = moved.faults as f64 * 0.1 + (moved.swapped_in + moved.swapped_out) as f64;
    assert_near(report.spent.system_ms * 1e3, cost_us, 1e-6, "system time");
    // As docs/simulator.md says, swap moves no lines: all are requested by cores.
    let lines = |of: fn(&memtide_sim::NodeReport) -> u64| report.nodes.iter().map(of).sum::<u64>();
    assert!(lines(|node| node.reads) <= lines(|node| node.demand_lines), "swap reads no line of a node");
    assert_eq!(lines(|node| node.copy_lines), 0);
    let limits = include_str!("../../../docs/simulator.md").split("## Limits").nth(1);
    assert!(limits.is_some_and(|limits| limits.contains("**Swap traffic.**")));
}

#[test]
fn used_pages_stay_when_others_are_reclaimed() {
    let machine = MachineText::new("").socket("s", 1).node("n", 0, "s", 1, 100.0, 10_000.0).machine();
    let hot = || doing((0..64).map(|page| load(page * 4096 + page % 8 * 64)));
    let cold = (0..20).flat_map(|round| [hot(), touch(1000 + round * 40, 40)]);
    let report = simulate(&machine, "local", alone(std::iter::once(touch(0, 64)).chain(cold)));
    assert!(report.pages.swapped_out >= 20 * 40 + 64 - 256);
    // The first sweep finds every page accessed and takes the oldest; later ones have accessed bits to go by.
    assert!(report.pages.swapped_in <= 64, "hot pages came back {} times", report.pages.swapped_in);
}

#[test]
fn fast_only_swaps_rather_than_spill() {
    let report = simulate(&small(""), "fast-only", alone([touch(0, 400)]));
    assert_eq!(pages(&report)[1], 0);
    assert_eq!(report.pages.swapped_out, 400 - pages(&report)[0]);
}

#[test]
fn bound_program_runs_out_of_memory_rather_than_spill_or_swap() {
    assert_eq!(pages(&simulate(&small(""), "bind:node=slow", alone([touch(0, 256)]))), [0, 256]);
    let error = try_run(&small(""), "bind:node=slow", alone([touch(0, 257)])).expect_err("256 pages fit");
    assert!(matches!(&error, SimError::Bound { nodes } if *nodes == [NodeId(1)]), "{error}");
    assert!(error.to_string().starts_with("out of memory: the policy binds the program to node 1, "));
    assert_eq!(pages(&simulate(&small(""), "bind:node=slow:fast", alone([touch(0, 300)]))), [256, 44]);
}

#[test]
fn preferred_node_spills_when_full_and_swaps_only_when_all_are() {
    let report = simulate(&small(""), "preferred:node=slow", alone([touch(0, 300)]));
    assert_eq!((pages(&report), report.pages.swapped_out), (vec![44, 256], 0));
    let report = simulate(&small(""), "preferred:node=slow", alone([touch(0, 600)]));
    assert!(report.pages.swapped_out >= 600 - 512);
}

#[test]
fn huge_pages_fault_once_at_their_cost() {
    let machine = two_sockets("fault_ns = 100\nhuge_fault_ns = 7000", 2, [64, 64], [10_000.0, 10_000.0]);
    let script = alone([map(0, 8 * MIB, PageSize::Huge), touch(0, 2048), touch(4096, 3)]);
    let report = simulate(&machine, "interleave", script);
    assert_eq!((report.pages.huge_faults, report.pages.faults), (4, 3));
    assert_eq!(pages(&report).iter().sum::<u64>(), 2048 + 3);
    assert_near(report.spent.system_ms * 1e3, 4.0 * 7.0 + 3.0 * 0.1, 1e-6, "system time");
}

#[test]
fn every_line_of_huge_pages_has_its_own_place_and_tlb_entries_reach_far() {
    let machine = || MachineText::new("").last_level(64, 2).tlb(16, 30).socket("s", 2);
    let machine = machine().node("n", 0, "s", 64, 100.0, 10_000.0).machine();
    let lines = 8 * MIB / 64;
    let scattered = || doing((0..lines).map(|n| load(n.wrapping_mul(0x9E37_79B1) % lines * 64)));
    let huge = simulate(&machine, "local", alone([map(0, 8 * MIB, PageSize::Huge), scattered()]));
    assert_eq!((huge.nodes[0].reads, huge.llc_misses), (lines, lines));
    assert_eq!(huge.tlb_misses, 4);
    let base = simulate(&machine, "local", alone([scattered()]));
    assert_eq!(base.nodes[0].reads, lines);
    assert!(base.tlb_misses > lines / 2);
}

#[test]
fn without_a_tlb_there_are_no_tlb_misses() {
    assert_eq!(simulate(&large(), "local", alone([touch(0, 100)])).tlb_misses, 0);
}

/// Two nodes of 3 MiB: each fits one huge page and 256 base pages.
fn three_mib() -> Machine {
    two_sockets("", 1, [3, 3], [10_000.0, 10_000.0])
}

#[test]
fn base_pages_replace_huge_pages_that_do_not_fit() {
    let script = alone([map(0, 6 * MIB, PageSize::Huge), touch(0, 1536)]);
    let report = simulate(&three_mib(), "local", script);
    assert_eq!((report.pages.huge_faults, report.pages.faults), (2, 512));
    assert_eq!(pages(&report), [768, 768]);
    assert_eq!(report.pages.swapped_out, 0);
}

#[test]
fn fault_with_base_page_fallback_is_one_step_of_rule() {
    let firsts = (0..22).map(|region| touch(region * 512, 1));
    let script = alone([map(0, 44 * MIB, PageSize::Huge)].into_iter().chain(firsts));
    let report = simulate(&three_mib(), "interleave", script);
    assert_eq!((report.pages.huge_faults, report.pages.faults), (2, 20));
    assert_eq!(pages(&report), [512 + 10, 512 + 10]);
}

#[test]
fn huge_pages_can_replace_unmapped_base_pages() {
    let script = alone([
        map(0, 4 * MIB, PageSize::Base),
        touch(0, 1024),
        unmap(0, 4 * MIB),
        map(0, 4 * MIB, PageSize::Huge),
        touch(0, 1024),
    ]);
    let report = simulate(&large(), "local", script);
    assert_eq!((report.pages.faults, report.pages.huge_faults), (1024, 2));
    assert_eq!(pages(&report), [1024, 0]);
}

#[test]
fn unmapped_pages_free_their_frames() {
    let round = |n: u64| [touch(n * 1000, 250), unmap(n * 1000 * 4096, 250 * 4096)];
    let report = simulate(&small(""), "local", alone((0..10).flat_map(round).chain([touch(0, 256)])));
    assert_eq!(pages(&report), [256, 0]);
    assert_eq!((report.pages.faults, report.pages.swapped_out), (2756, 0));
}

#[test]
fn unmapping_takes_whole_pages_alone() {
    let script = alone([touch(0, 4), unmap(100, 2 * 4096), touch(0, 4)]);
    assert_eq!(simulate(&large(), "local", script).pages.faults, 4 + 1);
}

#[test]
fn spawned_threads_share_memory_and_forked_ones_do_not() {
    let threads = |start: fn(ThreadId) -> Then| {
        Script(vec![
            [touch(0, 100), after([], start(ThreadId(1))), touch(0, 100)].into(),
            [touch(0, 100), touch(500, 10)].into(),
        ])
    };
    let spawned = simulate(&large(), "local", threads(Then::Spawn));
    assert_eq!(spawned.pages.faults, 110);
    let forked = simulate(&large(), "local", threads(Then::Fork));
    assert_eq!(forked.pages.faults, 100 + 110);
    assert_eq!(pages(&forked).iter().sum::<u64>(), 210);
}

#[test]
fn exec_unmaps_everything() {
    let script = alone([touch(0, 200), after([], Then::Exec), touch(0, 250)]);
    let report = simulate(&small(""), "local", script);
    assert_eq!(pages(&report), [250, 0]);
    assert_eq!(report.pages.faults, 450);
}

#[test]
fn barrier_waits_for_last_live_thread() {
    let work = |n| after([], Then::Work(n));
    let script = together(3, |thread| match thread {
        0 => vec![work(1_000_000), after([], Then::Barrier), work(1000)],
        1 => vec![after([], Then::Barrier), work(1000)],
        _ => vec![work(10)],
    });
    let report = simulate(&large(), "local", script);
    assert_near(report.time_ms, 0.5005, 0.001, "time");
    assert_near(report.spent.idle_ms, 1.0, 0.01, "thread 1 waits, thread 2 has ended");
    assert_near(report.spent.user_ms, 0.5 + 2.0 * 0.0005, 0.001, "user time");
}

#[test]
fn threads_that_share_a_cpu_take_turns() {
    let machine = |cpus| MachineText::new("").socket("s", cpus).node("n", 0, "s", 64, 100.0, 1e4).machine();
    let thread = |_| (0..40).map(|_| doing((0..20_000).map(|_| load(64)))).collect::<Vec<Batch>>();
    let four = simulate(&machine(4), "local", together(4, thread));
    let one = simulate(&machine(1), "local", together(4, thread));
    assert_near(one.time_ms, 4.0 * four.time_ms, 0.01, "time of four threads on one CPU");
    assert_near(one.spent.user_ms, four.spent.user_ms, 1e-9, "user time");
}

#[test]
fn two_programs_share_cpu_fairly_with_separate_memory() {
    let machine = MachineText::new("").socket("s", 1).node("n", 0, "s", 64, 100.0, 1e4).machine();
    let of_accesses = || alone((0..40).map(|_| doing((0..20_000).map(|_| load(64)))));
    let of_work = || alone((0..400).map(|_| after([], Then::Work(2000))).chain([touch(0, 1)]));
    let alone_ms = simulate(&machine, "local", of_accesses()).time_ms;
    let report = try_jobs(&machine, "local", vec![job(of_accesses(), &[]), job(of_accesses(), &[])]).unwrap();
    assert_near(report.time_ms, 2.0 * alone_ms, 0.01, "time of both");
    assert!(report.program_times_ms[0] > 1.9 * alone_ms - 4.0, "{:?} of {alone_ms}", report.program_times_ms);
    assert_eq!(pages(&report), [2]);
    let report = try_jobs(&machine, "local", vec![job(of_work(), &[]), job(of_accesses(), &[])]).unwrap();
    assert!(report.program_times_ms[0] < report.program_times_ms[1], "{:?}", report.program_times_ms);
}

#[test]
fn compute_only_thread_yields_at_end_of_slice() {
    let machine = MachineText::new("").socket("s", 1).node("n", 0, "s", 64, 100.0, 1e4).machine();
    let long = alone((0..50).map(|_| after([], Then::Work(2_000_000))));
    let short = alone([after([], Then::Work(1000))]);
    let report = try_jobs(&machine, "local", vec![job(long, &[]), job(short, &[])]).unwrap();
    assert_near(report.time_ms, 50.0, 0.01, "time of both");
    assert!(report.program_times_ms[1] < 6.0, "{:?}", report.program_times_ms);
}

#[test]
fn times_of_a_single_thread_add_up() {
    let machine = small("fault_ns = 300\nswap_ns = 900");
    let script = alone([touch(0, 600), doing((0..5000).map(|n| follow(mixed(n) % (600 * 64) * 64)))]);
    let report = simulate(&machine, "interleave", script);
    let spent = report.spent;
    assert_near(spent.user_ms + spent.system_ms + spent.stall_ms, report.time_ms, 1e-9, "sum of times");
    assert_eq!(spent.idle_ms, 0.0);
}

#[test]
fn stores_of_more_than_the_caches_hold_reach_memory() {
    let lines = 4096;
    let stores = |pass: u64| doing((0..lines).map(move |line| store(line * 64 + pass)));
    let report = simulate(&large(), "local", alone([stores(0), stores(1)]));
    let (caches, writes) = ((2 + 8 + 64) * 16, report.nodes[0].writes);
    assert_eq!(report.nodes[0].reads, 2 * lines);
    assert!((2 * lines - caches..=2 * lines).contains(&writes), "{writes} lines written");
}

#[test]
fn machine_without_caches_writes() {
    let text = "name = \"bare\"\nsummary = \"s\"\nsources.default = \"assumed: a test's\"\n[core]\n\
        clock_mhz = 1000\ninstructions_per_cycle = 1\nreorder_buffer = 64\noutstanding_misses = 4\n\
        [[initiator]]\nname = \"s\"\ncpus = 1\n[[node]]\nname = \"n\"\ntier = 0\ncapacity_mib = 4\n\
        initiator = \"s\"\nfixed = { read_latency_ns = 50, read_bandwidth_mbps = 5000 }\n";
    let report = simulate(&Machine::parse("bare.toml", text).unwrap(), "local", alone([touch(0, 100)]));
    assert_eq!(report.nodes[0].writes, 100);
}

#[test]
fn invalid_address_is_refused() {
    for address in [1 << 48, (1 << 48) + 8, (1 << 52) + 4096 + 8, u64::MAX - 3] {
        let error = try_run(&large(), "local", alone([touch(0, 10), doing([load(address)])])).unwrap_err();
        assert!(matches!(error, SimError::Address { address: a, .. } if a >> 12 == address >> 12), "{error}");
    }
    let last = (1 << 48) - 4;
    let error = try_run(&large(), "local", alone([doing([load(last - 4), load(last)])])).unwrap_err();
    assert!(matches!(error, SimError::Address { address, .. } if address == 1 << 48), "{error}");
}

#[test]
fn unknown_threads_are_refused() {
    let starting = |thread| Script(vec![[after([], Then::Spawn(ThreadId(thread)))].into(), [].into()]);
    assert!(try_run(&large(), "local", starting(1)).is_ok());
    for thread in [0, 2, 77] {
        let error = try_run(&large(), "local", starting(thread)).unwrap_err();
        assert!(matches!(&error, SimError::Broken { .. }), "{error}");
        assert!(error.to_string().contains(&format!("thread {thread}")), "{error}");
    }
    let twice = [after([], Then::Spawn(ThreadId(1))), after([], Then::Fork(ThreadId(1)))];
    let error = try_run(&large(), "local", Script(vec![twice.into(), [].into()])).unwrap_err();
    assert!(matches!(error, SimError::Broken { .. }), "{error}");
    let error = try_run(&large(), "local", Script(Vec::new())).unwrap_err();
    assert!(matches!(error, SimError::Broken { .. }), "{error}");
}

/// A program that fails after some batches.
struct Damaged(u32);

impl Program for Damaged {
    fn threads(&self) -> usize {
        1
    }

    fn next(&mut self, _: ThreadId, batch: &mut Batch) -> Result<(), ProgramError> {
        self.0 = self.0.checked_sub(1).ok_or_else(|| ProgramError("the trace is cut off".into()))?;
        *batch = touch(0, 5);
        Ok(())
    }
}

#[test]
fn program_error_ends_run() {
    let jobs = vec![Job::new("damaged", Box::new(Damaged(3)))];
    let error = try_jobs(&large(), "local", jobs).unwrap_err();
    assert_eq!(error.to_string(), "the trace is cut off");
}

#[test]
fn observer_can_stop_the_run() {
    let script = alone((0..1000).map(|_| doing((0..1000).map(|n| load(n * 64)))));
    let mut left = 5;
    let mut watch = |_: Option<f64>| {
        left -= 1;
        left > 0
    };
    let machine = large();
    let result = run(&machine, vec![job(script, &[])], policy(&machine, "local"), 1, &mut watch);
    assert!(matches!(result, Err(SimError::Interrupted)));
}

#[test]
fn machine_above_id_limits_is_refused() {
    for mib in [17 << 20, 9 << 20, (1 << 20) + 1] {
        let machine = MachineText::new("").socket("s", 1).node("n", 0, "s", mib, 100.0, 1e4).machine();
        let error = try_run(&machine, "local", alone([])).unwrap_err();
        assert!(matches!(error, SimError::TooLarge { .. }), "{error}");
    }
}

#[test]
fn caches_larger_than_the_hosts_memory_are_refused() {
    let caches = MachineText::new("").last_level(9 << 20, 1);
    let machine = caches.socket("s", 1).node("n", 0, "s", 64, 100.0, 1e4).machine();
    let error = try_run(&machine, "local", alone([])).unwrap_err();
    assert!(error.to_string().contains("raise its scale"), "{error}");
}

/// Returns the same event for ever.
struct Idler(Then);

impl Program for Idler {
    fn threads(&self) -> usize {
        1
    }

    fn next(&mut self, _: ThreadId, batch: &mut Batch) -> Result<(), ProgramError> {
        *batch = after([], self.0.clone());
        Ok(())
    }
}

#[test]
fn program_without_progress_is_stopped() {
    let forever = [Then::Continue, Then::Work(0), Then::Barrier, Then::OnCpu(CpuId(0))];
    for then in forever {
        let job = Job::new("idler", Box::new(Idler(then)));
        let error = try_jobs(&large(), "local", vec![job]).unwrap_err().to_string();
        assert!(error.contains("'idler'") && error.contains("batches without an access"), "{error}");
    }
}

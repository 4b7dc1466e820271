//! Time of threads: its parts add up, kernel threads' work is separate, and threads share CPUs.

use crate::runs;
use memtide_core::{CpuId, PageSize, Then};
use memtide_sim::run;

use crate::runs::{assert_near, job, simulate};
use crate::support::{after, alone, doing, follow, load, map, mixed, touch, two_sockets};

#[test]
fn parts_of_threads_time_add_up_while_a_kernel_thread_migrates() {
    let kernel = "numa_scan_period_ms = 0.02\nnuma_scan_mib = 64\nunmap_ns = 2000\nremap_ns = 4000";
    let machine = two_sockets(kernel, 2, [64, 64], [10_000.0, 10_000.0]);
    let reads = doing((0..150_000u64).map(|n| load(n % 100 * 4096 + n / 100 % 64 * 64)));
    let script = || alone([touch(0, 100), after([], Then::OnCpu(CpuId(2))), reads.clone()]);
    for (policy, by_kernel_thread) in [
        ("local+bw-migration:threshold=20", true),
        ("local+bw-migration:threshold=20:delivery=in-kernel", false),
    ] {
        let report = simulate(&machine, policy, script());
        assert_eq!(report.pages.migrated, 20, "{policy}");
        let spent = report.spent;
        assert_near(spent.threads_ms(), report.time_ms, 1e-9, policy);
        // Each move of the kernel thread unmaps and remaps, in 6 us, and copies.
        let least_ms = if by_kernel_thread { 20.0 * 0.006 } else { 0.0 };
        assert!(spent.kernel_threads_ms >= least_ms, "{policy}: {spent:?}");
        assert_eq!(spent.kernel_threads_ms > 0.0, by_kernel_thread, "{policy}: {spent:?}");
    }
}

#[test]
fn programs_that_wait_for_each_load_take_turns_on_a_cpu() {
    let machine = two_sockets("", 2, [64, 64], [20e3, 20e3]);
    let line = |step: u64| mixed(step) % (1 << 16) * 64;
    // 6 ms each, in slices of 4 ms.
    let chase =
        || alone([map(0, 4 << 20, PageSize::Huge), doing((0..60_000).map(move |step| follow(line(step))))]);
    let jobs = [0, 0].map(|cpu| job(chase(), &[cpu])).into();
    let report = run(&machine, jobs, runs::policy(&machine, "local"), 1, &mut |_| true).expect("it runs");
    assert_near(report.program_times_ms[0], 10.0, 0.02, "two slices and its last 2 ms, ms");
    assert_near(report.program_times_ms[1], 12.0, 0.02, "the whole, ms");
}

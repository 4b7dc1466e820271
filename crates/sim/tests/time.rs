//! Breakdown of time: the parts add up to the threads' time, and kernel threads' work is separate.

#[path = "support/runs.rs"]
mod runs;
mod support;

use memtide_core::{CpuId, Then};

use runs::{assert_near, simulate};
use support::{after, alone, doing, load, touch, two_sockets};

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

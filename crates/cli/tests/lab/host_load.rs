//! A guest's run does not depend on the host's load.

use std::hint::spin_loop;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::support::{MEMTIDE, lab, lab_is_here};

/// CPU times in ns, interrupts and context switches of the guest since boot.
const SCRIPT: &str = "memtide-workload stream:threads=2,footprint_mib=8,iterations=2 & \
     i=0; while [ $i -lt 2000 ]; do i=$((i + 1)); done; wait\n\
     cat /proc/uptime /proc/self/schedstat /proc/schedstat /proc/interrupts /proc/stat /proc/vmstat\n";

/// Stops the busy threads, also if the run fails.
struct StopsThreads<'a>(&'a AtomicBool);

impl Drop for StopsThreads<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Output of the script in a guest with `busy_threads` computing threads on the host.
fn printed(timing: &str, busy_threads: usize) -> String {
    let end = AtomicBool::new(false);
    let workload = Path::new(MEMTIDE).with_file_name("memtide-workload").display().to_string();
    thread::scope(|scope| {
        let _ends = StopsThreads(&end);
        for _ in 0..busy_threads {
            scope.spawn(|| {
                while !end.load(Ordering::Relaxed) {
                    spin_loop();
                }
            });
        }
        let options = ["--machine", "hinuma", "--vcpus", "2", "--timing", timing];
        let (out, _) =
            lab::script(&options, &["/bin/cat", &format!("{workload}:/bin/memtide-workload")], SCRIPT);
        out
    })
}

#[track_caller]
fn runs_alike(timing: &str) {
    let idle = printed(timing, 0);
    let busy_threads = 2 * thread::available_parallelism().expect("CPUs").get();
    let busy = printed(timing, busy_threads);
    let differ = idle.lines().zip(busy.lines()).find(|(idle, busy)| idle != busy);
    assert!(idle == busy, "--timing {timing}: on an idle host and a busy one: {differ:#?}");
}

#[test]
fn timed_run_is_independent_of_host_load() {
    if lab_is_here() {
        runs_alike("on");
    }
}

#[test]
fn untimed_run_is_independent_of_host_load() {
    if lab_is_here() {
        runs_alike("off");
    }
}

//! memtide's fuzz targets: one function per parser of untrusted input.
//!
//! A target passes its input to the real entry point and checks invariants: no panic, at most [`MEMORY_MAX`]
//! allocated, and accepted input is within bounds and reads back as written.
//!
//! `cargo fuzz` runs each target (see `make fuzz`); the test `seeds` replays the inputs kept in
//! `seeds/TARGET`. An input that once failed is kept there.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod daemon;
mod files;
pub mod lab;
pub mod text;
pub mod traces;

use std::time::Duration;

use peak_alloc::PeakAlloc;
use rustix::time::{ClockId, clock_gettime};

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

/// Bytes that a target may allocate at a time.
pub const MEMORY_MAX: usize = 100 << 20;

/// A target: takes any bytes, and panics if an invariant is violated.
pub type Target = fn(&[u8]);

/// Every target with its name: that of its file in `fuzz_targets/`, and of its folder in `seeds/`.
pub const TARGETS: [(&str, Target); 24] = [
    ("agent_message", lab::agent_message),
    ("agent_task", lab::agent_task),
    ("clock_config", lab::clock_config),
    ("clock_results", lab::clock_results),
    ("code", traces::code),
    ("control_reply", daemon::control_reply),
    ("control_request", daemon::control_request),
    ("counters", lab::counters),
    ("csv", traces::csv),
    ("daemon_config", text::daemon_config),
    ("journal", daemon::journal),
    ("journal_records", daemon::journal_records),
    ("lab_subject", text::lab_subject),
    ("lackey", traces::lackey),
    ("machine", text::machine),
    ("measured", text::measured),
    ("node_list", text::node_list),
    ("policy", text::policy),
    ("recording", traces::recording),
    ("run_file", text::run_file),
    ("stream", traces::stream),
    ("trace", traces::trace),
    ("trace_rows", traces::trace_rows),
    ("workload", text::workload),
];

/// Runs a target, and checks its memory use.
///
/// # Panics
/// If an invariant is violated.
pub fn check(target: Target, data: &[u8]) {
    let before = ALLOCATED.current_usage();
    ALLOCATED.reset_peak_usage();
    target(data);
    let peak = ALLOCATED.peak_usage().saturating_sub(before);
    assert!(peak <= MEMORY_MAX, "{} bytes of input took {peak} bytes of memory", data.len());
}

/// CPU time limit per input, against superlinear parsers.
const CPU_MAX: Duration = Duration::from_secs(1);

/// As [`check`], and also checks its CPU time: for optimised builds. Independent of host load.
///
/// # Panics
/// If an invariant is violated.
pub fn fuzz(target: Target, data: &[u8]) {
    let before = cpu_time();
    check(target, data);
    let took = cpu_time().saturating_sub(before);
    assert!(took <= CPU_MAX, "{} bytes of input took {} ms of processor time", data.len(), took.as_millis());
}

/// Processor time of this thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

//! Accesses that are far apart in time.

use memtide_core::{Machine, PageSize, Then};
use memtide_sim::SimError;

use crate::runs::{simulate, try_run};
use crate::support::{MachineText, Script, after, alone, load, map};

fn machine() -> Machine {
    MachineText::new("")
        .last_level(64, 2)
        .socket("s", 2)
        .node("n", 0, "s", 64, 90.0, 3_000.0)
        .node("far", 1, "s", 64, 300.0, 20_000.0)
        .machine()
}

/// Two accesses with this many instructions between them.
fn apart(instructions: u64) -> Script {
    let first = after([load(0)], Then::Work(instructions));
    let last = after([load(4096)], Then::End);
    alone([map(0, 1 << 20, PageSize::Base), first, last])
}

#[test]
fn accesses_days_apart_are_refused_where_memory_is_monitored() {
    let error = try_run(&machine(), "local+hot-cold", apart(1 << 51)).expect_err("millions of samples");
    let SimError::Idle { idle_seconds, rounds } = error else { panic!("{error}") };
    assert!(idle_seconds > 1000.0 && rounds > 1 << 20, "{error}");
    assert!(error.to_string().contains("instruction counts"), "{error}");
    // Nothing is monitored, so there are no idle turns.
    assert!(simulate(&machine(), "local", apart(1 << 51)).time_ms > 1e9);
}

#[test]
fn monitoring_goes_on_over_a_pause_of_minutes() {
    let report = simulate(&machine(), "local+hot-cold", apart(1 << 40));
    assert!(report.time_ms > 60e3, "{} ms", report.time_ms);
}

#[test]
fn instructions_that_take_longer_than_a_run_may_are_refused() {
    for instructions in [1 << 55, u64::MAX / 2, u64::MAX - 1] {
        let error = try_run(&machine(), "local", apart(instructions)).expect_err("months");
        assert!(matches!(error, SimError::TooLong { .. }), "{error}");
        assert!(error.to_string().contains("53 days"), "{error}");
    }
}

//! Shared helpers for tests of the command.

#![allow(dead_code, reason = "each file of tests uses its part")]

pub mod call;
pub mod docs;
pub mod lab;

use std::process::Command;
use std::sync::LazyLock;

use memtide_testing::not_run;

/// The command under test.
pub const MEMTIDE: &str = env!("CARGO_BIN_EXE_memtide");

/// Why the lab cannot run here; `None` if it can.
static MISSING: LazyLock<Option<String>> = LazyLock::new(|| {
    let setup = Command::new(MEMTIDE).args(["lab", "setup"]).output().expect("memtide runs");
    let printed =
        [setup.stdout, setup.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    let ready = setup.status.success() && !printed.contains("is not beside memtide");
    (!ready).then(|| format!("the lab is incomplete (make test gets what is missing): {printed}"))
});

/// Whether the lab can run here; if not, records the test as not run.
pub fn lab_is_here() -> bool {
    MISSING.as_deref().map(not_run).is_none()
}

/// Whether a program starts with these arguments and succeeds; if not, the test is recorded as not run.
pub fn has_program(program: &str, arguments: &[&str], package: &str) -> bool {
    let output = Command::new(program).args(arguments).output();
    let found = output.is_ok_and(|output| output.status.success());
    if !found {
        not_run(&format!("{program} is missing: apt-get install {package}"));
    }
    found
}

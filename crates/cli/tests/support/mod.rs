//! What tests of the command share.

#![allow(dead_code, reason = "each file of tests uses its part")]

pub mod call;
pub mod docs;
pub mod lab;

use std::process::Command;
use std::sync::LazyLock;

/// The command under test.
pub const MEMTIDE: &str = env!("CARGO_BIN_EXE_memtide");

static READY: LazyLock<bool> = LazyLock::new(|| {
    let setup = Command::new(MEMTIDE).args(["lab", "setup"]).output().expect("memtide runs");
    let told =
        [setup.stdout, setup.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    let ready = setup.status.success() && !told.contains("is not beside memtide");
    assert!(ready || std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{told}");
    if !ready {
        eprintln!("skipped, for the lab's parts are not all here (make test gets them): {told}");
    }
    ready
});

/// Whether the lab's parts are here; if not, with CI=true, the test fails.
pub fn lab_is_here() -> bool {
    *READY
}

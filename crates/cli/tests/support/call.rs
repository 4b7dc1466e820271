//! Runs the command; creates its input files.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::MEMTIDE;

/// Runs the command.
pub fn memtide(args: &[&str]) -> Output {
    let mut command = Command::new(MEMTIDE);
    command.env_remove("COLUMNS").args(args).output().expect("the command starts")
}

/// Standard output of a call that succeeds.
#[track_caller]
pub fn stdout_of(args: &[&str]) -> String {
    let output = memtide(args);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {error}");
    String::from_utf8(output.stdout).expect("text")
}

/// JSON output of a call that succeeds.
#[track_caller]
pub fn json(args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&stdout_of(&[args, &["--output", "json"]].concat())).expect("one JSON value")
}

/// A call refused with this code and a message containing all these parts.
#[track_caller]
pub fn refused(code: i32, args: &[&str], parts: &[&str]) {
    let output = memtide(args);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {error}");
    assert!(output.stdout.is_empty(), "{args:?} printed output");
    assert!(error.starts_with("memtide: error: "), "{args:?}: {error}");
    for part in parts {
        assert!(error.contains(part), "{args:?}: no '{part}' in {error}");
    }
    for foreign in ["panicked", "Error(", "Some(", "RUST_BACKTRACE"] {
        assert!(!error.contains(foreign), "{args:?}: {error}");
    }
}

/// A file with this content.
pub fn file(folder: &Path, name: &str, content: impl AsRef<[u8]>) -> String {
    let path: PathBuf = folder.join(name);
    std::fs::write(&path, content).unwrap();
    path.display().to_string()
}

/// A workload with a negligible run time.
pub const SMALL: &str = "stream:threads=4,footprint_mib=4,iterations=1";

/// A recording as CSV.
pub const ROWS: &str =
    "thread,instructions,address,size,write\n0,1,0x10000,8,0\n0,2,0x20000,8,1\n0,3,0x30000,8,0\n";

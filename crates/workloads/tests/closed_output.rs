//! A closed pipe ends `memtide-workload` quietly.

use std::io;
use std::process::Command;

#[test]
fn closed_standard_output_ends_it_quietly() {
    let (reader, writer) = io::pipe().expect("a pipe");
    drop(reader);
    let output = Command::new(env!("CARGO_BIN_EXE_memtide-workload"))
        .args(["stream:threads=1,footprint_mib=1,iterations=1"])
        .stdout(writer)
        .output();
    let output = output.expect("it runs");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn closed_standard_error_leaves_the_exit_status() {
    let (reader, writer) = io::pipe().expect("a pipe");
    drop(reader);
    let status = Command::new(env!("CARGO_BIN_EXE_memtide-workload"))
        .args(["no-such-workload"])
        .stderr(writer)
        .status();
    assert_eq!(status.expect("it runs").code(), Some(2));
}

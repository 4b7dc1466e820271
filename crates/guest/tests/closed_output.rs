//! A closed pipe ends `memtide-guest` quietly.

use std::io;
use std::process::Command;

#[test]
fn closed_stdout_exits_quietly() {
    let (reader, writer) = io::pipe().expect("a pipe");
    drop(reader);
    let output =
        Command::new(env!("CARGO_BIN_EXE_memtide-guest")).args(["--version"]).stdout(writer).output();
    let output = output.expect("it runs");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn closed_stderr_keeps_exit_status() {
    let (reader, writer) = io::pipe().expect("a pipe");
    drop(reader);
    let status =
        Command::new(env!("CARGO_BIN_EXE_memtide-guest")).args(["no-such-option"]).stderr(writer).status();
    assert_eq!(status.expect("it runs").code(), Some(2));
}

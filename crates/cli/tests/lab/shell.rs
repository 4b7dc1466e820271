//! The lab's shell on a terminal: input reaches the guest, including Ctrl-C.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use crate::support::{MEMTIDE, has_program, lab_is_here};

/// Gives a program a terminal (util-linux).
const TERMINAL: &str = "script";

#[test]
fn shell_runs_typed_commands_and_passes_interrupt() {
    if !lab_is_here() {
        return;
    }
    if !has_program("busybox", &[], "busybox-static") || !has_program(TERMINAL, &["--version"], "bsdutils") {
        return;
    }
    let line = format!("{MEMTIDE} lab shell --machine hinuma --timing off");
    let mut shell = Command::new(TERMINAL)
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a terminal");
    let mut keys = shell.stdin.take().expect("a pipe");
    let mut screen = shell.stdout.take().expect("a pipe");
    let mut output = String::new();
    let mut until = |text: &str| {
        let mut part = String::new();
        while !part.contains(text) {
            let mut buffer = [0; 4096];
            let length = screen.read(&mut buffer).expect("a screen");
            assert!(length > 0, "no '{text}' in {output}{part}");
            part += &String::from_utf8_lossy(&buffer[..length]);
        }
        output += &part;
    };
    let mut type_in = |text: &str| keys.write_all(text.as_bytes()).and_then(|()| keys.flush()).expect("keys");
    // While the guest boots.
    type_in("echo early-$((6 * 7))\n");
    until("early-42");
    type_in("cat /sys/devices/system/node/online\n");
    until("0-1");
    type_in("sleep 0 && ls / | sed s/init/applets/\n");
    until("applets");
    type_in("echo wait-$((6 * 7)); while :; do :; done\n");
    until("wait-42");
    type_in("\x03");
    until("# ");
    type_in("exit\n");
    assert!(shell.wait().expect("the shell ends").success());
}

//! Huge pages of another process are split by a stock kernel, their base pages move one by one, and they are
//! collapsed again.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use memtide_core::NodeId;
use memtide_core::policy::Refusal;
use memtide_linux::movers::{Mover, collapse, nodes_of, split};
use rustix::process::Pid;
use rustix::thread::disable_transparent_huge_pages;

use crate::support::{lab, lab_is_here};

const TEST: &str = "huge_pages_are_split_and_collapsed_and_their_base_pages_move_alone";

/// Set in the guest: to `resizes`, or in programs whose pages change, to `memory` or `base pages`.
const ROLE: &str = "MEMTIDE_TEST_ROLE";

/// Base pages of a huge page.
const HUGE: u64 = 512;
/// Words of four huge pages: at least three of them are whole.
const WORDS: usize = 4 << 18;

#[test]
fn huge_pages_are_split_and_collapsed_and_their_base_pages_move_alone() {
    match env::var(ROLE).as_deref() {
        Ok("resizes") => return resizes(),
        Ok("memory") => return memory(),
        Ok("base pages") => {
            disable_transparent_huge_pages(true).expect("Linux 3.15 or later");
            return memory();
        }
        _ => {}
    }
    if !lab_is_here() {
        return;
    }
    let test = lab::this_test();
    let script = format!(
        "echo always > /sys/kernel/mm/transparent_hugepage/enabled\n{ROLE}=resizes {test} {TEST} --nocapture"
    );
    let options = ["--machine", "ddr5-cxl", "--vcpus", "2", "--timing", "off"];
    let (out, stderr) = lab::script(&options, &[&test], &script);
    assert!(out.contains("1 passed"), "{out}\n{stderr}");
}

/// Fills memory, prints where its first whole huge page begins, and checks the content at the end of input.
fn memory() {
    let words: Vec<u64> = (0..WORDS as u64).collect();
    println!("\nat {}", (words.as_ptr() as u64 / 4096).next_multiple_of(HUGE));
    std::io::stdin().lines().for_each(drop);
    assert!(words.iter().zip(0..).all(|(&word, expected)| word == expected));
}

/// A program with memory.
struct Program {
    child: Child,
    pid: Pid,
    /// The first base page of its first whole huge page.
    page: u64,
    /// Its output, open until its end.
    _lines: Lines<BufReader<ChildStdout>>,
}

impl Program {
    fn start(role: &str) -> Program {
        let mut child = Command::new(lab::this_test())
            .args([TEST, "--nocapture"])
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this test");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let page = lines
            .find_map(|line| line.expect("a line").strip_prefix("at ")?.parse().ok())
            .expect("where its memory is");
        let pid = Pid::from_raw(child.id().cast_signed()).expect("a process");
        Program { child, pid, page, _lines: lines }
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().expect("its end").success(), "its content is as before");
    }
}

fn huge_kib(pid: Pid) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{}/smaps_rollup", pid.as_raw_nonzero())).expect("smaps");
    let line = rollup.lines().find(|line| line.starts_with("AnonHugePages:")).expect("a line of huge pages");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("KiB")
}

fn resizes() {
    let program = Program::start("memory");
    let (pid, page) = (program.pid, program.page);
    let (before, node) = (huge_kib(pid), nodes_of(pid, &[page]).expect("nodes")[0].expect("it is resident"));
    assert_eq!(collapse(pid, page), Err(Refusal::Gone), "it is huge already");
    assert_eq!(split(pid, page), Ok(()));
    assert_eq!(huge_kib(pid), before - 2048, "one of its huge pages");
    assert_eq!(split(pid, page), Err(Refusal::Gone), "it is no longer huge");
    let other = NodeId(1 - node.0);
    let mut mover = Mover::new(Duration::from_millis(20));
    assert_eq!(mover.move_pages(pid, &[(page + 7, other)]), [Ok(())]);
    let nodes = nodes_of(pid, &[page + 6, page + 7, page + 8]).expect("nodes");
    assert_eq!(nodes, [Some(node), Some(other), Some(node)]);
    assert_eq!(huge_kib(pid), before - 2048, "the others stay whole");

    assert_eq!(collapse(pid, page), Err(Refusal::Gone), "one is on the other node");
    assert_eq!(mover.move_pages(pid, &[(page + 7, node)]), [Ok(())]);
    assert_eq!(collapse(pid, page + 1), Err(Refusal::Gone), "no huge page begins there");
    assert_eq!(collapse(pid, page), Ok(()));
    assert_eq!(huge_kib(pid), before);
    assert_eq!(nodes_of(pid, &[page + 7]).expect("nodes"), [Some(node)], "where they were");
    assert_eq!(split(pid, page), Ok(()));
    set_huge_pages("madvise");
    assert_eq!(collapse(pid, page), Err(Refusal::Unsupported), "not for every program");
    set_huge_pages("always");
    program.end();

    let program = Program::start("base pages");
    assert_eq!(collapse(program.pid, program.page), Err(Refusal::NotAllowed));
    assert_eq!(huge_kib(program.pid), 0);
    program.end();
}

fn set_huge_pages(setting: &str) {
    fs::write("/sys/kernel/mm/transparent_hugepage/enabled", setting).expect("a kernel with huge pages");
}

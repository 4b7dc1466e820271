//! Huge pages of another process are split by a stock kernel, and their base pages move one by one.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use memtide_core::NodeId;
use memtide_core::policy::Refusal;
use memtide_linux::movers::{Mover, nodes_of, split};
use rustix::process::Pid;

use crate::support::{lab, lab_is_here};

const TEST: &str = "huge_pages_are_split_and_their_base_pages_move_alone";

/// Set in the guest: to `splits`, or in the program whose pages are split, to `memory`.
const ROLE: &str = "MEMTIDE_TEST_ROLE";

/// Base pages of a huge page.
const HUGE: u64 = 512;
/// Words of four huge pages: at least three of them are whole.
const WORDS: usize = 4 << 18;

#[test]
fn huge_pages_are_split_and_their_base_pages_move_alone() {
    match env::var(ROLE).as_deref() {
        Ok("splits") => return splits(),
        Ok("memory") => return memory(),
        _ => {}
    }
    if !lab_is_here() {
        return;
    }
    let test = lab::this_test();
    let script = format!(
        "echo always > /sys/kernel/mm/transparent_hugepage/enabled\n{ROLE}=splits {test} {TEST} --nocapture"
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

fn huge_kib(pid: Pid) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{}/smaps_rollup", pid.as_raw_nonzero())).expect("smaps");
    let line = rollup.lines().find(|line| line.starts_with("AnonHugePages:")).expect("a line of huge pages");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("KiB")
}

fn splits() {
    let mut program = Command::new(lab::this_test())
        .args([TEST, "--nocapture"])
        .env(ROLE, "memory")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test");
    let mut lines = BufReader::new(program.stdout.take().expect("a pipe")).lines();
    let page: u64 = lines
        .find_map(|line| line.expect("a line").strip_prefix("at ")?.parse().ok())
        .expect("where its memory is");
    let pid = Pid::from_raw(program.id().cast_signed()).expect("a process");
    let (before, node) = (huge_kib(pid), nodes_of(pid, &[page]).expect("nodes")[0].expect("it is resident"));
    assert_eq!(split(pid, page), Ok(()));
    assert_eq!(huge_kib(pid), before - 2048, "one of its huge pages");
    assert_eq!(split(pid, page), Err(Refusal::Gone), "it is no longer huge");
    let other = NodeId(1 - node.0);
    assert_eq!(Mover::new(Duration::from_millis(20)).move_pages(pid, &[(page + 7, other)]), [Ok(())]);
    let nodes = nodes_of(pid, &[page + 6, page + 7, page + 8]).expect("nodes");
    assert_eq!(nodes, [Some(node), Some(other), Some(node)]);
    assert_eq!(huge_kib(pid), before - 2048, "the others stay whole");
    drop(program.stdin.take());
    assert!(program.wait().expect("its end").success(), "its content is as before");
}

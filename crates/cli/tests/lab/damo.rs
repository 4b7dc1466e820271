//! `damo` and memtide's daemon as subjects: read pages are promoted, and missing parts of damo are reported
//! before boot.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use std::{env, thread};

use memtide_lab_protocol::mark::{BEGIN, END, WARM_UP, mark};
use memtide_testing::not_run;

use crate::support::lab::IN_GUEST;
use crate::support::{MEMTIDE, lab, lab_is_here};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::Value;

const PAGE: usize = 4096;
const PAGES: usize = 6 << 10;

/// Time for promotion. damo acts every 2 s (its configuration for Linux 6.12). memtide's daemon watches a
/// process after 3 s, or at its next scan 2 s later, and hot-cold promotes what was hot in two epochs of 2 s,
/// of which the first comes up to 2 s later: 11 s in all.
const SETTLING: Duration = Duration::from_secs(13);

/// Time after that in which traffic is measured.
const MEASURED: Duration = Duration::from_secs(2);

fn compare(arguments: &[&str], program: &[&str]) -> Output {
    let command = ["lab", "compare", "-o", "json", "--subjects", "default,damo,memtide:local+hot-cold"];
    Command::new(MEMTIDE)
        .args(command)
        .args(arguments)
        .arg("--")
        .args(program)
        .output()
        .expect("memtide runs")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn setup() -> Value {
    let output = Command::new(MEMTIDE).args(["lab", "setup", "-o", "json"]).output().expect("memtide runs");
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn file_of(setup: &Value, part: &str) -> Option<String> {
    let parts = setup["parts"].as_array().expect("parts");
    let part = parts.iter().find(|row| row["part"] == part).expect("a part");
    part["file"].as_str().map(str::to_owned)
}

#[test]
fn read_pages_are_promoted() {
    if env::var_os(IN_GUEST).is_some() {
        return in_guest();
    }
    if !lab_is_here() {
        return;
    }
    let setup = setup();
    if file_of(&setup, "damo").is_none() {
        return not_run(&format!("damo is missing: {setup}"));
    }
    let results = tempfile::tempdir().expect("a folder");
    let results = results.path().display().to_string();
    let variable = format!("{IN_GUEST}=1");
    let test = lab::this_test();
    let arguments = ["--machine", "hinuma", "--timing", "on", "--region", "marks"];
    let output = compare(
        &[&arguments[..], &["--env", &variable, "--results", &results]].concat(),
        &[&test, "read_pages_are_promoted"],
    );
    assert!(output.status.success(), "{}", stderr(&output));
    let parsed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    println!("{parsed:#}");
    let figure = |row: usize, key: &str| parsed["subjects"][row][key].as_f64().expect("a figure");
    let share = |row| lab::traffic_share(&parsed, row, ["dram", "nvm"]);
    assert_eq!(figure(0, "migrated_pages"), 0.0);
    assert!(share(0) < 0.2, "traffic of dram without promotion: {}", share(0));
    for (row, subject) in [(1, "damo"), (2, "memtide")] {
        assert!(figure(row, "migrated_pages") > 0.8 * PAGES as f64, "{subject}: {parsed:#}");
        assert!(share(row) > 0.8, "traffic of dram with {subject}: {}", share(row));
    }
}

/// Touches pages from the CPU beside the slow node, then reads them from the one beside the fast node.
fn in_guest() {
    run_on(1);
    let memory = vec![1u8; PAGES * PAGE];
    run_on(0);
    mark(WARM_UP, 0);
    let mut sum = read_for(&memory, SETTLING);
    mark(BEGIN, 0);
    sum += read_for(&memory, MEASURED);
    mark(END, 0);
    assert!(sum > 0);
}

/// Reads a byte of each page again and again.
fn read_for(memory: &[u8], time: Duration) -> u64 {
    let begin = Instant::now();
    let mut sum = 0;
    while begin.elapsed() < time {
        sum += (0..PAGES).map(|page| u64::from(memory[page * PAGE + (page * 64) % PAGE])).sum::<u64>();
        thread::sleep(Duration::from_millis(20));
    }
    sum
}

fn run_on(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).expect("a CPU of the guest");
}

#[test]
fn single_tier_machine_is_refused_before_boot() {
    if !lab_is_here() {
        return;
    }
    let output = compare(&["--machine", "ddr4-2400", "--timing", "on"], &["/bin/true"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("the machine has 1 tier"), "{}", stderr(&output));
    assert!(!stderr(&output).contains("1 of 3"), "the subject before damo ran: {}", stderr(&output));
}

#[test]
fn setup_reports_damo_failure_and_sets_up_rest() {
    if !lab_is_here() {
        return;
    }
    let here = setup();
    let part = |name| file_of(&here, name).expect("a part");
    let folder = tempfile::tempdir().expect("a folder");
    let only_qemu = folder.path().join("bin");
    std::fs::create_dir(&only_qemu).expect("a folder");
    symlink(part("QEMU"), only_qemu.join("qemu-system-x86_64")).expect("a link");
    let without = |arguments: &[&str]| {
        let mut command = Command::new(MEMTIDE);
        command.env("PATH", &only_qemu).env("XDG_CACHE_HOME", folder.path().join("cache"));
        command.arg("lab").args(arguments).output().expect("memtide runs")
    };
    let kernel = part("kernel");
    let output = without(&["setup", "--kernel", &kernel]);
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout.contains("python3-pip") && stdout.contains("only the subject damo needs it"), "{stdout}");

    let compare =
        ["compare", "--timing", "on", "--machine", "hinuma", "--subjects", "damo", "--kernel", &kernel];
    let output = without(&[&compare[..], &["--", "/bin/true"]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("damo 3.4.3 has not been fetched; run: memtide lab setup"),
        "{}",
        stderr(&output)
    );
    assert!(Path::new(&kernel).is_file(), "the kernel is still there");
}

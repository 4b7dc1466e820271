//! `memtide validate` in a small size: its tables, its files, and that the machine file it made is one.

use crate::support;
use std::fs;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use memtide_core::Machine;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const WORKLOADS: [&str; 8] = ["chase", "gups", "uniform", "zipf", "stream", "is", "cg", "pagerank"];

#[test]
fn both_sides_of_eight_workloads_are_in_tables_and_files() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("results");
    let output = Command::new(support::MEMTIDE)
        .args(["validate", "--size", "8", "--rounds", "1", "-o", "json", "--out"])
        .arg(&out)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    for table in ["workloads", "counts"] {
        let rows = printed[table].as_array().unwrap();
        assert_eq!(rows.iter().map(|row| row["workload"].as_str().unwrap()).collect::<Vec<_>>(), WORKLOADS);
    }
    for row in printed["workloads"].as_array().unwrap() {
        let figure = |key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{key} of {row}"));
        assert!(figure("native_ms") > 0.0 && figure("simulated_ms") > 0.0, "{row}");
        let deviation = figure("simulated_ms") / figure("native_ms") - 1.0;
        assert!((figure("deviation") - deviation).abs() < 1e-9, "{row}");
        // A part is named only for a deviation.
        assert!(row["cause"].is_null() || deviation.abs() >= 0.1, "{row}");
    }
    for row in printed["counts"].as_array().unwrap() {
        assert!(row["simulated_instructions"].as_f64().unwrap() > 0.0, "{row}");
    }
    let read =
        |name: &str| fs::read_to_string(out.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let machine = Machine::parse("machine.toml", &read("machine.toml")).unwrap();
    assert!(machine.source_of("kernel.fault_ns").starts_with("measured"), "{machine:?}");
    assert!(machine.source_of("node.node0.fixed").starts_with("measured"), "{machine:?}");
    let measured: Value = serde_json::from_str(&read("measured.json")).unwrap();
    for table in ["nodes", "caches", "ladder", "tlb", "processor"] {
        assert!(measured[table].is_array(), "{table}");
    }
    let figures: Value = serde_json::from_str(&read("figures.json")).unwrap();
    assert_eq!(figures, printed);
    let report = read("report.html");
    assert!(report.contains("chart-validated") && WORKLOADS.iter().all(|name| report.contains(name)));
}

#[test]
fn interrupt_keeps_workloads_that_are_done() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("results");
    let mut child = Command::new(support::MEMTIDE)
        .args(["validate", "--size", "32", "--rounds", "9", "--out"])
        .arg(&out)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while !out.join("figures.json").exists() {
        assert!(child.try_wait().unwrap().is_none(), "ended before its first workload");
        sleep(Duration::from_millis(10));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    assert!(stderr.contains("interrupted; ") && stderr.contains(" of 8 workloads"), "{stderr}");
    assert!(stdout.contains("chase") && !stdout.contains("pagerank"), "{stdout}");
    let figures: Value = serde_json::from_slice(&fs::read(out.join("figures.json")).unwrap()).unwrap();
    assert_eq!(figures["workloads"][0]["workload"], "chase");
    assert!(fs::read_to_string(out.join("report.html")).unwrap().contains("chart-validated"));
}

#[test]
fn unwritable_folder_is_refused_before_measuring() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let output =
        Command::new(support::MEMTIDE).arg("validate").arg("--out").arg(file.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains(&file.path().display().to_string()), "{stderr}");
}

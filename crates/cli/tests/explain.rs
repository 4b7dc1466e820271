//! `memtide explain`: what bounds programs whose bottleneck is known.

use std::fs;

use crate::support::call::{json, stdout_of};
use serde_json::Value;

/// The explanations of a call, after their shares have been checked.
fn explained(args: &[&str]) -> Vec<(String, String)> {
    let whole = json(&[&["explain"], args].concat());
    let runs = whole["explanation"].as_array().expect("a list");
    for run in runs {
        let rows =
            whole["time"].as_array().expect("a table").iter().filter(|row| row["policy"] == run["policy"]);
        let sum: f64 = rows.map(|row| row["share"].as_f64().expect("a share")).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{sum}: {}", whole["time"]);
    }
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let sentences = |run: &Value| -> Vec<String> {
        run["sentences"].as_array().expect("a list").iter().map(text).collect()
    };
    runs.iter().map(|run| (text(&run["role"]), sentences(run).join(" "))).collect()
}

const TRIAD: &str = "stream:kernel=triad,threads=8,footprint_mib=48,iterations=1";

#[test]
fn triad_is_bound_by_the_bandwidth_of_the_node_it_is_on() {
    let runs = explained(&["-m", "bmpm-2", "-w", TRIAD, "-p", "bind:node=nvm,bw-local"]);
    let (role, worst) = &runs[1];
    assert_eq!(role, "worst, baseline");
    assert!(worst.contains("Bandwidth-bound: nvm is "), "{worst}");
    assert!(worst.contains("Compared with bw-local"), "{worst}");
}

#[test]
fn chase_is_bound_by_latency() {
    let chase = "chase:footprint_mib=64,operations=50000";
    let runs = explained(&["-m", "bmpm-2", "-w", chase, "-p", "local,bind:node=nvm"]);
    for (role, text) in &runs {
        assert!(text.contains("Latency-bound: a read that misses the caches takes "), "{role}: {text}");
    }
}

#[test]
fn hint_faults_and_moves_are_explained() {
    let zipf = "zipf:threads=2,footprint_mib=64,operations=200000";
    let set = ["--set", "kernel.numa_scan_period_ms=1"];
    let args = ["-m", "memos", "-w", zipf, "-p", "interleave+linux-tiering"];
    let runs = explained(&[&args[..], &set].concat());
    let [(role, text)] = &runs[..] else { panic!("{runs:?}") };
    assert_eq!(role, "");
    assert!(text.contains("Monitoring takes ") && text.contains(" NUMA hint faults"), "{text}");
}

#[test]
fn explanation_is_in_every_format_and_in_the_report_of_a_comparison() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html").display().to_string();
    let args = ["-m", "bmpm-2", "-w", TRIAD, "-p", "local,interleave"];
    let table = stdout_of(&[&["explain"], &args[..]].concat());
    assert!(table.contains("retiring instructions") && table.contains("Of the threads' time: "), "{table}");
    let csv = stdout_of(&[&["explain"], &args[..], &["-o", "csv"]].concat());
    assert!(csv.lines().next().unwrap().ends_with("policy,role,part,time_ms,share"), "{csv}");
    stdout_of(&[&["compare"], &args[..], &["--report", &page]].concat());
    let page = fs::read_to_string(&page).unwrap();
    for part in ["<h2>Where the time went</h2>", "Of the threads' time: "] {
        assert!(page.contains(part), "the page lacks '{part}'");
    }
    let several = stdout_of(&["explain", "-m", "bmpm-1,bmpm-2", "-w", TRIAD, "-p", "local,interleave"]);
    assert!(several.contains("bmpm-1: ") && several.contains("bmpm-2: "), "{several}");
}

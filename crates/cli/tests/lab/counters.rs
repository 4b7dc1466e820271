//! Per-process counters in the lab, on the host and in the guest.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::support::{MEMTIDE, lab_is_here};
use serde_json::Value;

const MIB: u64 = 1 << 20;

/// Runs a command in the lab; returns its standard output and the lab's figures.
fn lab(options: &[&str], program: &[&str]) -> (String, Value) {
    let mut command = Command::new(MEMTIDE);
    command.args(["lab", "run", "-o", "json", "--timing", "on"]).args(options).arg("--").args(program);
    let run = command.output().expect("memtide runs");
    let stderr = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{program:?}: {stderr}");
    let parsed = stderr.find('{').and_then(|at| serde_json::from_str(&stderr[at..]).ok());
    (String::from_utf8_lossy(&run.stdout).into_owned(), parsed.unwrap_or_else(|| panic!("no JSON: {stderr}")))
}

fn workload() -> String {
    Path::new(MEMTIDE).with_file_name("memtide-workload").display().to_string()
}

fn figure(row: &Value, key: &str) -> u64 {
    row[key].as_u64().unwrap_or_else(|| panic!("{key} in {row}"))
}

fn sum(rows: &Value, key: &str) -> u64 {
    rows.as_array().expect("rows").iter().map(|row| figure(row, key)).sum()
}

#[test]
fn process_counters_sum_to_nodes_and_identify_program() {
    if !lab_is_here() {
        return;
    }
    let (_, parsed) =
        lab(&["-m", "bmpm-5"], &[&workload(), "stream:threads=2,footprint_mib=24,iterations=1"]);
    let (run, rows, nodes) = (&parsed["run"][0], &parsed["processes"], &parsed["nodes"]);
    for key in ["read_lines", "prefetched_lines", "written_lines"] {
        assert_eq!(sum(rows, key), sum(nodes, key), "{key}");
    }
    assert_eq!(sum(rows, "instructions"), figure(run, "instructions"));
    assert_eq!(sum(rows, "llc_misses"), figure(run, "llc_misses"));
    let of = |who: &'static str| rows.as_array().expect("rows").iter().filter(move |row| row["who"] == who);
    let own: u64 =
        of("program").map(|row| figure(row, "instructions") - figure(row, "kernel_instructions")).sum();
    assert_eq!(figure(run, "instructions") - figure(run, "outside_instructions"), own);
    assert_eq!(of("agent").count(), 1);
    // Three arrays of 8 MiB, each of which is read or written more than once.
    let program = of("program").max_by_key(|row| figure(row, "bytes")).expect("the program");
    assert!(figure(program, "bytes") > 48 * MIB, "{program}");
    let others: u64 = of("agent").chain(of("kernel")).map(|row| figure(row, "bytes")).sum();
    assert!(others < figure(program, "bytes") / 10, "{rows}");
    assert!(own > figure(run, "instructions") / 4 && own < figure(run, "instructions"), "{run}");
}

/// Working set of the chase, much larger than the caches, and its loads.
const CHASE: &str = "chase:footprint_mib=32,operations=800000";
const LOADS: u64 = 800_000;

/// Times a loop before and after the mark that starts the model; then runs the program, which marks its own
/// region.
const SCRIPT: &str = r#"#!/bin/sh
loop() {
    read -r begin _ < /proc/uptime; i=0
    while [ $i -lt 10000 ]; do i=$((i + 1)); done
    read -r end _ < /proc/uptime; echo $begin $end
}
before=$(loop); memtide mark warm-up; echo "$before $(loop)"
"$1" "$2" >&2 && memtide counters -o json
"#;

#[test]
fn guest_counters_match_host_report() {
    if !lab_is_here() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("script");
    fs::write(&script, SCRIPT).expect("a script");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("a program");
    let (file, workload) = (format!("{MEMTIDE}:/usr/bin/memtide"), workload());
    // The workload marks a region of interest; after its end the counters stop.
    let options = ["-m", "bmpm-5", "--vcpus", "1", "--region", "marks", "--file", &file, "--file", &workload];
    let (seen, parsed) = lab(&options, &[&script.display().to_string(), &workload, CHASE]);
    let (times, seen) = seen.split_once('\n').expect("a line, and JSON");
    let times: Vec<f64> = times.split(' ').map(|time| time.parse().expect("seconds")).collect();
    let loops = [times[1] - times[0], times[3] - times[2]];
    println!("the loop takes {loops:?} s, unmodelled and modelled");
    assert!(loops[0] > 5.0 * loops[1], "the model starts at the mark: {loops:?}");
    let seen: Value = serde_json::from_str(seen).expect("the guest's JSON");
    assert_eq!(seen["counting"], "off");
    assert_eq!(seen["processes"], parsed["processes"], "guest and host");
    for (guest, host) in
        seen["nodes"].as_array().expect("nodes").iter().zip(parsed["nodes"].as_array().expect("nodes"))
    {
        for key in ["read_lines", "prefetched_lines", "written_lines", "latency_mean_ns"] {
            assert_eq!(guest[key], host[key], "{key} of {guest} and {host}");
        }
    }
    let rows = seen["processes"].as_array().expect("processes");
    let program = rows.iter().find(|row| row["name"] == "memtide-workload").expect("the program by its name");
    let read = figure(program, "read_lines");
    println!("{read} lines for {LOADS} loads: {program}");
    assert!(read > LOADS * 9 / 10 && read < LOADS * 11 / 10, "{read} lines for {LOADS} loads");
}

#[test]
fn missing_counters_are_reported() {
    let run = Command::new(MEMTIDE).arg("counters").output().expect("memtide runs");
    let stderr = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("only a guest of the lab has them"), "{stderr}");
}

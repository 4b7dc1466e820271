//! A comparison in the lab: each subject places pages as specified, equal commands give identical output, and
//! finished runs are cached.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use memtide_core::Machine;
use memtide_lab_model::prepare;
use serde_json::Value;

use crate::support::{MEMTIDE, lab_is_here};

const SUBJECTS: [&str; 3] = ["default", "interleave", "weighted"];

fn compare(subjects: &str, results: &Path) -> Output {
    let workload: PathBuf = Path::new(MEMTIDE).with_file_name("memtide-workload");
    Command::new(MEMTIDE)
        .args(["lab", "compare", "--timing", "on", "--machine", "bmpm-5", "-o", "json"])
        .args(["--subjects", subjects, "--results"])
        .arg(results)
        .arg("--")
        .arg(workload)
        .arg("stream:threads=2,footprint_mib=24")
        .output()
        .expect("memtide runs")
}

fn compared(results: &Path) -> Output {
    let output = compare(&SUBJECTS.join(","), results);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    output
}

/// The first of two nodes' share of bandwidth. Weights are whole numbers within 5 % of the ratio.
fn share_by_bandwidth() -> f64 {
    let machine = Machine::parse("bmpm-5", include_str!("../../../../machines/bmpm-5.toml"));
    let prepared = prepare(&machine.expect("a machine"), 1).machine;
    let mbps = |node: usize| prepared.nodes[node].fixed.as_ref().expect("a fixed node").read_bandwidth_mbps;
    mbps(0) / (mbps(0) + mbps(1))
}

fn figure(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or_else(|| panic!("{key} in {row}"))
}

#[test]
fn subjects_place_pages_repeatably_and_results_are_cached() {
    let [first, second] = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    if !lab_is_here() {
        return;
    }
    let original = compared(first.path());
    let parsed: Value = serde_json::from_slice(&original.stdout).expect("JSON");
    let rows = parsed["subjects"].as_array().expect("rows");
    let names: Vec<&str> = rows.iter().map(|row| row["subject"].as_str().expect("a name")).collect();
    assert_eq!(names, SUBJECTS);
    let pages = |row: &Value| ["dram", "nvm"].map(|node| figure(row, &format!("{node}_peak_mib")));
    let [dram, nvm] = pages(&rows[1]);
    assert!((dram / nvm - 1.0).abs() < 0.05, "interleave: {dram} and {nvm} MiB");
    let [dram, nvm] = pages(&rows[2]);
    let share = share_by_bandwidth();
    assert!(
        (dram / (dram + nvm) / share - 1.0).abs() < 0.02,
        "weighted: {dram} and {nvm} MiB, share {share}"
    );
    assert!(figure(&rows[2], "speedup") > 1.2, "a bandwidth-bound program gains the sum of bandwidths");

    let repeated = compared(second.path());
    assert!(repeated.stdout == original.stdout, "the same command gives the same bytes");

    let cached = |folder: &Path| -> Vec<PathBuf> {
        let files = std::fs::read_dir(folder).expect("results").map(|file| file.expect("a file").path());
        files.collect()
    };
    assert_eq!(cached(first.path()).len(), SUBJECTS.len());
    std::fs::remove_file(&cached(first.path())[0]).expect("a cached result");
    let resumed = compared(first.path());
    assert!(resumed.stdout == original.stdout, "cached and repeated runs are equal");
    let stderr = String::from_utf8_lossy(&resumed.stderr);
    assert_eq!(stderr.matches("result of an earlier run").count(), SUBJECTS.len() - 1, "{stderr}");
}

#[test]
fn unknown_subject_is_refused_with_known_ones() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = compare("default,interlaeve", folder.path());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains("'interlaeve'") && stderr.contains("weighted:W1:W2..") && stderr.contains("numab="),
        "{stderr}"
    );
    assert!(output.stdout.is_empty());
}

#[test]
fn absent_and_cxl_nodes_compare_and_unequal_runs_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    if !lab_is_here() {
        return;
    }
    let workload: PathBuf = Path::new(MEMTIDE).with_file_name("memtide-workload");
    let compare = |options: &[&str]| {
        let mut command = Command::new(MEMTIDE);
        command.args([
            "lab",
            "compare",
            "--timing",
            "off",
            "--machine",
            "bmpm-5",
            "--vcpus",
            "1",
            "-o",
            "json",
        ]);
        command.args(["--subjects", "interleave", "--results"]).arg(folder.path()).args(options).arg("--");
        let output = command.arg(&workload).arg("stream:threads=1,footprint_mib=12").output();
        output.expect("memtide runs")
    };
    let peaks = |options: &[&str], cached: usize| {
        let output = compare(options);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{options:?}: {stderr}");
        assert_eq!(stderr.matches("result of an earlier run").count(), cached, "{options:?}: {stderr}");
        let parsed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        ["dram", "nvm"].map(|node| figure(&parsed["subjects"][0], &format!("{node}_peak_mib")))
    };
    let absent = peaks(&["--absent", "nvm"], 0);
    assert!(absent[0] >= 12.0 && absent[1] == 0.0, "{absent:?}");
    let cxl = peaks(&["--cxl", "nvm"], 0);
    assert!(cxl[1] >= 5.5 && (cxl[0] / cxl[1] - 1.0).abs() < 0.1, "{cxl:?}");
    assert_eq!(peaks(&["--absent", "nvm"], 1), absent);

    let pool = format!("nvm={}", folder.path().join("pool").display());
    for (options, says) in [
        (
            &["--shared", &pool][..],
            "cannot share node 'nvm': each run would see what previous runs left in its file",
        ),
        (&["--parallel"], "cannot run virtual CPUs in parallel: it compares times on the guest's clock"),
    ] {
        let output = compare(options);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains(says), "{options:?}: {stderr}");
    }
}

#[test]
fn memtide_files_are_in_slow_memory() {
    if !lab_is_here() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    // Clean mapped pages show the node of the file.
    let script = "found=0; for process in /proc/[0-9]*; do while read -r line; do case $line in \
        *anon=*) ;; *file=/opt/memtide/memtide*N0=*) exit 9 ;; \
        *file=/opt/memtide/memtide*N1=*) found=1 ;; esac; \
        done < $process/numa_maps; done 2> /dev/null; [ $found = 1 ]";
    let output = Command::new(MEMTIDE)
        .args(["lab", "compare", "--timing", "on", "--machine", "bmpm-5", "--vcpus", "1", "--results"])
        .arg(folder.path())
        .args(["--subjects", "memtide:local+hot-cold", "--", "/bin/sh", "-c", script])
        .output()
        .expect("memtide runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

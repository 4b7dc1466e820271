//! A comparison in the lab: each subject places pages as specified, equal commands give identical output, and
//! finished runs are cached.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

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
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    output
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
    let once = compared(first.path());
    let answer: Value = serde_json::from_slice(&once.stdout).expect("JSON");
    let rows = answer["subjects"].as_array().expect("rows");
    let names: Vec<&str> = rows.iter().map(|row| row["subject"].as_str().expect("a name")).collect();
    assert_eq!(names, SUBJECTS);
    let pages = |row: &Value| ["dram", "nvm"].map(|node| figure(row, &format!("{node}_peak_mib")));
    let [dram, nvm] = pages(&rows[1]);
    assert!((dram / nvm - 1.0).abs() < 0.05, "interleave: {dram} and {nvm} MiB");
    let [dram, nvm] = pages(&rows[2]);
    // One fifth of the bandwidth: five pages of six beside dram's bandwidth.
    assert!((dram / (dram + nvm) / (5.0 / 6.0) - 1.0).abs() < 0.02, "weighted: {dram} and {nvm} MiB");
    assert!(figure(&rows[2], "speedup") > 1.2, "what is limited by bandwidth gains by the sum of bandwidths");

    let again = compared(second.path());
    assert!(again.stdout == once.stdout, "the same command gives the same bytes");

    let kept = |folder: &Path| -> Vec<PathBuf> {
        let files = std::fs::read_dir(folder).expect("results").map(|file| file.expect("a file").path());
        files.collect()
    };
    assert_eq!(kept(first.path()).len(), SUBJECTS.len());
    std::fs::remove_file(&kept(first.path())[0]).expect("a result to be forgotten");
    let resumed = compared(first.path());
    assert!(resumed.stdout == once.stdout, "what is kept and what is run anew are alike");
    let told = String::from_utf8_lossy(&resumed.stderr);
    assert_eq!(told.matches("result of an earlier run").count(), SUBJECTS.len() - 1, "{told}");
}

#[test]
fn unknown_subject_is_refused_with_known_ones() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = compare("default,interlaeve", folder.path());
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(
        told.contains("'interlaeve'") && told.contains("weighted:W1:W2..") && told.contains("numab="),
        "{told}"
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
    let peaks = |options: &[&str], kept: usize| {
        let output = compare(options);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{options:?}: {told}");
        assert_eq!(told.matches("result of an earlier run").count(), kept, "{options:?}: {told}");
        let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        ["dram", "nvm"].map(|node| figure(&answer["subjects"][0], &format!("{node}_peak_mib")))
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
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && told.contains(says), "{options:?}: {told}");
    }
}

#[test]
fn memtide_files_use_no_fast_memory() {
    if !lab_is_here() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    // Clean mapped pages are on the files' node.
    let script = "found=0; for process in /proc/[0-9]*; do while read -r line; do case $line in \
        *anon=*) ;; *file=/opt/memtide/memtide*N0=*) exit 9 ;; *file=/opt/memtide/memtide*N1=*) found=1 ;; esac; \
        done < $process/numa_maps; done 2> /dev/null; [ $found = 1 ]";
    let output = Command::new(MEMTIDE)
        .args(["lab", "compare", "--timing", "on", "--machine", "bmpm-5", "--vcpus", "1", "--results"])
        .arg(folder.path())
        .args(["--subjects", "memtide:local+hot-cold", "--", "/bin/sh", "-c", script])
        .output()
        .expect("memtide runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

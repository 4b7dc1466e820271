//! Ratios between policies do not depend on how much a machine is reduced.

#[path = "support/reductions.rs"]
mod support;

use std::fs;
use std::path::Path;

use memtide_core::machine::bundled;
use support::{Workload, deviation, less_reduced, times_ms};

const GUPS: Workload = Workload { name: "gups", params: "", operations: Some("operations") };
const ZIPF: Workload = Workload { name: "zipf", params: "", operations: Some("operations") };

/// The largest deviation of ratios to `local` at the file's reduction from those at a half and a quarter.
fn deviation_of(machine: &str, workload: Workload, footprint_mib: u64) -> f64 {
    let times: Vec<Vec<f64>> = [1, 2, 4]
        .map(|less| {
            let machine = less_reduced(machine, less).expect("the file reduces it by 4 at least");
            times_ms(&machine, less, workload, footprint_mib, &["local", "interleave", "bw-interleave"])
        })
        .into();
    println!("{machine} {}: {times:?}", workload.name);
    deviation(&times)
}

#[test]
fn ratios_of_placements_agree_at_half_and_quarter_of_the_reduction() {
    for (machine, workload, footprint_mib) in [("hbm", GUPS, 8), ("bmpm-5", GUPS, 4), ("bmpm-5", ZIPF, 8)] {
        let deviation = deviation_of(machine, workload, footprint_mib);
        assert!(deviation < 0.05, "{machine} {}: {deviation}", workload.name);
    }
}

#[test]
fn deviations_in_machine_files_are_those_of_the_docs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    // Not measured yet: no machine has a figure.
    let docs = fs::read_to_string(root.join("docs/reductions.md")).unwrap_or_default();
    for name in bundled::names() {
        let machine = bundled::machine(name).expect("a bundled machine").expect("a checked machine");
        let row = docs.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
        let last = row.and_then(|row| row.trim_end_matches([' ', '|']).rsplit('|').next());
        let documented = last.and_then(|cell| cell.trim().parse::<f64>().ok());
        assert_eq!(machine.reduction_deviation_percent, documented, "{name}");
    }
}

#[test]
fn deviation_is_the_largest_relative_difference_of_ratios() {
    let same = deviation(&[vec![2.0, 4.0, 1.0], vec![20.0, 40.0, 10.0]]);
    assert!(same.abs() < 1e-12, "{same}");
    let off = deviation(&[vec![1.0, 2.2, 1.0], vec![1.0, 2.0, 1.0], vec![1.0, 2.0, 1.25]]);
    assert!((off - 0.2).abs() < 1e-9, "{off}");
}

//! Non-temporal stores in the lab: neither misses nor reads, one written line each.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::{MEMTIDE, lab_is_here};

/// Bytes that all nodes read and wrote in the region of interest.
fn traffic(stores: &str) -> [f64; 2] {
    let program = Path::new(MEMTIDE).with_file_name("memtide-workload").display().to_string();
    let workload = format!("stream:kernel=triad,stores={stores},threads=1,footprint_mib=24,iterations=2");
    let options = ["lab", "run", "--machine", "bmpm-5", "--vcpus", "1", "--region", "marks", "-o", "json"];
    let run = Command::new(MEMTIDE).args(options).args(["--", &program, &workload]).output();
    let stderr = String::from_utf8_lossy(&run.expect("memtide runs").stderr).into_owned();
    let parsed: Value = serde_json::from_str(&stderr[stderr.find('{').expect("JSON")..]).expect("JSON");
    let lines = |figure: &str| {
        let nodes = parsed["nodes"].as_array().expect("nodes");
        64.0 * nodes.iter().map(|node| node[figure].as_f64().expect("a count")).sum::<f64>()
    };
    [lines("read_lines") + lines("prefetched_lines"), lines("written_lines")]
}

#[test]
fn triad_moves_a_quarter_less_with_non_temporal_stores() {
    if !lab_is_here() {
        return;
    }
    let elements = f64::from(24 << 20) / 24.0;
    for (stores, read, written) in [("ordinary", 24.0, 8.0), ("non-temporal", 16.0, 8.0)] {
        let found = traffic(stores).map(|bytes| bytes / elements);
        let near = |found: f64, expected: f64| (found / expected - 1.0).abs() < 0.03;
        assert!(near(found[0], read) && near(found[1], written), "{stores}: {found:?} bytes an element");
    }
}

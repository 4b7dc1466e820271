//! `memtide topo` in a guest with known nodes.

use std::process::Command;

use memtide_core::machine::Machine;
use memtide_core::{InitiatorId, NodeId};
use serde_json::{Value, json};

use crate::support::{MEMTIDE, lab_is_here};

/// Output of a command in a guest of `ddr5-cxl`: two sockets with memory, CXL memory attached to the first.
fn printed(format: &str) -> String {
    let run = Command::new(MEMTIDE)
        .args(["lab", "run", "--machine", "ddr5-cxl", "--timing", "off", "--", MEMTIDE, "topo", "-o", format])
        .output()
        .expect("memtide runs");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    String::from_utf8(run.stdout).expect("text")
}

#[test]
fn topo_shows_guest_nodes() {
    if !lab_is_here() {
        return;
    }
    let shown: Value = serde_json::from_str(&printed("json")).expect("JSON");
    let nodes = shown["nodes"].as_array().expect("nodes");
    let column = |key: &str| nodes.iter().map(|node| node[key].clone()).collect::<Vec<_>>();
    assert_eq!(column("cpus"), [json!("0"), json!("1"), Value::Null]);
    assert_eq!(column("tier"), [0, 0, 1]);
    assert_eq!(column("distances"), ["10 16 19", "16 10 25", "19 25 10"]);
    assert_eq!(column("initiators"), ["0", "1", "0"]);
    let latency = |node: usize| nodes[node]["read_latency_ns"].as_f64().expect("firmware's figure");
    assert!((latency(2) - latency(0) - 100.0).abs() < 5.0, "the link adds 100 ns: {shown}");
    let memory = column("memory_mib").iter().map(|mib| mib.as_u64().expect("MiB")).collect::<Vec<_>>();
    assert!(memory.iter().all(|mib| (400..=512).contains(mib)), "expected up to 512 MiB each: {shown}");
}

#[test]
fn guest_machine_file_has_original_latencies() {
    if !lab_is_here() {
        return;
    }
    let found = Machine::parse("host", &printed("machine")).expect("a machine file");
    let original = include_str!("../../../../machines/ddr5-cxl.toml");
    let original = Machine::parse("ddr5-cxl.toml", original).expect("a bundled machine");
    for from in [0, 1].map(InitiatorId) {
        for to in [0, 1, 2].map(NodeId) {
            let ns = |machine: &Machine| machine.idle_latency(from, to).as_ns();
            assert!(
                (ns(&found) / ns(&original) - 1.0).abs() < 0.08,
                "{from} {to}: {} {}",
                ns(&found),
                ns(&original)
            );
        }
    }
    assert_eq!(found.tiers(), 2);
}

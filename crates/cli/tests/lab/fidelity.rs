//! Measurements in the lab's guest match its machine file: idle latency within 2 %, bandwidth within 5 %, of
//! every node from every initiator. It is measured in base pages, so that a chase also pays for translations.
//!
//! A virtual CPU may be unable to saturate its share of a node's bandwidth, as a core of the real machine:
//! then it must reach at least 90 % of what its miss registers allow at the node's idle latency.

use std::path::Path;
use std::process::Command;

use memtide_core::machine::{Fixed, Machine};
use memtide_core::{InitiatorId, NodeId};
use memtide_lab_model::{Prepared, prepare};
use serde_json::Value;

use crate::closed_form;
use crate::support::{MEMTIDE, lab_is_here};

/// Memory of a chase, in MiB.
const MIB: u16 = 12;

/// Runs its arguments as a command.
const IN_BASE_PAGES: &str = r#"echo never > /sys/kernel/mm/transparent_hugepage/enabled && exec "$@""#;

/// What was measured in the guest, and the guest's nodes.
struct Measured {
    rows: Vec<Value>,
    nodes: Vec<String>,
}

fn lab(machine: &str, vcpus: u16) -> Measured {
    let run = Command::new(MEMTIDE)
        .args([
            "lab",
            "run",
            "-o",
            "json",
            "--timing",
            "on",
            "--machine",
            machine,
            "--vcpus",
            &vcpus.to_string(),
            "--file",
            MEMTIDE,
            "--",
        ])
        .args(["sh", "-c", IN_BASE_PAGES, "sh", MEMTIDE, "measure"])
        .args(["--mib", &MIB.to_string(), "--loads", "80000", "--rounds", "3", "--reads", "100%"])
        .args(["-o", "json"])
        .output()
        .expect("memtide runs");
    let stderr = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success() && !stderr.contains("did not follow"), "{machine}: {stderr}");
    let rows = |text: &str| {
        let answer: Value = serde_json::from_str(text).expect("JSON");
        answer["nodes"].as_array().expect("rows").clone()
    };
    let name = |row: &Value| row["node"].as_str().expect("a name").to_owned();
    let from = stderr.find('{').expect("JSON");
    let nodes = rows(&stderr[from..]).iter().map(name).collect();
    Measured { rows: rows(&String::from_utf8_lossy(&run.stdout)), nodes }
}

/// Mean rate of a mix of (share in bytes, rate).
fn mixed(shares: &[(f64, f64)]) -> f64 {
    let bytes: f64 = shares.iter().map(|(bytes, _)| bytes).sum();
    bytes / shares.iter().map(|(bytes, mbps)| bytes / mbps).sum::<f64>()
}

/// Bytes of an element's reads in a triad, beside eight of writes, which a stream need not read first.
fn triad_read_bytes(machine: &Machine) -> f64 {
    if machine.core.write_streaming_lines > 0 { 16.0 } else { 24.0 }
}

/// A node's bandwidth for a triad behind a link.
fn triad_mbps(read: f64, write: Option<f64>, link: f64, read_bytes: f64) -> f64 {
    // A link carries reads in one direction and writes in the other.
    let bytes = [(read_bytes, read), (8.0, write.unwrap_or(read))];
    mixed(&bytes).min(link * (read_bytes + 8.0) / read_bytes)
}

fn holds(name: &str, vcpus: u16, full: &Machine) {
    let Measured { rows, nodes } = lab(name, vcpus);
    let Prepared { machine, .. } = prepare(full, vcpus);
    let named = |number: f64| {
        machine.nodes.iter().position(|node| node.name == nodes[number as usize]).expect("a node")
    };
    assert_eq!(
        rows.len(),
        machine.nodes.len() * usize::from(vcpus.min(machine.initiators.len() as u16)),
        "{name}"
    );
    for row in rows {
        let figure = |key: &str| row[key].as_f64().expect("a figure");
        let node = NodeId::from(named(figure("node")));
        let beside = machine.nodes[named(figure("initiator"))].initiator.as_ref();
        let from = machine.initiators.iter().position(|initiator| Some(&initiator.name) == beside);
        let from = InitiatorId::from(from.expect("an initiator beside the node with CPUs"));
        let full_node = full.nodes.iter().find(|other| other.name == machine.nodes[node.index()].name);
        let full_node = full_node.expect("a node of the file");
        let (link_ns, link_mbps) =
            closed_form::links(full, &machine.initiators[usize::from(from.0)].name, full_node);
        let translation_ns = closed_form::translation_ns(&machine, MIB.into());
        let idle_ns = closed_form::idle_ns(full, full_node) + link_ns + translation_ns;
        let found_ns = figure("idle_ns");
        let share = f64::from(vcpus) / full.cpus() as f64;
        let read_bytes = triad_read_bytes(&machine);
        let triad_of = |fixed: &Fixed, link| {
            triad_mbps(fixed.read_bandwidth_mbps, fixed.write_bandwidth_mbps, link, read_bytes)
        };
        let triad = match &full_node.fixed {
            Some(fixed) => triad_of(fixed, link_mbps) * share,
            None => {
                // Writes and turnarounds of a dram node have no closed form; its data bus is the limit.
                let lowered = machine.nodes[node.index()].fixed.as_ref().expect("a fixed node");
                let triad = triad_of(lowered, link_mbps * share);
                assert!(triad <= closed_form::read_mbps(full_node) * share, "more than the data bus carries");
                triad
            }
        };
        // What is measured counts three reads per write.
        let found = figure("triad_mbps") * (read_bytes + 8.0) / 32.0;
        println!(
            "{name} {}-{}: {found_ns:.1} ns, file {idle_ns:.1}; {found:.0} MB/s, file {triad:.0}",
            from.0, node.0
        );
        assert!((found_ns / idle_ns - 1.0).abs() < 0.02, "latency");
        if machine.caches.is_empty() {
            continue; // A bare memory device: every load of eight bytes moves a line.
        }
        let core_mbps = f64::from(machine.core.outstanding_misses) * 64e3 / idle_ns;
        let enough = found > 0.95 * triad || (core_mbps < triad && found > 0.9 * core_mbps);
        assert!(enough && found < 1.05 * triad, "bandwidth; the core's own limit is {core_mbps:.0} MB/s");
    }
}

#[test]
fn bundled_machines_measure_as_in_their_files() {
    if !lab_is_here() {
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
    let mut files: Vec<_> =
        std::fs::read_dir(folder).expect("machines").map(|file| file.expect("a file").path()).collect();
    files.sort();
    for file in files.into_iter().filter(|file| file.is_file()) {
        let text = std::fs::read_to_string(&file).expect("a machine file");
        let machine = Machine::parse(&file.display().to_string(), &text).expect("a checked machine");
        let vcpus = (machine.initiators.len() as u16).min(4);
        holds(&machine.name.clone(), vcpus, &machine);
    }
}

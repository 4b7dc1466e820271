//! Measurements in the lab's guest match its machine file: idle latency within 2 %, bandwidth within 5 %, of
//! every node from every initiator. The lab's TLB holds base pages only, so that a chase also pays for
//! translations.
//!
//! A virtual CPU may be unable to saturate its share of a node's bandwidth, as a core of the real machine:
//! then it must reach at least 90 % of what its miss registers allow at the node's idle latency.

use std::path::Path;
use std::process::Command;

use memtide_core::machine::Machine;
use memtide_core::{InitiatorId, NodeId};
use memtide_lab_model::{Prepared, prepare};
use serde_json::Value;

use crate::closed_form;
use crate::support::{MEMTIDE, lab_is_here};

/// Memory of a chase, in MiB.
const MIB: u16 = 12;

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
            "--",
        ])
        .args([
            MEMTIDE,
            "measure",
            "--mib",
            &MIB.to_string(),
            "--loads",
            "80000",
            "--rounds",
            "3",
            "--reads",
            "100%",
        ])
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

/// A node's bandwidth for a triad's three reads per write, behind a link.
fn triad_mbps(read: f64, write: Option<f64>, link: f64) -> f64 {
    // A link carries reads in one direction and writes in the other.
    mixed(&[(24.0, read), (8.0, write.unwrap_or(read))]).min(link * 4.0 / 3.0)
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
        let triad = match &full_node.fixed {
            Some(fixed) => {
                triad_mbps(fixed.read_bandwidth_mbps, fixed.write_bandwidth_mbps, link_mbps) * share
            }
            None => {
                // Writes and turnarounds of a dram node have no closed form; its data bus is the limit.
                let lowered = machine.nodes[node.index()].fixed.as_ref().expect("a fixed node");
                let triad =
                    triad_mbps(lowered.read_bandwidth_mbps, lowered.write_bandwidth_mbps, link_mbps * share);
                assert!(triad <= closed_form::read_mbps(full_node) * share, "more than the data bus carries");
                triad
            }
        };
        let found = figure("triad_mbps");
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

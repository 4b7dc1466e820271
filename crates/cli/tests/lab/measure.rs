//! `memtide measure` of writes, mixes and latency under load matches the lab's machine file.

use memtide_core::machine::Machine;
use serde_json::Value;

use crate::closed_form;
use crate::support::{lab, lab_is_here};

/// Output of a script in a guest, in sections separated by `==`.
fn printed(machine: &str, vcpus: u16, script: &str) -> Vec<String> {
    let options = ["--timing", "on", "--machine", machine, "--vcpus", &vcpus.to_string()];
    let (out, stderr) = lab::script(&options, &["/bin/cat"], script);
    assert!(!stderr.contains("did not follow"), "{machine}: {stderr}");
    out.split("==\n").map(str::to_owned).collect()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn figure(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or_else(|| panic!("{key} of {row}"))
}

fn agrees(found: f64, expected: f64, tolerance: f64) -> bool {
    (found / expected - 1.0).abs() < tolerance
}

#[test]
fn writes_and_mixes_match_machine_file() {
    if !lab_is_here() {
        return;
    }
    let script = "memtide measure --initiators 0 --nodes 0,2 --mib 8 --loads 40000 --rounds 2 -o json\n\
                  echo ==\n\
                  memtide measure --loaded 2>&1\necho exit status $?\n";
    let parts = printed("optane", 2, script);
    let machine =
        Machine::parse("optane", include_str!("../../../../machines/optane.toml")).expect("a machine");
    // Two of its CPUs, with their share of each node's bandwidth.
    let share = 2.0 / machine.cpus() as f64;
    let rows = json(&parts[0])["nodes"].as_array().expect("rows").clone();
    assert_eq!(rows.len(), 2);
    for (row, name) in rows.iter().zip(["dram0", "optane0"]) {
        let node = machine.nodes.iter().find(|node| node.name == name).expect("a node");
        let fixed = node.fixed.as_ref().expect("a fixed node");
        let (_, link_mbps) = closed_form::links(&machine, "socket0", node);
        assert!(fixed.read_bandwidth_mbps < link_mbps, "the node is the limit, not its link");
        let read = fixed.read_bandwidth_mbps * share;
        let write = fixed.write_bandwidth_mbps.map_or(read, |mbps| mbps * share);
        assert!(agrees(figure(row, "read_mbps"), read, 0.05), "{row}: {read} MB/s of reads");
        for reads in [0.67, 0.5] {
            let due = 1.0 / (reads / read + (1.0 - reads) / write);
            let found = figure(row, &format!("reads_{:.0}_mbps", reads * 100.0));
            assert!(agrees(found, due, 0.05), "{row}: {due} MB/s with {reads} reads");
        }
        assert!(agrees(figure(row, "write_mbps"), write, 0.1), "{row}: {write} MB/s of writes");
    }
    assert!(figure(&rows[1], "write_mbps") < 0.5 * figure(&rows[1], "read_mbps"), "Optane writes slowly");
    assert!(
        parts[1].contains("needs a node with two CPUs") && parts[1].ends_with("exit status 2\n"),
        "{}",
        parts[1]
    );
}

/// Figures of a machine file are to 0.1 ns.
fn tenth(ns: f64) -> f64 {
    (ns * 10.0).round() / 10.0
}

#[test]
fn loaded_latency_curve_reaches_machine_file() {
    if !lab_is_here() {
        return;
    }
    let script = "memtide measure --nodes 0 --mib 6 --loads 30000 --rounds 5 --reads 50% --loaded \
                  --rates 0%,30%,60%,100% -o json > /m\ncat /m\necho ==\n\
                  memtide topo -o machine --measured /m > /m.toml\ncat /m.toml\necho ==\n\
                  memtide run -p bw-interleave --machine /m.toml -- sh -c 'exit 3' 2>&1\n\
                  echo exit status $?\n";
    let parts = printed("memos", 2, script);
    let found = json(&parts[0]);
    let idle_ns = figure(&found["nodes"][0], "idle_ns");
    let points = found["loaded"].as_array().expect("points");
    let curve: Vec<(f64, f64)> =
        points.iter().map(|point| (figure(point, "mbps"), figure(point, "latency_ns"))).collect();
    let [idle, low, middle, full] = curve[..] else { panic!("{curve:?}") };
    assert!(agrees(idle.1, idle_ns, 0.02) && agrees(idle.0, 64e3 / idle_ns, 0.02), "{idle_ns} {curve:?}");
    assert!(idle.0 < low.0 && low.0 < middle.0 && low.0 < 0.8 * full.0, "{curve:?}");
    // Close to saturation, at 60 % and 100 %, two points of the curve may be in either order.
    assert!(low.1 > 0.99 * idle.1 && middle.1.min(full.1) > low.1, "{curve:?}");
    let highest_ns = middle.1.max(full.1);
    assert!(highest_ns > 1.15 * idle.1, "{curve:?}");
    let machine = Machine::parse("host", &parts[1]).expect("a machine file");
    let fixed = machine.nodes[0].fixed.as_ref().expect("a fixed node");
    assert!(fixed.loaded.len() >= 3 && fixed.write_bandwidth_mbps.is_some(), "{fixed:?}");
    let last = fixed.loaded.last().expect("points");
    assert_eq!(
        (fixed.read_latency_ns, last.latency_ns),
        (tenth(idle_ns), tenth(tenth(idle_ns) + tenth(highest_ns) - tenth(idle.1)))
    );
    let run = &parts[2];
    assert!(
        run.contains("placement 'bw-interleave' by the kernel") && run.ends_with("exit status 3\n"),
        "{run}"
    );
}

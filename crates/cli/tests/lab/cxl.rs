//! Nodes of the lab's guests that are CXL memory expanders.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use memtide_core::machine::Machine;
use memtide_core::{InitiatorId, NodeId};
use memtide_lab_model::prepare;
use serde_json::Value;

use crate::closed_form;
use crate::support::{MEMTIDE, lab_is_here};

/// A working set larger than the caches, but small: QEMU is slow at such memory.
const MIB: &str = "12";

/// Prints memory tiers and the memory's drivers, then measures it.
const MEASURES: &str = r#"
cat /sys/devices/virtual/memory_tiering/*/nodelist
grep -A 3 'CXL Window 0' /proc/iomem
cat /sys/devices/system/node/node2/cpulist
echo never > /sys/kernel/mm/transparent_hugepage/enabled
"$1" measure --nodes 2 --mib "$2" --loads 80000 --rounds 1 --reads 100% -o json
"#;

fn lab(options: &[&str], program: &[&str]) -> Output {
    let mut command = Command::new(MEMTIDE);
    command.args(["lab", "run", "--machine", "ddr5-cxl", "--vcpus", "1"]).args(options);
    command.arg("--").args(program).stdin(Stdio::null()).output().expect("memtide runs")
}

/// Latency of a chase over random lines of the machine's CXL node in base pages, in ns.
fn idle_ns() -> f64 {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/ddr5-cxl.toml");
    let text = fs::read_to_string(file).expect("a machine file");
    let machine = prepare(&Machine::parse("ddr5-cxl", &text).expect("a checked machine"), 1).machine;
    let number = machine.nodes.iter().position(|node| node.name == "cxl").expect("the node");
    let idle = machine.idle_latency(InitiatorId::from(0usize), NodeId::from(number));
    idle.as_ns() + closed_form::translation_ns(&machine, MIB.parse().expect("MiB"))
}

fn json(text: &str) -> Value {
    serde_json::from_str(&text[text.find('{').expect("JSON")..]).expect("JSON")
}

#[test]
fn guest_drivers_online_cxl_node_with_machine_file_latency() {
    if !lab_is_here() {
        return;
    }
    let options = ["--timing", "on", "--cxl", "cxl", "--file", MEMTIDE, "-o", "json"];
    let run = lab(&options, &["busybox", "sh", "-c", MEASURES, "sh", MEMTIDE, MIB]);
    let [out, stderr] = [run.stdout, run.stderr].map(|bytes| String::from_utf8(bytes).expect("text"));
    assert!(run.status.success(), "{stderr}");
    let lines: Vec<&str> = out.lines().map(str::trim).collect();
    assert!(lines.contains(&"2"), "no tier of its own: {out}");
    let driver = lines.iter().position(|line| line.ends_with("dax0.0")).expect("a device of the region");
    assert!(lines[driver - 1].ends_with("region0") && lines[driver + 1].ends_with("(kmem)"), "{out}");
    assert_eq!(lines[driver + 2], "", "the node has CPUs: {out}");

    let measured = json(&out);
    let idle = measured["nodes"][0]["idle_ns"].as_f64().expect("a latency");
    println!("{idle} ns, expected {}, {measured}", idle_ns());
    assert!((idle / idle_ns() - 1.0).abs() < 0.02, "{idle} ns, expected {}", idle_ns());
    let parsed = json(&stderr);
    let node = &parsed["nodes"][2];
    assert_eq!(node["node"], "cxl");
    let figure = |key: &str| node[key].as_f64().expect("a figure");
    assert!(figure("peak_mib") >= 11.0 && figure("read_lines") > 100_000.0, "{parsed:#}");
}

#[test]
fn invalid_cxl_options_are_refused_before_boot() {
    if !lab_is_here() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let kernel = folder.path().join("vmlinuz");
    // The header of a kernel without modules (Linux's boot protocol).
    fs::write(&kernel, [&[0; 0x202][..], b"HdrS"].concat()).expect("a file");
    let kernel = kernel.to_str().expect("a name");
    let pool = format!("cxl={}", folder.path().join("pool").display());
    for (options, says) in [
        (&["--cxl", "dram0"][..], "node 'dram0': it has the kernel or virtual CPUs"),
        (&["--cxl", "pool"], "'pool'"),
        (&["--cxl", "cxl", "--absent", "cxl"], "node 'cxl': it is named twice"),
        (
            &["--cxl", "dram1", "--shared", &pool],
            "node 'dram1': CXL memory and shared memory ('cxl') exclude each other",
        ),
        (&["--cxl", "cxl", "--kernel", kernel], "CXL memory needs it: use Debian's kernel"),
    ] {
        let run = lab(options, &["true"]);
        let stderr = String::from_utf8_lossy(&run.stderr);
        assert!(!run.status.success() && stderr.contains(says), "{options:?}: {stderr}");
    }
}

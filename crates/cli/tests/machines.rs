//! The bundled machine files match their sources.

use std::path::PathBuf;

use memtide_core::machine::Machine;
use memtide_core::{InitiatorId, NodeId, TierId};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../machines")
}

fn machine(name: &str) -> Machine {
    let path = folder().join(format!("{name}.toml"));
    let text = std::fs::read_to_string(&path).unwrap();
    Machine::parse(&path.display().to_string(), &text).unwrap_or_else(|error| panic!("{error}"))
}

fn node(machine: &Machine, name: &str) -> NodeId {
    machine.node_ids().find(|id| machine.nodes[id.index()].name == name).expect("the node")
}

fn idle_ns(machine: &Machine, initiator: usize, name: &str) -> f64 {
    machine.idle_latency(InitiatorId::from(initiator), node(machine, name)).as_ns()
}

#[track_caller]
fn near(value: f64, expected: f64, tolerance: f64) {
    assert!((value / expected - 1.0).abs() <= tolerance, "{value} is not within {tolerance} of {expected}");
}

#[test]
fn machine_files_are_valid_named_and_reducible() {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let machine = machine(&name);
        assert_eq!(machine.name, name);
        let reduced = machine.reduced();
        assert!(reduced.nodes.iter().all(|node| node.capacity_mib >= 1), "{name} has a node without memory");
        assert!(
            reduced.caches.iter().all(|cache| cache.capacity_kib >= 1),
            "{name} has a cache without lines"
        );
        names.push(name);
    }
    let papers = ["bmpm-1", "bmpm-2", "bmpm-5", "bmpm-10", "hinuma", "bdm", "pms", "memos"];
    let today = ["ddr5-cxl", "optane", "hbm"];
    for wanted in papers.iter().chain(&today) {
        assert!(names.iter().any(|name| name == wanted), "machine '{wanted}' is missing");
    }
}

#[test]
fn bandwidths_match_sources() {
    let cases = [
        ("ddr4-2400", "channel", 19_200.0),
        ("bmpm-1", "dram0", 17_066.0),
        ("bmpm-2", "dram", 17_066.0),
        ("bdm", "mcdram", 400_000.0),
        ("bdm", "ddr4", 100_000.0),
        ("memos", "dram", 10_666.0),
        ("pms", "local", 17_066.0),
        ("ddr5-cxl", "dram0", 307_200.0),
        ("ddr5-cxl", "cxl", 24_000.0),
        ("hbm", "hbm0", 1_638_400.0),
        ("hbm", "dram1", 307_200.0),
        ("optane", "optane0", 39_400.0),
        ("laptop", "dram", 51_200.0),
    ];
    for (name, node_name, mbps) in cases {
        let machine = machine(name);
        near(machine.node_bandwidth(node(&machine, node_name)).as_mbps(), mbps, 0.002);
    }
}

#[test]
fn bmpm_throttles_bandwidth_only() {
    for ratio in [2u16, 5, 10] {
        let machine = machine(&format!("bmpm-{ratio}"));
        let (fast, slow) = (machine.tier_bandwidth(TierId(0)), machine.tier_bandwidth(TierId(1)));
        near(fast.as_mbps() / slow.as_mbps(), ratio.into(), 1e-3);
        near(idle_ns(&machine, 1, "nvm"), idle_ns(&machine, 0, "dram"), 1e-3);
        let [dram, nvm] = [0, 1].map(|i| machine.nodes[i].dram.clone().unwrap());
        for (a, b) in
            [(dram.faw, nvm.faw), (dram.ccd_l, nvm.ccd_l), (dram.rrd_s, nvm.rrd_s), (dram.wtr_l, nvm.wtr_l)]
        {
            assert_eq!(a * ratio, b);
        }
    }
    near(idle_ns(&machine("bmpm-1"), 0, "dram0"), 90.0, 0.01);
}

#[test]
fn hinuma_nvm_is_multiple_of_dram() {
    let machine = machine("hinuma");
    let [dram, nvm] = [0, 1].map(|i| machine.nodes[i].fixed.clone().unwrap());
    assert_eq!(nvm.read_latency_ns, 2.0 * dram.read_latency_ns);
    assert_eq!(nvm.write_latency_ns, Some(8.0 * dram.read_latency_ns));
    assert_eq!(nvm.read_bandwidth_mbps, dram.read_bandwidth_mbps / 2.0);
    assert_eq!(nvm.loaded.len(), dram.loaded.len());
    for (nvm, dram) in nvm.loaded.iter().zip(&dram.loaded) {
        assert_eq!((nvm.load, nvm.latency_ns), (dram.load, 2.0 * dram.latency_ns));
    }
}

#[test]
fn latencies_match_sources() {
    let cxl = machine("ddr5-cxl");
    near(idle_ns(&cxl, 0, "dram0"), 114.0, 0.005);
    near(idle_ns(&cxl, 0, "dram1"), 191.0, 0.005);
    near(idle_ns(&cxl, 0, "cxl"), 214.0, 0.005);
    let pms = machine("pms");
    let local = pms.nodes[0].dram.clone().unwrap();
    let row_hit = idle_ns(&pms, 0, "local") - local.cycles(local.rcd.into()).as_ns();
    near(row_hit, 102.777, 0.005);
    near(row_hit + local.cycles((local.rp + local.rcd).into()).as_ns(), 132.976, 0.02);
    near(idle_ns(&pms, 0, "remote"), 2003.0, 0.005);
    near(idle_ns(&machine("hbm"), 0, "hbm0"), 131.0, 0.005);
    near(idle_ns(&machine("memos"), 0, "dram"), 67.0, 0.01);
}

/// Rates in GB/s and latencies in ns of reads by Intel MLC on Cascade Lake: the source that the files name.
/// Bandwidth 226.1 GB/s; 80.8 ns idle, 82.2 at the least load.
const MLC: [(f64, f64); 7] =
    [(12.3, 85.5), (29.0, 88.5), (67.7, 94.4), (87.3, 97.5), (120.2, 103.1), (181.5, 119.7), (221.3, 157.3)];

#[test]
fn loaded_latency_of_fixed_nodes_is_that_of_its_source() {
    let curves = [
        ("optane", "dram0", 1.0),
        ("optane", "dram1", 1.0),
        ("bdm", "ddr4", 1.0),
        ("hinuma", "dram", 1.0),
        ("hinuma", "nvm", 2.0),
    ];
    for (name, of, times) in curves {
        let machine = machine(name);
        let fixed = machine.nodes[node(&machine, of).index()].fixed.clone().unwrap();
        assert_eq!(fixed.loaded.len(), MLC.len());
        for (point, (gbps, ns)) in fixed.loaded.iter().zip(MLC) {
            assert!((point.load - gbps / 226.1).abs() < 0.01, "{name} {of}: {point:?}");
            let rise_ns = (point.latency_ns - fixed.read_latency_ns) / times;
            assert!((rise_ns - (ns - 82.2)).abs() < 1.0, "{name} {of}: {point:?}");
        }
    }
    // M/D/1 queues of a node's modules.
    for (name, of, modules) in
        [("optane", "optane0", 6.0), ("optane", "optane1", 6.0), ("bdm", "mcdram", 128.0)]
    {
        let machine = machine(name);
        let fixed = machine.nodes[node(&machine, of).index()].fixed.clone().unwrap();
        let service_ns = 64e3 * modules / fixed.read_bandwidth_mbps;
        assert!(fixed.loaded.len() > 4);
        for point in &fixed.loaded {
            let wait_ns = point.load / (2.0 * (1.0 - point.load)) * service_ns;
            assert!(
                (point.latency_ns - fixed.read_latency_ns - wait_ns).abs() < 0.06,
                "{name} {of}: {point:?}"
            );
        }
    }
}

#[test]
fn memos_nvm_is_within_a_cycle_of_its_table() {
    let machine = machine("memos");
    let nvm = machine.nodes[node(&machine, "nvm").index()].dram.clone().unwrap();
    for (cycles, table_ns) in [(nvm.cl, 10.0), (nvm.rcd, 20.0), (nvm.rp, 23.0), (nvm.wr, 160.0)] {
        let ns = nvm.cycles(cycles.into()).as_ns();
        assert!((table_ns..table_ns + 1.5).contains(&ns), "{ns}, expected {table_ns}");
    }
    assert_eq!((nvm.refi, nvm.banks, nvm.ranks), (0, 8, 1));
}

#[test]
fn pms_reads_do_not_overlap_and_its_writes_are_posted() {
    let machine = machine("pms");
    let remote = machine.nodes[node(&machine, "remote").index()].fixed.clone().unwrap();
    let line_ns = |mbps: f64| 64.0 * 1e3 / mbps;
    near(line_ns(remote.read_bandwidth_mbps), 1984.0, 0.001);
    near(line_ns(machine.links[0].bandwidth_mbps), 247.0, 0.001);
}

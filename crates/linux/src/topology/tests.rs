//! On copies of sysfs.

use std::fs;
use std::path::Path;

use memtide_core::machine::Machine;
use memtide_core::{CpuId, InitiatorId, NodeId};
use tempfile::TempDir;

use super::{
    Capacity, Measured, MeasuredCache, MeasuredProcessor, MeasuredTlb, Measurements, NoMachine, System,
};

fn write(sysfs: &Path, file: &str, text: &str) {
    let path = sysfs.join(file);
    fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
    fs::write(path, text).expect("a file");
}

/// Two sockets, one without memory, and CPU-less memory next to the first; gaps in the node numbers, HMAT for
/// some.
fn sysfs() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let node = |file: &str, text: &str| write(folder.path(), &format!("devices/system/node/{file}"), text);
    node("online", "0-1,3\n");
    node("has_memory", "0,3\n");
    for (number, cpus, distance) in
        [(0, "0-3", "10 20 17\n"), (1, "4-7", "20 10 28\n"), (3, "\n", "17 28 10\n")]
    {
        node(&format!("node{number}/cpulist"), cpus);
        node(&format!("node{number}/distance"), distance);
        node(&format!("node{number}/meminfo"), &meminfo(number));
    }
    for (number, ns, mib) in [(0, 80, 20_000), (3, 250, 10_000)] {
        for (name, figure) in
            [("read_latency", ns), ("write_latency", ns), ("read_bandwidth", mib), ("write_bandwidth", 0)]
        {
            node(&format!("node{number}/access1/initiators/{name}"), &format!("{figure}\n"));
        }
        node(&format!("node{number}/access1/initiators/node0"), "");
    }
    let tier = |number: u32, nodes| {
        let file = format!("devices/virtual/memory_tiering/memory_tier{number}/nodelist");
        write(folder.path(), &file, nodes);
    };
    tier(4, "0\n");
    tier(22, "3\n");
    let cpu = |file: &str, text: &str| write(folder.path(), &format!("devices/system/cpu/{file}"), text);
    cpu("online", "0-7\n");
    cpu("cpu0/topology/thread_siblings_list", "0-1\n");
    cpu("cpu0/cpufreq/cpuinfo_max_freq", "3100000\n");
    for (index, level, kind, size, ways, shared) in [
        (0, "1", "Data", "48K", "12", "0-1"),
        (1, "1", "Instruction", "32K", "8", "0-1"),
        (2, "2", "Unified", "2048K", "16", "0-1"),
        (3, "3", "Unified", "32M", "16", "0-3"),
    ] {
        for (name, text) in [
            ("level", level),
            ("type", kind),
            ("size", size),
            ("ways_of_associativity", ways),
            ("shared_cpu_list", shared),
        ] {
            cpu(&format!("cpu0/cache/index{index}/{name}"), text);
        }
    }
    folder
}

fn meminfo(node: u32) -> String {
    format!("Node {node} MemTotal:       4194304 kB\nNode {node} MemFree:        1048576 kB\n")
}

#[test]
fn nodes_match_sysfs() {
    let folder = sysfs();
    let host = System::of(folder.path()).expect("a topology");
    let [first, second, far] = &host.nodes[..] else { panic!("three nodes: {host:?}") };
    assert_eq!(first.memory, Some(Capacity { total_kib: 4 << 20, free_kib: 1 << 20 }));
    assert_eq!((second.memory, second.tier, &second.firmware), (None, None, &None));
    assert_eq!(second.cpus, [4, 5, 6, 7].map(CpuId));
    assert_eq!((first.tier, far.tier, far.cpus.len()), (Some(0), Some(1), 0));
    assert_eq!(first.distance(NodeId(3)), Some(17));
    assert_eq!(first.distance(NodeId(2)), None);
    let told = far.firmware.as_ref().expect("firmware's figures");
    assert_eq!((told.read_latency_ns, told.read_bandwidth_mbps), (Some(250.0), Some(10_485.76)));
    assert_eq!((told.write_bandwidth_mbps, &told.initiators[..]), (None, &[NodeId(0)][..]));
    assert_eq!(host.nearest_cpus(far), Some(NodeId(0)));
    assert_eq!(
        host.processor.caches.iter().map(|cache| cache.capacity_kib).collect::<Vec<_>>(),
        [48, 2048, 32 << 10]
    );
}

#[test]
fn system_toml_parses_to_same_distances() {
    let folder = sysfs();
    let host = System::of(folder.path()).expect("a topology");
    let text = host.machine("host", &Measurements::default()).expect("a machine").to_toml();
    let machine = Machine::parse("host", &text).expect("a machine");
    assert_eq!(machine.initiators.iter().map(|cpus| cpus.cpus).collect::<Vec<_>>(), [2, 2]);
    assert_eq!(machine.core.clock_mhz, 3100.0);
    assert_eq!(machine.caches.iter().map(|cache| cache.shared_by).collect::<Vec<_>>(), [1, 1, 2]);
    let ns = |from, to| machine.idle_latency(InitiatorId(from), NodeId(to)).as_ns();
    assert_eq!((ns(0, 0), ns(0, 1)), (80.0, 250.0));
    // By distance: 160 to the near node, 250 x 28 / 17 to the far one; the link latency is the mean of both
    // excesses.
    let adds = (80.0 + 250.0 * 11.0 / 17.0) / 2.0;
    assert!((ns(1, 0) - 80.0 - adds).abs() < 0.01, "{}", ns(1, 0));
    assert!(machine.source_of("node.node3.fixed.read_latency_ns").contains("HMAT"));
    assert!(machine.source_of("link").starts_with("assumed"));
}

#[test]
fn measurement_overrides_firmware() {
    let folder = sysfs();
    let host = System::of(folder.path()).expect("a topology");
    let found = |initiator, node, idle_ns| Measured {
        initiator: NodeId(initiator),
        node: NodeId(node),
        idle_ns,
        read_mbps: 5e3,
        write_mbps: Some(2e3),
        loaded: vec![(5.5e3, 400.0), (1e3, 88.0), (2.5e3, 130.0), (3e3, 120.0)],
    };
    let pairs = vec![found(0, 0, 90.0), found(1, 0, 140.0)];
    let measured = Measurements { pairs, processor: None };
    let text = host.machine("host", &measured).expect("a machine").to_toml();
    let machine = Machine::parse("host", &text).expect("a machine");
    let fixed = machine.nodes[0].fixed.as_ref().expect("a fixed node");
    assert_eq!((fixed.read_latency_ns, fixed.write_bandwidth_mbps), (90.0, Some(2e3)));
    let curve: Vec<(f64, f64)> = fixed.loaded.iter().map(|point| (point.load, point.latency_ns)).collect();
    // Load adds to 90 ns what it adds to the curve's own 88.
    assert_eq!(curve, [(0.2, 90.0), (0.5, 132.0), (0.6, 132.0), (1.0, 402.0)]);
    assert!(machine.source_of("node.node0.fixed").starts_with("measured"));
}

fn caches(ns: [f64; 2]) -> Vec<MeasuredCache> {
    ns.map(|ns| MeasuredCache { kib: None, ns }).into()
}

fn processor() -> MeasuredProcessor {
    MeasuredProcessor {
        clock_mhz: Some(3000.4),
        caches: caches([1.5, 5.0]),
        misses: Some(20),
        reorder_buffer: Some(352),
        store_queue: Some(72),
        next_page: Some(true),
        tlb: Some(MeasuredTlb {
            first_pages: Some(96),
            second_ns: 2.0,
            pages: 3072,
            walk_ns: 10.0,
            cold_walk_ns: Some(40.0),
            walkers: Some(4),
            nested_walks: true,
        }),
        fault_ns: Some(812.3),
        huge_fault_ns: None,
    }
}

fn measured_machine(processor: MeasuredProcessor) -> Machine {
    let folder = sysfs();
    let host = System::of(folder.path()).expect("a topology");
    let measured = Measurements { pairs: Vec::new(), processor: Some(processor) };
    let text = host.machine("host", &measured).expect("a machine").to_toml();
    Machine::parse("host", &text).expect("a machine")
}

#[test]
fn measured_processor_replaces_assumed_figures() {
    let machine = measured_machine(processor());
    let core = &machine.core;
    assert_eq!((core.clock_mhz, core.outstanding_misses), (3000.0, 20));
    assert_eq!((core.reorder_buffer, core.store_queue), (352, 72));
    assert!(machine.prefetcher.as_ref().is_some_and(|prefetcher| prefetcher.next_page));
    let cycles: Vec<f64> = machine.caches.iter().map(|cache| cache.latency_cycles).collect();
    assert_eq!(cycles[..2], [4.5, 15.0]);
    let [first, second] = &machine.tlbs[..] else { panic!("{:?}", machine.tlbs) };
    assert_eq!((first.entries, second.entries, second.latency_cycles), (96, 3072, 6.0));
    assert_eq!((second.walk_cycles, second.cold_walk_cycles), (30.0, Some(120.0)));
    assert!(second.nested_walks && second.walkers == 4);
    assert_eq!((machine.kernel.fault_ns, machine.kernel.huge_fault_ns), (812.0, 60_000.0));
    for (path, source) in [
        ("core.clock_mhz", "measured"),
        ("tlb", "measured"),
        ("kernel.fault_ns", "measured"),
        ("kernel.huge_fault_ns", "assumed"),
        ("core.reorder_buffer", "measured"),
        ("core.store_queue", "measured"),
        ("core.instructions_per_cycle", "assumed"),
        ("prefetcher.next_page", "measured"),
        ("prefetcher.streams", "assumed"),
    ] {
        assert!(machine.source_of(path).starts_with(source), "{path}: {}", machine.source_of(path));
    }
}

#[test]
fn noise_makes_no_cache_slower_than_a_later_one_or_memory() {
    for ns in [[500.0, 5.0], [1.5, 9000.0], [9000.0, 9000.0]] {
        let machine = measured_machine(MeasuredProcessor { caches: caches(ns), ..processor() });
        let memory_ns = machine.nodes[0].fixed.as_ref().expect("a fixed node").read_latency_ns;
        let cycles: Vec<f64> = machine.caches.iter().map(|cache| cache.latency_cycles).collect();
        assert!(cycles.windows(2).all(|pair| pair[0] < pair[1]), "{cycles:?}");
        assert!(cycles.last().is_some_and(|last| last / 3.0 <= memory_ns), "{cycles:?}");
    }
    let cold = |cold_walk_ns| {
        let tlb = processor().tlb.map(|tlb| MeasuredTlb { cold_walk_ns, ..tlb });
        let machine = measured_machine(MeasuredProcessor { tlb, ..processor() });
        (machine.tlbs[1].cold_walk_cycles, machine.tlbs[1].nested_walks)
    };
    assert_eq!(cold(Some(1.0)), (Some(30.0), true), "a cold walk takes no less than a warm one");
    assert_eq!(cold(None), (None, false), "unknown without huge pages");
}

#[test]
fn cache_used_by_others_has_the_capacity_that_a_program_has() {
    let whole = measured_machine(processor());
    let (name, ways) = (whole.caches[1].name.clone(), u64::from(whole.caches[1].ways));
    let capacity_kib = |kib| {
        let mut caches = processor().caches;
        caches[1].kib = Some(kib);
        let machine = measured_machine(MeasuredProcessor { caches, ..processor() });
        let source = machine.source_of(&format!("cache.{name}.capacity_kib")).to_owned();
        (machine.caches[1].capacity_kib, source)
    };
    let whole_kib = whole.caches[1].capacity_kib;
    let (kib, source) = capacity_kib(whole_kib / 2 + 1);
    assert_eq!(kib, (whole_kib / 2 + 1) / ways * ways);
    assert!(source.contains("measured") && source.contains(&whole_kib.to_string()), "{source}");
    assert_eq!(capacity_kib(2 * whole_kib).0, whole_kib);
    assert_eq!(capacity_kib(0).0, whole_kib);
}

#[test]
fn missing_figures_are_an_error() {
    let folder = sysfs();
    fs::remove_dir_all(folder.path().join("devices/system/node/node3/access1")).expect("a folder");
    let host = System::of(folder.path()).expect("a topology");
    let refused = host.machine("host", &Measurements::default());
    assert!(matches!(refused, Err(NoMachine::Unknown { node: NodeId(3), .. })), "{refused:?}");
    // `machine_without_figures` derives missing figures; the firmware's remain.
    let text = host.machine_without_figures("host").expect("a machine").to_toml();
    let machine = Machine::parse("host", &text).expect("a machine");
    assert!(machine.source_of("node.node0.fixed.read_latency_ns").contains("HMAT"));
    assert!(machine.source_of("node.node3.fixed.read_latency_ns").starts_with("assumed"));
    assert_eq!(machine.nodes.iter().map(|node| node.tier).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn invalid_sysfs_is_refused_with_its_file() {
    for (file, text) in [
        ("online", "many"),
        ("node0/distance", "10 20 far"),
        ("node0/meminfo", "nothing"),
        ("online", "0,300"),
    ] {
        let folder = sysfs();
        write(folder.path(), &format!("devices/system/node/{file}"), text);
        let refused = System::of(folder.path()).expect_err("no topology").to_string();
        assert!(refused.contains(file), "{refused}");
    }
}

#[test]
fn this_system_has_node_with_cpu_and_memory() {
    let host = System::read().expect("this system's topology");
    assert!(host.with_cpus().count() > 0 && host.with_memory().count() > 0);
}

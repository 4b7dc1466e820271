//! Layouts of every bundled machine meet the requirements of Linux and ACPI.

use std::fs;
use std::path::Path;

use memtide_core::{InitiatorId, Machine};
use memtide_lab::{Layout, Memory};

fn machines() -> Vec<Machine> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files
        .filter(|path| path.is_file())
        .map(|path| Machine::parse(&path.display().to_string(), &fs::read_to_string(&path).unwrap()).unwrap())
        .collect()
}

fn bundled(name: &str) -> Machine {
    machines().into_iter().find(|machine| machine.name == name).unwrap()
}

#[test]
fn nodes_are_section_aligned_and_fit_kernel_and_cpus() {
    for machine in machines() {
        let least = machine.reduced();
        for vcpus in [1, 5] {
            let layout = Layout::new(&machine, Some(vcpus)).unwrap();
            let name = format!("{} with {vcpus}", machine.name);
            assert!(layout.nodes[0].mib >= 256, "{name}");
            for node in layout.nodes.iter().filter(|node| node.mib > 0) {
                let asked = least.nodes.iter().find(|other| other.name == node.name).unwrap().capacity_mib;
                assert!(node.mib % 128 == 0 && node.mib >= asked, "{name}: {node:?} for {asked} MiB");
                assert!(
                    node.mib < asked + 128 || layout.notes.iter().any(|note| note.contains(&node.name)),
                    "{name}"
                );
            }
            let mut placed: Vec<u16> = layout.nodes.iter().flat_map(|node| node.vcpus.clone()).collect();
            placed.sort_unstable();
            assert_eq!(placed, (0..vcpus).collect::<Vec<_>>(), "{name}");
            for node in &layout.nodes {
                assert!(!layout.nodes[node.initiator].vcpus.is_empty(), "{name}: {node:?}");
            }
        }
    }
}

#[test]
fn machine_in_linux_order_gives_same_layout() {
    for machine in machines() {
        let named: Vec<_> =
            machine.nodes.iter().skip(1).take(1).map(|node| (node.name.clone(), Memory::Absent)).collect();
        // bdm's virtual CPU is in its second node, which must be plain.
        let layout = Layout::with(&machine, Some(1), &named).or_else(|_| Layout::new(&machine, Some(1)));
        let machine = layout.unwrap().machine;
        let read = Machine::parse("in order", &machine.to_toml()).unwrap();
        for from in (0..machine.initiators.len()).map(InitiatorId::from) {
            for to in machine.node_ids() {
                assert_eq!(machine.topology.hops(from, to), read.topology.hops(from, to));
                assert_eq!(machine.idle_latency(from, to), read.idle_latency(from, to));
            }
        }
        assert_eq!(machine.to_toml(), read.to_toml());
    }
}

#[test]
fn distances_are_valid_acpi_and_grow_with_latency() {
    for machine in machines() {
        let layout = Layout::new(&machine, None).unwrap();
        let all = 0..layout.nodes.len();
        for (a, b) in all.clone().flat_map(|a| all.clone().map(move |b| (a, b))) {
            let distance = layout.distances[a][b];
            assert_eq!(distance, layout.distances[b][a], "{}", machine.name);
            assert_eq!(distance == 10, a == b, "{}", machine.name);
            assert!((10..255).contains(&distance), "{}", machine.name);
        }
    }
    let layout = Layout::new(&bundled("hinuma"), None).unwrap();
    // From dram's socket 170 + 71 ns against 85; from nvm's 85 + 71 against 170.
    assert_eq!(layout.distances[0][1], 28);
}

#[test]
fn memory_ranges_avoid_pci_hole_without_overlap() {
    for machine in machines() {
        let layout = Layout::new(&machine, None).unwrap();
        let ranges = layout.ranges();
        let mut end = 0;
        for range in &ranges {
            assert!(range.start >= end && range.bytes > 0, "{}: {range:?}", machine.name);
            end = range.start + range.bytes;
            let hole = 0xb000_0000..4 << 30;
            assert!(end <= hole.start || range.start >= hole.end, "{}: {range:?}", machine.name);
        }
        for (number, node) in layout.nodes.iter().enumerate() {
            let bytes: u64 =
                ranges.iter().filter(|range| range.node.index() == number).map(|range| range.bytes).sum();
            assert_eq!(bytes, node.mib << 20, "{}", machine.name);
        }
    }
    let large = Layout::new(&bundled("optane"), None).unwrap();
    assert!(large.mib() > 4 << 10 && large.ranges().iter().any(|range| range.start == 4 << 30));
}

#[test]
fn cpus_are_in_node_linux_allocates_from_first() {
    // DDR4 has the lower latency, so it is the CPUs' own node, as on the real machine.
    let layout = Layout::new(&bundled("bdm"), None).unwrap();
    let home = layout.nodes.iter().find(|node| !node.vcpus.is_empty()).unwrap();
    assert_eq!(home.name, "ddr4");
}

#[test]
fn initiator_without_memory_gets_memoryless_node() {
    let text = bundled("hinuma").to_toml().replacen("initiator = \"socket1\"", "", 1);
    let text = format!(
        "{text}\n[[link]]\nbetween = [\"socket1\", \"nvm\"]\nlatency_ns = 10\nbandwidth_mbps = 10000\n"
    );
    let machine = Machine::parse("changed", &text).unwrap();
    let layout = Layout::new(&machine, None).unwrap();
    let last = layout.nodes.last().unwrap();
    assert_eq!((last.name.as_str(), last.mib, last.vcpus.len()), ("socket1", 0, 1));
    assert_eq!(layout.nodes[1].initiator, 2, "nvm is nearest to socket1");
    assert_eq!(layout.linux_numbers(), [0, 2], "socket1's node, which has a CPU, comes before nvm");
    assert_eq!(Layout::new(&machine, Some(1)).unwrap().nodes.len(), 2, "without a CPU it needs no node");
}

#[test]
fn invalid_vcpu_counts_are_refused() {
    for vcpus in [0, 65] {
        let error = Layout::new(&bundled("hinuma"), Some(vcpus)).unwrap_err().to_string();
        assert!(error.contains("allowed are 1 to 64"), "{error}");
    }
}

#[test]
fn special_memory_is_above_plain_memory() {
    for name in ["ddr5-cxl", "optane"] {
        let machine = bundled(name);
        let last = machine.nodes.last().unwrap().name.clone();
        for memory in [Memory::Absent, Memory::Shared("/pool".into())] {
            let plain = Layout::new(&machine, None).unwrap();
            let layout = Layout::with(&machine, None, &[(last.clone(), memory)]).unwrap();
            let node = layout.nodes.iter().position(|node| node.name == last).unwrap();
            assert_eq!(layout.mib() + layout.device_mib(), plain.mib(), "{name}");
            assert_eq!(layout.device_mib(), layout.nodes[node].mib, "{name}");
            let start = layout.start(node);
            assert!(start >= 4 << 30 && start.is_multiple_of(1 << 30), "{name}: {start:#x}");
            let mut others = layout.ranges().into_iter().filter(|range| range.node.index() != node);
            assert!(others.all(|range| range.start + range.bytes <= start), "{name}");
        }
    }
}

#[test]
fn absent_nodes_are_last_and_contiguous() {
    let named = ["dram1", "cxl"].map(|name| (name.to_owned(), Memory::Absent));
    let layout = Layout::with(&bundled("ddr5-cxl"), Some(1), &named).unwrap();
    let names: Vec<&str> = layout.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!((names, layout.absent()), (vec!["dram0", "dram1", "cxl"], vec![1, 2]));
    assert_eq!(layout.start(2) - layout.start(1), layout.nodes[1].mib << 20);
    let layout = Layout::with(&bundled("ddr5-cxl"), Some(1), &named[..1]).unwrap();
    assert_eq!((layout.nodes[2].name.as_str(), layout.absent()), ("dram1", vec![2]));
}

fn cxl(name: &str) -> (String, Memory) {
    (name.to_owned(), Memory::Cxl)
}

#[test]
fn cxl_windows_are_above_other_memory_and_nodes_last() {
    let named = [cxl("dram1"), ("cxl".to_owned(), Memory::Absent)];
    let layout = Layout::with(&bundled("ddr5-cxl"), Some(1), &named).unwrap();
    let names: Vec<&str> = layout.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!((names, layout.linux_numbers()), (vec!["dram0", "cxl", "dram1"], vec![0, 1, 2]));
    // Addresses observed in guests of QEMU 10.0: with a preceding 512 MiB device and slot, and without.
    assert_eq!(layout.start(2), 0x1_7000_0000);
    let layout = Layout::with(&bundled("ddr5-cxl"), Some(1), &[cxl("cxl"), cxl("dram1")]).unwrap();
    assert_eq!([1, 2].map(|node| layout.start(node)), [0x1_1000_0000, 0x1_3000_0000]);
    assert_eq!((layout.mib(), layout.device_mib()), (512, 0));
}

#[test]
fn cxl_memory_has_multiples_of_256_mib() {
    let text = bundled("ddr5-cxl").to_toml().replacen("scale = 32", "scale = 128", 1);
    let machine = Machine::parse("changed", &text).unwrap();
    let layout = Layout::with(&machine, Some(1), &[cxl("cxl")]).unwrap();
    assert_eq!(layout.nodes[2].mib, 256);
    assert!(layout.notes.iter().any(|note| note.contains("'cxl' has 256 MiB instead of 128")), "{layout:?}");
}

#[test]
fn cxl_nodes_come_after_memoryless_cpu_nodes() {
    let text = bundled("hinuma").to_toml().replacen("initiator = \"socket1\"", "", 1);
    let text = format!(
        "{text}\n[[link]]\nbetween = [\"socket1\", \"nvm\"]\nlatency_ns = 10\nbandwidth_mbps = 10000\n"
    );
    let layout = Layout::with(&Machine::parse("changed", &text).unwrap(), None, &[cxl("nvm")]).unwrap();
    assert_eq!((layout.domains(), layout.linux_numbers()), (vec![0, 2, 1], vec![0, 2]));
}

//! Memory nodes: their number, and the source of their latency and bandwidth.

use super::{Finding, Use};
use crate::topology::{Node, System, TopologyError};

/// Checks the nodes.
pub fn examine() -> Vec<Finding> {
    judge(&System::read())
}

fn judge(system: &Result<System, TopologyError>) -> Vec<Finding> {
    match system {
        Ok(system) => vec![choice(system), tiers(system), figures(system)],
        Err(error) => vec![
            Finding::missing(
                "memory nodes",
                error.to_string(),
                "nodes are indistinguishable: no placement or migration",
                &Use::ALL,
            )
            .remedy("a kernel with CONFIG_NUMA, and sysfs: mount -t sysfs sysfs /sys"),
        ],
    }
}

fn choice(system: &System) -> Finding {
    let count = system.with_memory().count();
    let names =
        |nodes: Vec<&Node>| nodes.iter().map(|node| node.id.to_string()).collect::<Vec<_>>().join(", ");
    let mut found = format!("{count} with memory ({})", names(system.with_memory().collect()));
    let more = [
        ("without CPUs", system.with_memory().filter(|node| node.cpus.is_empty()).collect::<Vec<_>>()),
        ("without memory", system.nodes.iter().filter(|node| node.memory.is_none()).collect()),
    ];
    for (what, nodes) in more.into_iter().filter(|(_, nodes)| !nodes.is_empty()) {
        found += &format!("; {what}: {}", names(nodes));
    }
    if count > 1 {
        return Finding::good("memory nodes", found, "pages can be placed and moved");
    }
    let means = "`run` and `daemon` work without effect: all pages are on this node";
    Finding::warning("memory nodes", found, means)
        .remedy("try policies in the simulator or the lab: memtide lab run --machine ddr5-cxl -- PROGRAM")
}

fn tiers(system: &System) -> Finding {
    let mut tiers: Vec<u8> = system.with_memory().filter_map(|node| node.tier).collect();
    tiers.sort_unstable();
    tiers.dedup();
    let subject = "memory tiers";
    match (tiers.len(), system.with_memory().count()) {
        (0, _) => Finding::note(
            subject,
            "the kernel has none (they came with Linux 6.1)",
            "nodes without CPUs count as the slower tier, unless --machine FILE defines tiers",
        ),
        (1, 2..) => Finding::warning(
            subject,
            "one, for all nodes",
            "policies see a single tier, unless --machine FILE defines tiers",
        )
        .remedy("memtide topo -o machine > FILE, set each node's `tier`, and use --machine FILE"),
        (count, _) => Finding::good(subject, format!("{count}"), "policies use them"),
    }
}

fn figures(system: &System) -> Finding {
    let without: Vec<String> =
        system.with_memory().filter(|node| node.firmware.is_none()).map(|node| node.id.to_string()).collect();
    let subject = "latency and bandwidth";
    if without.is_empty() {
        let means = "policies use the firmware's figures; `memtide measure` checks them";
        Finding::good(subject, "reported by the firmware (ACPI HMAT)", means)
    } else {
        let found = format!("the firmware (ACPI HMAT) does not report {}", without.join(", "));
        let means = "policies that use latency or bandwidth need a machine file, by --machine";
        Finding::missing(subject, found, means, &[Use::Figures]).remedy(
            "memtide measure -o json > measured.json; memtide topo -o machine --measured measured.json > \
             system.toml",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::{State, obstacles, works};
    use super::*;
    use crate::topology::{Capacity, Performance, Processor};
    use memtide_core::{CpuId, NodeId};

    fn node(id: u8, cpus: &[u16], memory: bool, tier: Option<u8>, firmware: bool) -> Node {
        Node {
            id: NodeId(id),
            cpus: cpus.iter().map(|&cpu| CpuId(cpu)).collect(),
            memory: memory.then_some(Capacity { total_kib: 1 << 20, free_kib: 1 << 19 }),
            tier,
            distances: Vec::new(),
            firmware: firmware.then(Performance::default),
        }
    }

    fn of(nodes: Vec<Node>) -> Vec<(State, String)> {
        let processor = Processor { threads_per_core: 1, clock_mhz: None, caches: Vec::new() };
        let found = judge(&Ok(System { nodes, processor }));
        found.into_iter().map(|finding| (finding.state, finding.found)).collect()
    }

    #[test]
    fn two_tiers_with_figures_are_good_and_unusual_nodes_are_reported() {
        let found = of(vec![
            node(0, &[0], true, Some(0), true),
            node(1, &[1], false, None, false),
            node(2, &[], true, Some(1), true),
        ]);
        assert!(found.iter().all(|(state, _)| *state == State::Good), "{found:?}");
        assert_eq!(found[0].1, "2 with memory (node0, node2); without CPUs: node2; without memory: node1");
    }

    #[test]
    fn single_node_is_reported() {
        let found = of(vec![node(0, &[0], true, Some(0), false)]);
        assert_eq!(
            found.iter().map(|(state, _)| *state).collect::<Vec<_>>(),
            [State::Warning, State::Good, State::Missing]
        );
    }

    #[test]
    fn one_tier_warns_and_missing_firmware_figures_stop_policies_that_use_them() {
        let found = of(vec![node(0, &[0], true, Some(0), true), node(1, &[], true, Some(0), false)]);
        assert_eq!(found[1].0, State::Warning);
        assert_eq!(found[2].0, State::Missing);
        assert!(found[2].1.contains("node1"), "{found:?}");
    }

    #[test]
    fn machine_file_replaces_missing_firmware_figures() {
        let processor = Processor { threads_per_core: 1, clock_mhz: None, caches: Vec::new() };
        let nodes = vec![node(0, &[0], true, Some(0), false)];
        let found = judge(&Ok(System { nodes, processor }));
        assert_eq!(obstacles(&found, Use::Figures).len(), 1, "{found:?}");
        assert!(obstacles(&found, Use::Policies).is_empty() && works(&found, Use::Figures), "{found:?}");
    }

    #[test]
    fn kernel_without_numa_stops_everything() {
        let why = TopologyError::Unreadable { file: "/sys/x".into(), why: "is not there".to_owned() };
        assert_eq!(judge(&Err(why))[0].stops, Use::ALL);
    }
}

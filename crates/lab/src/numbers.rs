//! Node numbers: the guest's kernel has its own. It reports the ACPI proximity domain of each of its nodes,
//! in the order of its own numbers; that is the node's number in the virtual machine.

use memtide_lab_protocol::agent::Ending;

use crate::layout::Layout;

/// Numbers in the virtual machine, in the order of the guest's own. CXL nodes are not in its ACPI tables and
/// come after the reported ones.
pub fn of_guest(layout: &Layout, domains_in_tables: &[u32]) -> Vec<u32> {
    let domains = layout.domains();
    domains_in_tables.iter().copied().chain(layout.cxl().map(|node| domains[node] as u32)).collect()
}

/// Nodes absent at boot; their numbers in the guest differ from those in the virtual machine.
pub fn absent<'a>(layout: &'a Layout, domains: &'a [u32]) -> impl Iterator<Item = String> + 'a {
    layout.absent().into_iter().map(|node| {
        let name = &layout.nodes[node].name;
        match place(domains, node) {
            Some(number) => format!("node '{name}' was absent at boot; it is the guest's node {number}"),
            None => format!("node '{name}' was absent at boot, and is not in the guest"),
        }
    })
}

/// The guest's number of a node of the virtual machine.
fn place(domains: &[u32], node: usize) -> Option<usize> {
    domains.iter().position(|&domain| domain as usize == node)
}

/// The guest's per-node figures in the order of the layout's nodes, whose numbers in the virtual machine are
/// `nodes`; `domains` are the guest's proximity domains.
pub fn in_order(ending: &Ending, nodes: &[usize], domains: &[u32]) -> Ending {
    let places: Vec<Option<usize>> = nodes.iter().map(|&node| place(domains, node)).collect();
    let mut ending = ending.clone();
    let pick = |place: &Option<usize>| ending.counters.nodes.get((*place)?).cloned();
    ending.counters.nodes = places.iter().map(|place| pick(place).unwrap_or_default()).collect();
    for sample in &mut ending.samples {
        let pick = |place: &Option<usize>| sample.nodes_kib.get((*place)?).copied();
        sample.nodes_kib = places.iter().map(|place| pick(place).unwrap_or_default()).collect();
    }
    ending
}

#[cfg(test)]
mod tests {
    use memtide_lab_protocol::agent::{KernelCounters, KernelNodeCounters, Sample};

    use super::*;

    #[test]
    fn node_figures_map_to_virtual_machine_order() {
        let node = |allocations| KernelNodeCounters { total_kib: 0, allocations };
        let ending = Ending {
            status: 0,
            signal: None,
            guest_ns: 0,
            out_bytes: 0,
            err_bytes: 0,
            counters: KernelCounters { events: Default::default(), nodes: vec![node(10), node(12)] },
            samples: vec![Sample { guest_ns: 1, nodes_kib: vec![10, 12, 11] }],
        };
        // The guest numbers node 2 before node 1, and reports no figures of the last.
        let ordered = in_order(&ending, &[0, 1, 2], &[0, 2, 1]);
        assert_eq!(ordered.counters.nodes, [node(10), node(0), node(12)]);
        assert_eq!(ordered.samples[0].nodes_kib, [10, 11, 12]);
        assert_eq!(in_order(&ending, &[0], &[7]).counters.nodes, [node(0)], "a domain that there is not");
    }
}

//! Numbers of nodes: the guest's kernel has its own. It tells the number in the virtual machine of each of its nodes (their
//! ACPI proximity domains), in the order of its own.

use memtide_lab_protocol::agent::Ending;

use crate::layout::Layout;

/// The numbers in the virtual machine of the guest's nodes, in the order of its own: those of CXL memory, which its tables do not
/// have, come after the ones that it has told.
pub fn of_guest(layout: &Layout, told: &[u32]) -> Vec<u32> {
    let domains = layout.domains();
    told.iter().copied().chain(layout.cxl().map(|node| domains[node] as u32)).collect()
}

/// Which nodes were absent at boot; their numbers in the guest are others than without it.
pub fn absent<'a>(layout: &'a Layout, domains: &'a [u32]) -> impl Iterator<Item = String> + 'a {
    layout.absent().into_iter().map(|node| {
        let name = &layout.nodes[node].name;
        match place(domains, node) {
            Some(number) => format!("node '{name}' was absent at boot; it is the guest's node {number}"),
            None => format!("node '{name}' was absent at boot, and is not in the guest"),
        }
    })
}

/// The number that the guest gives a node of the virtual machine.
fn place(domains: &[u32], node: usize) -> Option<usize> {
    domains.iter().position(|&domain| domain as usize == node)
}

/// What the guest tells of its nodes, in the order of the layout's, whose numbers in the virtual machine are `nodes`; `domains`
/// are those of the guest's.
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
    fn figures_of_nodes_are_brought_into_the_virtual_machines_order() {
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
        // The guest counts node 2 before node 1, and has no figures of the last.
        let ordered = in_order(&ending, &[0, 1, 2], &[0, 2, 1]);
        assert_eq!(ordered.counters.nodes, [node(10), node(0), node(12)]);
        assert_eq!(ordered.samples[0].nodes_kib, [10, 11, 12]);
        assert_eq!(in_order(&ending, &[0], &[7]).counters.nodes, [node(0)], "a domain that there is not");
    }
}

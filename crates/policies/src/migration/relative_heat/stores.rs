//! Stores on slow memory whose writes are dear, such as NVM: memos' write domain.

use memtide_core::{Machine, NodeId};

/// Maximum loads that a store counts as.
const WEIGHT_MAX: f64 = 16.0;

/// Loads that a store counts as: how much more it takes on the slowest tier than on the fastest, relative to
/// how much more a load takes; at least 1. In the end the line has to be written: that takes the write
/// latency, or as much longer than a load as writes have less bandwidth, if that is longer.
pub(super) fn weight(machine: &Machine) -> f64 {
    let tier = |&node: &NodeId| machine.tier_of(node);
    let (fast, slow) = (machine.node_ids().min_by_key(tier), machine.node_ids().max_by_key(tier));
    let (Some(fast), Some(slow)) = (fast, slow) else { return 1.0 };
    let loads_ns = load_ns(machine, slow) - load_ns(machine, fast);
    if loads_ns <= 0.0 {
        return 1.0;
    }
    ((store_ns(machine, slow) - store_ns(machine, fast)) / loads_ns).clamp(1.0, WEIGHT_MAX)
}

fn load_ns(machine: &Machine, node: NodeId) -> f64 {
    machine.idle_latency(machine.nearest_initiator(node), node).as_ns()
}

fn store_ns(machine: &Machine, node: NodeId) -> f64 {
    let mbps =
        |read_share| machine.path_bandwidth(machine.nearest_initiator(node), node, read_share).as_mbps();
    machine.write_latency(node).as_ns().max(load_ns(machine, node) * mbps(1.0) / mbps(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{N, machine, node};

    #[test]
    fn store_counts_by_latency_and_by_bandwidth() {
        let fast = || N { write_ns: 80.0, ..node(0, 0, 9000.0) };
        let slow = |read_ns, write_ns| N { read_ns, write_ns, ..node(1, 0, 3000.0) };
        for (read_ns, write_ns, loads) in [
            (240.0, 240.0, 1.0),
            (240.0, 560.0, 3.0),
            (240.0, 90.0, 1.0),
            (240.0, 9000.0, 16.0),
            (80.0, 90.0, 1.0),
        ] {
            let machine = machine(&[fast(), slow(read_ns, write_ns)]);
            assert_eq!(weight(&machine), loads, "{read_ns} ns, {write_ns} ns");
        }
        let optane = include_str!("../../../../../docs/comparison/optane-1s.toml");
        let optane = Machine::parse("optane-1s", optane).expect("a machine");
        let [fast, slow] = [0, 1].map(|node| load_ns(&optane, NodeId(node)));
        let fixed = optane.nodes[1].fixed.as_ref().expect("a fixed node");
        let longer = fixed.read_bandwidth_mbps / fixed.write_bandwidth_mbps.expect("a figure");
        let loads = (slow * longer - store_ns(&optane, NodeId(0))) / (slow - fast);
        assert!((weight(&optane) / loads - 1.0).abs() < 1e-9 && loads > 2.0, "{loads}");
    }
}

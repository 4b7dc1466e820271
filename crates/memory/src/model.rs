//! Selects the model of a node.

use memtide_core::machine::{Fixed, Node};

use crate::dram::DramNode;
use crate::fixed::FixedNode;
use crate::node::MemoryNode;
use crate::slices::SharedNode;

/// The model of a node of a checked machine.
///
/// # Panics
/// If the node is neither dram nor fixed, which checked machines exclude.
pub fn model(node: &Node) -> Box<dyn MemoryNode + Send> {
    let device: Box<dyn MemoryNode + Send> = match (&node.dram, &node.fixed) {
        (Some(dram), _) => Box::new(DramNode::new(dram)),
        (None, Some(fixed)) => Box::new(FixedNode::new(&whole(fixed, node.sharing_slices))),
        (None, None) => panic!("the machine's check lets no node pass that is neither dram nor fixed"),
    };
    if node.sharing_slices == 1 { device } else { Box::new(SharedNode::new(node, device)) }
}

/// The device of which slices have equal parts.
fn whole(fixed: &Fixed, slices: u16) -> Fixed {
    let all = |mbps: f64| mbps * f64::from(slices);
    Fixed {
        read_bandwidth_mbps: all(fixed.read_bandwidth_mbps),
        write_bandwidth_mbps: fixed.write_bandwidth_mbps.map(all),
        ..fixed.clone()
    }
}

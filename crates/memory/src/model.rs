//! Selects the model of a node.

use memtide_core::machine::Node;

use crate::dram::DramNode;
use crate::fixed::FixedNode;
use crate::node::MemoryNode;

/// The model of a node of a checked machine.
///
/// # Panics
/// If the node is neither dram nor fixed, which checked machines exclude.
pub fn model(node: &Node) -> Box<dyn MemoryNode + Send> {
    match (&node.dram, &node.fixed) {
        (Some(dram), _) => Box::new(DramNode::new(dram)),
        (None, Some(fixed)) => Box::new(FixedNode::new(fixed)),
        (None, None) => panic!("the machine's check lets no node pass that is neither dram nor fixed"),
    }
}

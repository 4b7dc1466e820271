//! CXL memory expanders.

use memtide_lab_protocol::agent::Expander;

use crate::layout::Layout;

/// CXL expanders for the agent's task.
pub fn expanders(layout: &Layout) -> Vec<Expander> {
    let numbers = layout.linux_numbers();
    let of = |node: usize| Expander {
        name: layout.nodes[node].name.clone(),
        start: layout.start(node),
        bytes: layout.nodes[node].mib << 20,
        node: numbers[node],
    };
    layout.cxl().map(of).collect()
}

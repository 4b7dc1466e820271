//! Kinds of node memory.

use std::path::PathBuf;

/// Kind of a node's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Present from boot.
    Plain,
    /// Hotplug: the node exists, its memory is absent until plugged in.
    Absent,
    /// A host file, which several guests may share. Programs map it; the kernel does not allocate from it.
    Shared(PathBuf),
    /// A CXL memory expander, which the guest's drivers turn into a node.
    Cxl,
}

impl Memory {
    /// Whether it is an ACPI memory device.
    pub(crate) fn is_device(&self) -> bool {
        matches!(self, Memory::Absent | Memory::Shared(_))
    }
}

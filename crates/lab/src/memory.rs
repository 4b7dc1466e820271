//! How the memory of a guest's nodes comes into it.

use std::path::PathBuf;

/// How a node's memory comes into the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Memory {
    /// It is there from the start.
    Plain,
    /// The node is there and its memory not, until it is plugged in.
    Absent,
    /// It is a file of the host, which other guests may have, too. Programs map it; the kernel leaves it alone.
    Shared(PathBuf),
    /// It is that of a CXL memory expander, which the guest's own drivers make a node.
    Cxl,
}

impl Memory {
    /// Whether it comes as a device of ACPI.
    pub(crate) fn is_device(&self) -> bool {
        matches!(self, Memory::Absent | Memory::Shared(_))
    }
}

//! Nodes, CPUs and caches of this system, from sysfs.

mod frames;
mod machine;
mod measured;
mod measured_file;
mod node;
pub mod nodelist;
mod numbers;
mod processor;
pub(crate) mod sysfs;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use memtide_core::NodeId;

pub use frames::FrameNodes;
pub use machine::NoMachine;
pub use measured::{Measured, MeasuredCache, MeasuredProcessor, MeasuredTlb, Measurements};
pub use measured_file::MeasuredFile;
pub use node::{Capacity, Node, Performance, memory_of};
pub use numbers::{FewInitiators, Numbers};
pub use processor::{Cache, Processor};

use sysfs::Sysfs;
pub(crate) use sysfs::list as cpu_list;
pub(crate) use sysfs::list;

/// Why a topology cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TopologyError {
    /// A kernel file has unexpected content.
    #[error("{}: {why}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

/// A system's memory and CPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct System {
    /// Online nodes, in order.
    pub nodes: Vec<Node>,
    /// Cores and caches.
    pub processor: Processor,
}

impl System {
    /// Reads this system.
    ///
    /// # Errors
    /// If sysfs is not mounted, or has unexpected content.
    pub fn read() -> Result<System, TopologyError> {
        System::of(Path::new("/sys"))
    }

    /// Reads the system from sysfs, or a copy of it, in a directory.
    ///
    /// # Errors
    /// As for [`System::read`].
    pub fn of(sysfs: &Path) -> Result<System, TopologyError> {
        let sysfs = Sysfs(sysfs);
        Ok(System { nodes: node::nodes(&sysfs)?, processor: processor::processor(&sysfs)? })
    }

    /// Nodes with memory.
    pub fn with_memory(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| node.memory.is_some())
    }

    /// Nodes with CPUs.
    pub fn with_cpus(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| !node.cpus.is_empty())
    }

    /// The node with CPUs nearest to a node: itself if it has some, else at the least distance, then of the
    /// lowest number.
    pub fn nearest_cpus(&self, to: &Node) -> Option<NodeId> {
        let far = |from: &Node| (from.id != to.id, from.distance(to.id).unwrap_or(u8::MAX), from.id);
        self.with_cpus().min_by_key(|from| far(from)).map(|node| node.id)
    }
}

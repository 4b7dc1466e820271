//! Placement of a program's pages: by the kernel's memory policies, which it inherits at its start, or fault
//! by fault.

mod exact;
mod held;
mod lower;
mod stat;
mod weights;

use std::io;
use std::process::{Child, Command};

use memtide_core::NodeId;

pub(crate) use exact::TRACEPOINT;
pub use exact::{Exact, ExactError, PlacementCounts, Running};
pub use held::{HeldPolicy, NoKernelPolicy};
pub use lower::{KernelPolicy, NotPlain, lower};
pub(crate) use stat::status;
pub use weights::{WeightError, Weights};

use crate::sys::{self, Mode};

impl KernelPolicy {
    /// Starts a program under this memory policy; the caller's own stays unchanged.
    ///
    /// # Errors
    /// The kernel's, if it does not support the policy or allows none of the nodes, or the program cannot be
    /// started.
    pub fn start(&self, command: &mut Command) -> io::Result<Child> {
        let (mode, nodes) = self.mode();
        // A child inherits the policy of the thread that starts it.
        sys::set_memory_policy(mode, &nodes)?;
        let child = command.spawn();
        sys::set_memory_policy(Mode::Default, &[])?;
        child
    }

    fn mode(&self) -> (Mode, Vec<NodeId>) {
        match self {
            KernelPolicy::Local => (Mode::Local, Vec::new()),
            KernelPolicy::Nearest(nodes) => (Mode::Bind, nodes.clone()),
            KernelPolicy::Preferred(nodes) => (Mode::PreferredMany, nodes.clone()),
            KernelPolicy::Interleave(nodes) => (Mode::Interleave, nodes.clone()),
            KernelPolicy::Weighted(weights) => {
                (Mode::WeightedInterleave, weights.iter().map(|(node, _)| *node).collect())
            }
        }
    }
}

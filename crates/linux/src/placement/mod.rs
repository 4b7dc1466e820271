//! Placement of a program's pages: by the kernel's own memory policies, which it inherits when it is started, or fault by fault.

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
    /// Starts a program whose memory the kernel places by this policy; the caller's own stays as it was.
    ///
    /// # Errors
    /// The kernel's, if it knows no such policy or allows none of the nodes, or the program cannot be started.
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
            KernelPolicy::Interleave(nodes) => (Mode::Interleave, nodes.clone()),
            KernelPolicy::Weighted(weights) => {
                (Mode::WeightedInterleave, weights.iter().map(|(node, _)| *node).collect())
            }
        }
    }
}

//! Exact placement: a program's anonymous pages on the nodes chosen by a rule's own state, fault by fault, on
//! a stock kernel.
//!
//! A kernel policy only supports ratios; a rule may depend on the thread, the faulting CPU and chance. So
//! each first touch is handled here: the program runs under ptrace, and each of its address spaces has a
//! userfaultfd, opened by a system call injected before its first instruction.
//!
//! ```text
//!  program's thread              kernel                       tracer (this module, one thread)
//!  touches a page  --- fault --> userfaultfd of the space --> RuleState::next(thread, CPU)   `placer`
//!   (waits)                      <---- UFFDIO_COPY of zeros --- set_mempolicy(preferred node)
//!  mmap, brk, mremap ----------> tracepoint sys_exit -------> SIGWINCH: registers the range  `address_space`
//!  rt_sigprocmask -------------> tracepoint sys_exit -------> unblocks SIGWINCH again        `tracer`
//!  fork, clone, exec ----------> ptrace event --------------> new thread; new space: inject  `inject`
//!                                                             userfaultfd(), take it by pidfd_getfd
//! ```
//!
//! Invariants: a thread does not run before its address space has its userfaultfd or is counted as
//! `unwatched`, nor between mapping memory and its registration; every page for which a rule chose a node is
//! counted once, in `placed` or `left`; a thread's state advances once per fault, in fault order. All
//! descriptors belong to this process: if it dies, the kernel ends tracing and supplies pages itself, and the
//! program continues.
//!
//! Why: without the injected call the program would have to be changed or preloaded, which excludes
//! statically linked ones. The tracepoint's signal stops a thread at three system calls; ptrace's own system
//! call stops would do so at every one. Other signals may come before it or replace it, so a thread's last
//! system call is checked at every signal stop. Copying zeros (and not UFFDIO_ZEROPAGE, which maps the shared
//! zero page) allocates a page under the calling thread's memory policy, which is how the node is chosen.
//!
//! docs/live.md lists the features and limits.

mod address_space;
mod free_memory;
mod inject;
mod maps;
mod placer;
mod start;
mod tracer;

use std::fmt;

use memtide_core::machine::Machine;
use memtide_core::policy::{GroupOrder, NodeOrder, Rule, Within};
use memtide_core::{CpuId, NodeId};

pub(crate) use start::TRACEPOINT;
pub use start::{ExactError, Running};

use crate::topology::{Numbers, System};

/// A rule for exact placement.
#[derive(Clone, Debug)]
pub struct Exact {
    rule: Rule,
    order: NodeOrder,
    /// The system's numbers of the machine's nodes.
    nodes: Vec<NodeId>,
    /// The machine's numbers of the system's CPUs; empty if all are in one initiator.
    cpus: Vec<CpuId>,
    seed: u64,
}

/// Page counts: placed by node, left to the kernel, and others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlacementCounts {
    /// Pages placed on each of the machine's nodes, in the system's numbers.
    pub placed: Vec<(NodeId, u64)>,
    /// Anonymous pages left to the kernel, because a node had no memory or the page could not be supplied.
    pub left: u64,
    /// All other faults: on the stack, on files, and copies after a fork.
    pub others: u64,
    /// Programs that were started without exact placement: of another architecture, sandboxed, or not
    /// permitted.
    pub unwatched: u64,
}

impl fmt::Display for PlacementCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = self.placed.iter().map(|(node, pages)| format!("{pages} on node {}", node.0));
        write!(f, "pages placed: {}; ", nodes.collect::<Vec<_>>().join(", "))?;
        write!(
            f,
            "left to the kernel: {}, and {} other faults (stack, files, copies)",
            self.left, self.others
        )?;
        if self.unwatched > 0 {
            write!(f, "; programs or threads that could not be watched: {}", self.unwatched)?;
        }
        Ok(())
    }
}

impl Exact {
    /// A rule in the numbers of `machine`, whose nodes are those of `system` with memory, in order. The seed
    /// only affects random orders.
    ///
    /// # Errors
    /// If the machine has fewer initiators than the system has nodes with CPUs.
    pub fn new(rule: Rule, machine: &Machine, system: &System, seed: u64) -> Result<Exact, ExactError> {
        let numbers = Numbers::of(machine, system)?;
        let is_one = system.with_cpus().count() == 1;
        Ok(Exact {
            rule,
            order: NodeOrder::of(machine),
            nodes: numbers.nodes,
            cpus: if is_one { Vec::new() } else { numbers.cpus },
            seed,
        })
    }

    /// Whether the faulting CPU matters even if all nodes have free memory.
    fn needs_cpu(&self) -> bool {
        let several = self.rule.groups.iter().any(|group| group.nodes.len() > 1);
        self.rule.order == GroupOrder::CycleFromOwn || (self.rule.within == Within::Nearest && several)
    }
}

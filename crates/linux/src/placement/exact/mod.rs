//! Exact placement: a program's anonymous pages where a rule's own state says, one fault at a time, on a stock kernel.
//!
//! A kernel policy knows ratios; a rule may depend on the thread, the faulting CPU and chance. So each first touch is handled here:
//! the program runs under ptrace, and each of its address spaces has a userfaultfd, which its first instructions were made to open.
//!
//! ```text
//!  program's thread              kernel                       tracer (this module, one thread)
//!  touches a page  --- fault --> userfaultfd of the space --> node = RuleState::next(thread, CPU)   `placer`
//!   (waits)                      <---- UFFDIO_COPY of zeros --- set_mempolicy(preferred node)
//!  mmap, brk, mremap ----------> tracepoint sys_exit -------> SIGWINCH: stops, registers the range  `address_space`
//!  rt_sigprocmask -------------> tracepoint sys_exit -------> unblocks SIGWINCH again               `tracer`
//!  fork, clone, exec ----------> ptrace event --------------> new thread; new space: inject         `inject`
//!                                                             userfaultfd(), take it by pidfd_getfd
//! ```
//!
//! Invariants: a thread does not run before its address space has its userfaultfd or is counted as `unwatched`, nor between mapping
//! memory and its registration; every page that a rule chose a node for is counted once, in `placed` or `left`; a thread's state is
//! stepped once a fault, in the order of its faults. Descriptors are this process's alone: if it dies, the kernel ends tracing and
//! supplies pages itself, and the program goes on.
//!
//! Why so: without the injected call the program would have to be changed or preloaded, and statically linked ones would be left
//! out. The tracepoint's signal stops a thread at three system calls; ptrace's own system call stops would do so at every one.
//! Other signals may come before it or in its place, so a thread's last system call is looked at whichever it stops for. Copying
//! zeros (and not UFFDIO_ZEROPAGE, which maps the shared zero page) takes a page under the calling thread's memory policy, which
//! is how the node is chosen.
//!
//! docs/live.md says what this can do and what not.

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

/// A rule that is carried out page by page.
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

/// How many of a program's pages were placed, and by whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlacementCounts {
    /// Pages placed on each of the machine's nodes, in the system's numbers.
    pub placed: Vec<(NodeId, u64)>,
    /// Anonymous pages that the kernel had to place, because a node had no memory or the page could not be supplied.
    pub left: u64,
    /// All other faults: of the stack, of files, and of pages copied after a fork.
    pub others: u64,
    /// Programs that were started and not watched: of another architecture, sandboxed, or not allowed.
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
    /// A rule in the numbers of `machine`, whose nodes are those of `system` that have memory, in order. The seed matters to random
    /// orders alone.
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

    /// Whether the faulting CPU matters, even if all nodes have free memory.
    fn asks_for_cpu(&self) -> bool {
        let several = self.rule.groups.iter().any(|group| group.nodes.len() > 1);
        self.rule.order == GroupOrder::CycleFromOwn || (self.rule.within == Within::Nearest && several)
    }
}

//! Resolves faults with pages on the nodes chosen by their threads' rule states.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use memtide_core::policy::{FirstTouch, RuleState};
use memtide_core::{NodeId, PageSize, ThreadId, Vpn};
use perf_event::Counter;

use super::Exact;
use super::address_space::AddressSpace;
use super::free_memory::NodeMemory;
use crate::placement::stat;
use crate::sys::trace::Tid;
use crate::sys::userfaultfd::{PAGE, PageFault};
use crate::sys::{self, Mode};

/// Faults resolved per address space before the next one's turn.
const FAULTS_PER_TURN: usize = 64;

/// Signals about a thread's system calls, sent while these descriptors are open.
#[derive(Debug)]
pub struct SyscallSignals {
    /// To the thread itself, after it has mapped memory: it stops.
    pub _maps: Counter,
    /// To the tracer, after it has changed its signal mask.
    pub masks: Counter,
}

/// A thread of the program.
#[derive(Debug)]
pub struct Thread {
    pub number: ThreadId,
    pub state: RuleState,
    /// `None` if its pages are left to the kernel.
    pub space: Option<Rc<AddressSpace>>,
    /// Its file /proc/TID/task/TID/stat: for that thread alone, which the kernel formats faster.
    pub stat: File,
    /// Whether it has run yet.
    pub has_run: bool,
    pub watch: Option<SyscallSignals>,
}

/// Places pages by a rule.
#[derive(Debug)]
pub struct Placer {
    pub exact: Exact,
    pub threads: HashMap<Tid, Thread>,
    /// Pages placed on each of the machine's nodes.
    pub placed: Vec<u64>,
    /// Pages left to the kernel.
    pub left: u64,
    free_memory: NodeMemory,
    /// The preferred node in the calling thread's memory policy.
    policy: Option<NodeId>,
}

impl Placer {
    pub fn new(exact: Exact) -> Placer {
        Placer {
            threads: HashMap::new(),
            placed: vec![0; exact.nodes.len()],
            left: 0,
            free_memory: NodeMemory::new(&exact.nodes),
            policy: None,
            exact,
        }
    }

    /// Resolves the pending faults of an address space.
    pub fn resolve(&mut self, space: &AddressSpace) -> io::Result<()> {
        // One at a time: threads that touch the same page are one fault, as in the kernel.
        for _ in 0..FAULTS_PER_TURN {
            let Some(fault) = space.userfaultfd.next()? else { break };
            self.place(space, fault)?;
        }
        Ok(())
    }

    fn place(&mut self, space: &AddressSpace, fault: PageFault) -> io::Result<()> {
        debug_assert!(fault.page.is_multiple_of(PAGE), "a fault is of a whole page");
        let due = self.node_of(fault);
        let node = due.unwrap_or_else(|| self.fallback_node());
        if self.policy != Some(node) {
            sys::set_memory_policy(Mode::Preferred, &[self.exact.nodes[node.index()]])?;
            self.policy = Some(node);
        }
        match space.userfaultfd.resolve(fault.page).map_err(|error| error.raw_os_error()) {
            Ok(()) => {
                self.free_memory.take(node);
                let count = if due.is_some() { &mut self.placed[node.index()] } else { &mut self.left };
                *count += 1;
                Ok(())
            }
            Err(Some(libc::EEXIST)) => space.userfaultfd.wake(fault.page),
            Err(Some(libc::ESRCH)) => Ok(()),
            Err(_) => self.leave_to_kernel(space, fault),
        }
    }

    /// The machine's number of the node for a page; `None` if its thread is unknown, or the rule's nodes are
    /// full.
    fn node_of(&mut self, fault: PageFault) -> Option<NodeId> {
        let thread = self.threads.get_mut(&fault.tid)?;
        let exact = &self.exact;
        let matters = exact.cpus.len() > 1 && (exact.needs_cpu() || self.free_memory.any_full());
        let cpu = matters.then(|| cpu_of(&thread.stat).and_then(|cpu| exact.cpus.get(cpu).copied()));
        let cpu = cpu.flatten().unwrap_or_default();
        let page = Vpn(fault.page / PAGE);
        let touch = FirstTouch { thread: thread.number, cpu, page, size: PageSize::Base };
        thread.state.next(&exact.rule, &exact.order, &touch, &self.free_memory)
    }

    /// A preference: if the node is full, the kernel uses the nearest that is not.
    fn fallback_node(&self) -> NodeId {
        self.exact.rule.groups[0].nodes[0]
    }

    fn leave_to_kernel(&mut self, space: &AddressSpace, fault: PageFault) -> io::Result<()> {
        self.left += 1;
        // If it was unmapped in the meantime, no thread waits for it.
        let _ = space.userfaultfd.unregister(fault.page);
        let _ = space.userfaultfd.wake(fault.page);
        Ok(())
    }
}

/// The CPU that a thread last ran on, by the system's number: field 39 of its stat.
fn cpu_of(file: &File) -> Option<usize> {
    let mut bytes = [0; 1024];
    let len = file.read_at(&mut bytes, 0).ok()?;
    Some(stat::field(&String::from_utf8_lossy(&bytes[..len]), 39)? as usize)
}

//! Pages put where their threads' states say.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use memtide_core::policy::{Fault, RuleState};
use memtide_core::{NodeId, PageSize, ThreadId, Vpn};

use super::Exact;
use super::room::FreePages;
use super::space::Space;
use crate::placement::stat;
use crate::sys::missing::{Missing, PAGE};
use crate::sys::trace::Tid;
use crate::sys::{self, Mode};

/// Pages supplied before others have their turn.
const AT_ONCE: usize = 64;

/// What tells of a thread's system calls.
#[derive(Debug)]
pub struct Watch {
    /// Has it stopped when it has mapped memory.
    pub _maps: OwnedFd,
    /// Signals that it has chosen which signals it gets.
    pub masks: OwnedFd,
}

/// A thread of the program.
#[derive(Debug)]
pub struct Thread {
    pub number: ThreadId,
    pub state: RuleState,
    /// None if its pages are left to the kernel.
    pub space: Option<Rc<Space>>,
    /// Its file /proc/TID/task/TID/stat: that of the thread alone, which the kernel writes sooner.
    pub stat: File,
    /// Whether it has run yet.
    pub began: bool,
    pub watch: Option<Watch>,
}

/// Puts pages where a rule says.
#[derive(Debug)]
pub struct Placer {
    pub exact: Exact,
    pub threads: HashMap<Tid, Thread>,
    /// Pages placed on each node of the machine.
    pub placed: Vec<u64>,
    /// Pages left to the kernel.
    pub left: u64,
    room: FreePages,
    /// Where this thread's memory is taken from.
    policy: Option<NodeId>,
}

impl Placer {
    pub fn new(exact: Exact) -> Placer {
        Placer {
            threads: HashMap::new(),
            placed: vec![0; exact.nodes.len()],
            left: 0,
            room: FreePages::new(&exact.nodes),
            policy: None,
            exact,
        }
    }

    /// Supplies pages that threads of an address space wait for.
    pub fn supply(&mut self, space: &Space) -> io::Result<()> {
        // One at a time: threads that touch the same page are one fault, as they would be in the kernel.
        for _ in 0..AT_ONCE {
            let Some(missing) = space.missing.next()? else { break };
            self.place(space, missing)?;
        }
        Ok(())
    }

    fn place(&mut self, space: &Space, missing: Missing) -> io::Result<()> {
        let due = self.node_of(missing);
        let node = due.unwrap_or_else(|| self.any_node());
        if self.policy != Some(node) {
            sys::set_memory_policy(Mode::Preferred, &[self.exact.nodes[node.index()]])?;
            self.policy = Some(node);
        }
        match space.missing.supply(missing.page).map_err(|error| error.raw_os_error()) {
            Ok(()) => {
                self.room.take(node);
                let count = if due.is_some() { &mut self.placed[node.index()] } else { &mut self.left };
                *count += 1;
                Ok(())
            }
            Err(Some(libc::EEXIST)) => space.missing.wake(missing.page),
            Err(Some(libc::ESRCH)) => Ok(()),
            Err(_) => self.leave(space, missing),
        }
    }

    /// The machine's number of the node that a page goes to; none if nobody knows its thread, or the rule's nodes are full.
    fn node_of(&mut self, missing: Missing) -> Option<NodeId> {
        let thread = self.threads.get_mut(&missing.tid)?;
        let exact = &self.exact;
        let matters = exact.cpus.len() > 1 && (exact.asks_for_cpu() || self.room.is_short());
        let cpu = matters.then(|| cpu_of(&thread.stat).and_then(|cpu| exact.cpus.get(cpu).copied()));
        let cpu = cpu.flatten().unwrap_or_default();
        let page = Vpn(missing.page / PAGE);
        let fault = Fault { thread: thread.number, cpu, page, size: PageSize::Base };
        thread.state.next(&exact.rule, &exact.order, &fault, &self.room)
    }

    /// One of the rule's nodes: if it is full, the kernel takes the nearest that is not.
    fn any_node(&self) -> NodeId {
        self.exact.rule.groups[0].nodes[0]
    }

    fn leave(&mut self, space: &Space, missing: Missing) -> io::Result<()> {
        self.left += 1;
        // It may have been unmapped meanwhile, and then nobody waits for it.
        let _ = space.missing.give_up(missing.page);
        let _ = space.missing.wake(missing.page);
        Ok(())
    }
}

/// The CPU that a thread ran on last, by the system's number: field 39 of its stat.
fn cpu_of(file: &File) -> Option<usize> {
    let mut bytes = [0; 1024];
    let len = file.read_at(&mut bytes, 0).ok()?;
    Some(stat::field(&String::from_utf8_lossy(&bytes[..len]), 39)? as usize)
}

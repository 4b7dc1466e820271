//! Programs: what threads execute, as streams of memory accesses and the events between them.
//!
//! A recorded trace, a workload that really computes and a synthetic profile are all a [`Program`].

use crate::ids::{CpuId, ThreadId};
use crate::units::{PageSize, VirtAddr};

/// One access of one thread to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Where its first byte lies.
    pub address: VirtAddr,
    /// Instructions the thread retired since its previous access, the accessing one included: 0 for a second
    /// access of the same instruction.
    pub instructions: u32,
    /// How many of the thread's accesses back the load lies whose value made this address (1 = the one just
    /// before); 0 if the address depends on no load that could still be under way.
    pub producer: u32,
    /// Bytes accessed, at least 1. It may cross a line or a page.
    pub size: u16,
    /// A store if true, else a load. A read-modify-write is a load and then a store.
    pub write: bool,
}

/// What a thread does after the accesses of a [`Batch`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Then {
    /// More accesses follow.
    #[default]
    Continue,
    /// Retires this many instructions that access no memory.
    Work(u64),
    /// Maps memory: pages come to be at first touch.
    Map(Mapping),
    /// Unmaps every page that lies wholly within these bytes.
    Unmap {
        /// First byte; a multiple of 4 KiB.
        start: VirtAddr,
        /// Length in bytes.
        bytes: u64,
    },
    /// Waits until every live thread of the program has come to its barrier.
    Barrier,
    /// Starts a thread in the same address space.
    Spawn(ThreadId),
    /// Starts a thread in a new address space that has the same mappings.
    Fork(ThreadId),
    /// Drops the whole address space.
    Exec,
    /// Goes on on this CPU (taken modulo the CPUs that the machine has).
    OnCpu(CpuId),
    /// Has ended; it is not asked again.
    End,
}

/// Memory that a thread maps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First byte; a multiple of the page size.
    pub start: VirtAddr,
    /// Length in bytes, at least 1.
    pub bytes: u64,
    /// The size of its pages.
    pub page: PageSize,
    /// What it is, for reports: an array's or a file's name.
    pub name: String,
}

/// A run of a thread's accesses and what comes after it.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// In program order; may be empty.
    pub accesses: Vec<Access>,
    /// What follows the last of them.
    pub then: Then,
}

impl Batch {
    /// Makes the batch empty, keeping its memory.
    pub fn clear(&mut self) {
        self.accesses.clear();
        self.then = Then::Continue;
    }
}

/// Why a program cannot go on.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ProgramError(pub String);

/// Something to run: threads, each a stream of accesses.
///
/// What a thread does must not depend on how fast another one runs, except through [`Then::Barrier`]: then
/// every policy and every machine sees the same program.
pub trait Program {
    /// How many threads there are in all. Thread 0 runs from the start; the others begin when one of them says
    /// [`Then::Spawn`] or [`Then::Fork`].
    fn threads(&self) -> usize;

    /// Replaces `batch` by the thread's next accesses (a few thousand at most). After [`Then::End`] it is not
    /// called again for that thread.
    ///
    /// # Errors
    /// When the source cannot be read on, such as a damaged trace.
    fn next(&mut self, thread: ThreadId, batch: &mut Batch) -> Result<(), ProgramError>;

    /// The part of the program that has been handed out, from 0 to 1, if it is known; for progress bars.
    fn progress(&self) -> Option<f64> {
        None
    }
}

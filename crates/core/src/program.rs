//! Programs: threads as streams of memory accesses and events.
//!
//! Recorded traces, workloads with real computation and synthetic profiles are all [`Program`]s.

use crate::ids::{CpuId, ThreadId};
use crate::units::{PageSize, VirtAddr};

/// A memory access of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Address of the first byte.
    pub address: VirtAddr,
    /// Instructions that the thread retired since its previous access, including this one: 0 for a second
    /// access of the same instruction.
    pub instructions: u32,
    /// Distance in the thread's accesses to the load whose value this address depends on (1 = the previous
    /// access); 0 if it depends on no load that could still be in flight.
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
    /// Retires this many instructions without memory accesses.
    Work(u64),
    /// Maps memory: pages are placed at first touch.
    Map(Mapping),
    /// Unmaps every page wholly within these bytes.
    Unmap {
        /// First byte; a multiple of 4 KiB.
        start: VirtAddr,
        /// Length in bytes.
        bytes: u64,
    },
    /// Waits until every live thread of the program has arrived at its barrier.
    Barrier,
    /// Starts a thread in the same address space.
    Spawn(ThreadId),
    /// Starts a thread in a new address space that has the same mappings.
    Fork(ThreadId),
    /// Replaces the address space by an empty one.
    Exec,
    /// Continues on this CPU (modulo the number of CPUs).
    OnCpu(CpuId),
    /// Has ended; [`Program::next`] is not called again.
    End,
}

/// Memory that a thread maps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First byte; a multiple of the page size.
    pub start: VirtAddr,
    /// Length in bytes, at least 1.
    pub bytes: u64,
    /// Size of its pages.
    pub page: PageSize,
    /// Name for reports: an array's or a file's.
    pub name: String,
}

/// A run of a thread's accesses and what follows.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// In program order; may be empty.
    pub accesses: Vec<Access>,
    /// What follows the last access.
    pub then: Then,
}

impl Batch {
    /// Empties the batch, keeping its memory.
    pub fn clear(&mut self) {
        self.accesses.clear();
        self.then = Then::Continue;
    }
}

/// Why a program cannot continue.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ProgramError(pub String);

/// A program: threads, each a stream of accesses.
///
/// A thread's stream must not depend on the speed of other threads, except through [`Then::Barrier`]: every
/// policy and every machine sees the same program.
pub trait Program {
    /// Total number of threads. Thread 0 runs from the start; another begins at a [`Then::Spawn`] or
    /// [`Then::Fork`].
    fn threads(&self) -> usize;

    /// Replaces `batch` by the thread's next accesses (a few thousand at most). Not called again for a thread
    /// after [`Then::End`].
    ///
    /// # Errors
    /// If the source cannot be read further, such as a damaged trace.
    fn next(&mut self, thread: ThreadId, batch: &mut Batch) -> Result<(), ProgramError>;

    /// Share of the program that was returned so far, from 0 to 1, if known; for progress bars.
    fn progress(&self) -> Option<f64> {
        None
    }
}

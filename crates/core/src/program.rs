//! Programs: threads as streams of memory accesses and events.
//!
//! Recorded traces, workloads with real computation and synthetic profiles are all [`Program`]s.

use crate::ids::{CpuId, ThreadId};
use crate::policy::MessageKind;
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
    /// Of a store: whether it is non-temporal (x86's `movnt*`). It goes past the caches, by way of a
    /// write-combining buffer, without a read of its line. False for a load.
    pub non_temporal: bool,
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
    /// Sends a message about its memory.
    Message(MessageKind),
    /// Makes a mark, which holds for the whole program.
    Mark(Mark),
    /// Has ended; [`Program::next`] is not called again.
    End,
}

/// A mark: a program's statement about what it does from here on. It changes nothing but what is counted.
///
/// `memtide mark` and `crates/lab-protocol` make the same ones on a live system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Warm-up begins: no effect within the region of interest.
    WarmUp,
    /// The region of interest begins.
    Begin,
    /// The region of interest ends. It may begin again: its counts are the sum.
    End,
}

/// What a program does at a time, by its marks. Ordered by how much a stage counts: a run of several programs
/// is in the least of its programs' stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Before the first mark: creates its data.
    Initialisation,
    /// Between and after regions of interest.
    Outside,
    /// Warms up caches and page placement.
    WarmUp,
    /// The region of interest, which answers are about.
    Region,
}

impl Stage {
    /// All stages, in their order.
    pub const ALL: [Stage; 4] = [Stage::Initialisation, Stage::Outside, Stage::WarmUp, Stage::Region];

    /// The stage after a mark. As in the lab, a mark that does not fit changes nothing: a second
    /// [`Mark::Begin`] or a [`Mark::WarmUp`] within the region, or a [`Mark::End`] outside.
    pub fn after(self, mark: Mark) -> Stage {
        match (self, mark) {
            (Stage::Region, Mark::End) => Stage::Outside,
            (Stage::Region, _) | (_, Mark::Begin) => Stage::Region,
            (_, Mark::WarmUp) => Stage::WarmUp,
            (_, Mark::End) => self,
        }
    }

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Initialisation => "initialisation",
            Stage::Outside => "outside",
            Stage::WarmUp => "warm-up",
            Stage::Region => "region",
        }
    }
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

    /// Whether the program makes a [`Mark::Begin`]. If not, all of it is the region of interest, and its
    /// other marks do not count.
    fn has_region(&self) -> bool {
        false
    }

    /// Share of the program that was returned so far, from 0 to 1, if known; for progress bars.
    fn progress(&self) -> Option<f64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_that_does_not_fit_changes_nothing() {
        use Stage::{Initialisation, Outside, Region, WarmUp};
        for (stage, after) in [
            (Initialisation, [WarmUp, Region, Initialisation]),
            (WarmUp, [WarmUp, Region, WarmUp]),
            (Region, [Region, Region, Outside]),
            (Outside, [WarmUp, Region, Outside]),
        ] {
            let marks = [Mark::WarmUp, Mark::Begin, Mark::End];
            assert_eq!(marks.map(|mark| stage.after(mark)), after, "{stage:?}");
        }
    }
}

//! The private interface between the recorder plugin, which runs inside QEMU, and `memtide-trace`, which
//! writes Parquet.
//!
//! Both share a directory with a [`control`] page and one [`stream`] of [`Record`]s per thread. The plugin
//! maps the files, so they contain everything that the recorded program did, however it ends.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]
#![warn(missing_docs)]

pub mod control;
pub mod stream;

pub use stream::{Decoder, Encoder};

/// Name of the control page's file within the directory.
pub const CONTROL_FILE: &str = "control";

/// Name of a file within the directory that the reader keeps locked (`flock`) while it runs. Without that
/// lock the plugin stops recording.
pub const LOCK_FILE: &str = "lock";

/// Name of the file of a stream. Streams are numbered from 0, in the order in which threads start.
pub fn stream_file(number: u64) -> String {
    format!("stream-{number}")
}

/// An event of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// First record of a stream: its thread.
    Start {
        /// Process id.
        pid: u32,
        /// Thread id, unique among live threads.
        tid: u32,
    },
    /// Accessed memory.
    Access(RawAccess),
    /// Start of an epoch: the following records belong to it.
    Epoch(u64),
    /// Mapped memory.
    Map {
        /// First byte.
        start: u64,
        /// Length in bytes.
        bytes: u64,
        /// A file's name, `heap`, `anonymous`, ...
        name: String,
    },
    /// Unmapped memory.
    Unmap {
        /// First byte.
        start: u64,
        /// Length in bytes.
        bytes: u64,
    },
    /// Started a thread in the same address space.
    Spawn {
        /// The new thread's id.
        tid: u32,
    },
    /// Started a process.
    Fork {
        /// The new process's id, which is also its first thread's.
        pid: u32,
    },
    /// Is about to execute another program, which is not recorded.
    Exec,
    /// Failed to execute another program.
    ExecFailed,
    /// Continued on this CPU of the recording machine.
    Cpu(u32),
    /// Made a mark.
    Mark(Mark),
}

/// A mark, with the number of its command in crate `lab-protocol`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mark {
    /// The region of interest begins.
    Begin = 1,
    /// The region of interest ends.
    End = 2,
    /// Warm-up begins.
    WarmUp = 4,
}

impl Mark {
    /// The mark with this number.
    pub fn from_number(number: u64) -> Option<Mark> {
        [Mark::Begin, Mark::End, Mark::WarmUp].into_iter().find(|&mark| mark as u64 == number)
    }
}

/// One access to memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawAccess {
    /// First byte.
    pub address: u64,
    /// Address of the instruction.
    pub pc: u64,
    /// Instructions retired since the thread's previous access, this one's included.
    pub instructions: u64,
    /// Distance in the thread's accesses to the load whose value the address depends on; 0 for none.
    pub producer: u32,
    /// Size in bytes.
    pub size: u16,
    /// Whether it is a store.
    pub write: bool,
    /// Of a store: whether it is non-temporal.
    pub non_temporal: bool,
}

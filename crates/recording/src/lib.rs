//! The private hand-over from the recorder plugin, which runs inside QEMU, to `memtide-trace`, which writes Parquet.
//!
//! Both share a directory: a [`control`] page, and one [`stream`] of [`Record`]s a thread. The files are mapped by the
//! plugin, so whatever ends the recorded program, all that it did until then is in them.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]
#![warn(missing_docs)]

pub mod control;
pub mod stream;

pub use stream::{Decoder, Encoder};

/// Name of the control page's file within the directory.
pub const CONTROL_FILE: &str = "control";

/// Name of a file within the directory that the reader keeps locked (`flock`) as long as it lives. Without
/// that lock the plugin stops recording.
pub const LOCK_FILE: &str = "lock";

/// Name of the file that holds the stream with this number. Numbers start at 0, in the order in which threads start.
pub fn stream_file(number: u64) -> String {
    format!("stream-{number}")
}

/// One thing that a thread did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The first of a stream: whose it is.
    Start {
        /// Process id.
        pid: u32,
        /// Thread id, unique among the threads alive.
        tid: u32,
    },
    /// Accesses memory.
    Access(RawAccess),
    /// What follows happened in this epoch.
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
    /// Is about to become another program, which is not recorded.
    Exec,
    /// Did not become another program after all.
    ExecFailed,
    /// Went on on this CPU of the recording machine.
    Cpu(u32),
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
    /// How many of the thread's accesses back the load lies whose value made the address; 0 for none.
    pub producer: u32,
    /// Bytes.
    pub size: u16,
    /// A store if true.
    pub write: bool,
}

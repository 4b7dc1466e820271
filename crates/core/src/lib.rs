//! memtide's vocabulary and contract 2: units, ids, machines, programs, the interface between policies and
//! hosts, the epoch loop, and the conformance suite that every host must pass.
//!
//! This crate does no I/O, reads no clock, and depends on neither the simulator nor a real host.

pub mod conformance;
pub mod epoch;
mod file_error;
mod ids;
pub mod machine;
pub mod params;
pub mod policy;
mod program;
pub mod suggest;
mod units;

pub use file_error::FileError;
pub use ids::{ActionId, CacheId, CpuId, InitiatorId, NodeId, TaskId, ThreadId, TierId};
pub use machine::Machine;
pub use program::{Access, Batch, Mapping, Mark, Program, ProgramError, Stage, Then};
pub use units::{Bandwidth, HUGE_PAGE_BYTES, LINE_BYTES, PAGE_BYTES, PageSize, Time, VirtAddr, Vpn};

//! memtide's vocabulary and contracts: units, ids, machines, programs, what policies see and say, their parameters,
//! and the epoch loop.
//!
//! This crate does no I/O, reads no clock and knows neither the simulator nor a real host.

#![cfg_attr(
    not(test),
    warn(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods, clippy::disallowed_types)
)]

pub mod epoch;
mod file_error;
mod ids;
pub mod machine;
pub mod params;
pub mod policy;
mod program;
mod units;

pub use file_error::FileError;
pub use ids::{CpuId, InitiatorId, NodeId, TaskId, ThreadId, TierId};
pub use machine::Machine;
pub use program::{Access, Batch, Mapping, Program, ProgramError, Then};
pub use units::{Bandwidth, HUGE_PAGE_BYTES, LINE_BYTES, PAGE_BYTES, PageSize, Time, VirtAddr, Vpn};

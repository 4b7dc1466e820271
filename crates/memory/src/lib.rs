//! memtide's timing model of a memory system.
//!
//! This crate does no I/O and reads no clock; time is [`memtide_core::Time`].

#![cfg_attr(
    not(test),
    warn(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods, clippy::disallowed_types)
)]

mod cache;
pub mod channel;
mod combining;
mod counters;
pub mod dram;
pub mod fixed;
mod frame_map;
mod link;
mod model;
pub mod node;
mod prefetch;
mod private;
pub mod probe;
mod slices;
mod tlb;
mod uncore;
mod utility;
mod walker;
mod write_stream;

pub use cache::{Access, Cache, Victim};
pub use combining::{Combined, WriteBuffer, WriteCombining};
pub use counters::{BankCounters, Counters, EnergyUse};
pub use frame_map::FrameMap;
pub use model::model;
pub use prefetch::{Ahead, Prefetcher};
pub use private::PrivateCaches;
pub use tlb::{PageKey, Tlb, Translation};
pub use uncore::{Class, IdealLines, PageUse, Requested, Uncore, UncoreCounts, Utility, Waiter};
pub use utility::{SampledSets, UtilityMonitor};
pub use walker::{PageWalkers, Walk};
pub use write_stream::WriteStream;

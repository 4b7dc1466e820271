//! memtide's timing model of a memory system.
//!
//! This crate does no I/O and reads no clock; time is [`memtide_core::Time`].

pub mod channel;
pub mod given;
pub mod node;
pub mod probe;

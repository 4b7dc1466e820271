//! Protocols between the lab's parts.
//!
//! | between | what | module | version |
//! | --- | --- | --- | --- |
//! | the lab and its agent (the guest's init) | a task, messages | [`agent`] | [`version::AGENT_PROTOCOL`] |
//! | the lab and its clock plugin | configuration, results | [`clock`] | [`version::CLOCK_PROTOCOL`] |
//! | the clock plugin and guest programs | live counters | [`counters`] | [`version::COUNTERS_LAYOUT`] |
//! | the clock plugin and guest programs | sampled accesses | [`samples`] | [`version::COUNTERS_LAYOUT`] |
//! | guest programs and the clock plugin | marks | [`mark`] | none: an unknown mark does nothing |
//!
//! Depends on neither the timing model nor the lab: readers of counters and users of marks need this crate
//! only.

pub mod agent;
pub mod clock;
pub mod counters;
mod counts;
mod json;
pub mod mark;
mod process;
pub mod samples;
pub mod version;

pub use counts::{Counts, NodeCounts};
pub use json::ProtocolError;
pub use process::{Process, Who, between};

//! The daemon's journal: a policy's input and plan in each epoch, for replay.
//!
//! A file of zstd frames, each with one record as a line of JSON, so that `zstdcat` shows it. A *part* begins
//! with a head, with everything needed to restore the policy as it was then; its epochs follow. A file holds
//! any number of parts.

mod faults;
mod reader;
mod record;
pub mod replay;
mod runs;
pub mod statuses;
#[cfg(test)]
mod tests;
mod writer;

pub use record::Head;
pub use runs::{MoveOutcome, Run, move_outcomes};
pub use writer::Journal;

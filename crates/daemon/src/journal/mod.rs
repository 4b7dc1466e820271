//! The daemon's journal: what a policy got in each epoch and what it planned, so that it can be asked again.
//!
//! A file of zstd frames, each one record as a line of JSON, so that `zstdcat` shows it. A *part* begins with a head, which has all
//! that is needed to make the policy as it was then; epochs follow. A file holds any number of parts.

mod faults;
mod reader;
mod record;
pub mod replay;
mod runs;
#[cfg(test)]
mod tests;
mod writer;

pub use record::Head;
pub use runs::{MoveOutcome, Run, move_outcomes};
pub use writer::Journal;

//! memtide's experiments: what to run to reproduce a figure or table of a paper, what the paper reports of
//! it, and whether the results agree.
//!
//! An [`Experiment`] has two parts. Its [`Plan`] says what to run and is all that a run gets; its claims (the
//! paper's numbers and statements) are compared with the results afterwards, by [`Experiment::judge`].

mod bundled;
mod experiment;
mod formula;
mod judge;
mod plan;
mod results;

pub use bundled::{papers, select, text};
pub use experiment::{Experiment, Figure, Kind, Number, Shape};
pub use judge::{Judged, JudgedNumber, JudgedShape, Verdict};
pub use plan::{Case, Named, Plan, Program, Variant};
pub use results::{Results, Row};

/// Why an experiment cannot be judged.
#[derive(Debug, thiserror::Error)]
#[error("{experiment}: {of}: {message}")]
pub struct JudgeError {
    /// The experiment's id.
    pub experiment: String,
    /// The number, shape or figure.
    pub of: String,
    /// What its formula did.
    pub message: String,
}

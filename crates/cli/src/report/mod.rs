//! The report of a comparison: one HTML file that needs no network.

use std::path::Path;

use crate::answer::Answer;
use crate::comparison::Comparison;
use crate::failure::Failure;
use crate::runs::Runs;

/// Writes it.
pub fn write(_path: &Path, _runs: &Runs, _comparison: &Comparison, _answer: &Answer) -> Result<(), Failure> {
    Ok(())
}

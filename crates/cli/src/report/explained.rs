//! The section of a comparison that says where the time of its best and worst run went.

use memtide_sim::Comparison;

use super::page::text_section;
use crate::tables::explanation::{explained, table};

/// A table of the parts of the threads' time, and a paragraph per run.
pub fn section(comparison: &Comparison) -> String {
    let runs = explained(comparison);
    let mut parts = table(false);
    parts.rows = runs.iter().flat_map(|run| run.rows(true)).collect();
    let paragraphs: Vec<String> = runs.iter().map(|run| run.sentences().join(" ")).collect();
    text_section("Where the time went", &parts, &paragraphs)
}

//! The bound of a comparison, in tables and sentences.

use memtide_sim::{Bound, Comparison, Unbounded};
use serde_json::{Value, json};

use super::simulated::Figure;
use crate::output::Cell;

/// Column of a run's time over the bound.
pub fn over(comparison: &Comparison, index: usize) -> Figure {
    let over = comparison.over_bound(index).map_or(Cell::Absent, |over| Cell::Real(over, 2));
    ("over_bound".to_owned(), "time over bound".to_owned(), over)
}

/// A line on the bound, or on why there is none.
pub fn note(bound: Result<Bound, Unbounded>) -> String {
    match bound {
        Ok(bound) => format!(
            "bound: {} ms: no placement or migration of this program can be faster ({}).",
            Cell::Real(bound.time_ms(), 3).display(),
            match bound.bandwidth_ms > bound.latency_ms {
                true => "its lines at the bandwidth of all nodes together",
                false => "each miss at the least idle latency",
            }
        ),
        Err(why) => format!("no bound: {why}."),
    }
}

/// The bound in JSON, of a document's field `bound`.
pub fn json(bound: Option<Bound>) -> Value {
    bound.map_or(Value::Null, |bound| {
        json!({
            "time_ms": bound.time_ms(),
            "latency_ms": bound.latency_ms,
            "bandwidth_ms": bound.bandwidth_ms,
            "lines": bound.lines,
        })
    })
}

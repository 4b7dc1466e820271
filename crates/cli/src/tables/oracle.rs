//! What is to say of the oracle.

use memtide_sim::Comparison;

use crate::output::Cell;

/// Ratios of times that two decimals do not tell from 1.
const ALIKE: f64 = 0.005;

/// A line on the oracle's run, if there was one.
pub fn note(comparison: &Comparison) -> Option<String> {
    let oracle = comparison.oracle.as_ref()?;
    let best = comparison.best();
    let times = comparison.reports[best].time_ms / oracle.time_ms;
    let name = &comparison.names[best];
    let against = if (times - 1.0).abs() < ALIKE {
        format!("it is as fast as {name}, the best policy")
    } else if times < 1.0 {
        format!("{name}, the best policy, is {} times as fast", times_of(1.0 / times))
    } else {
        format!("it is {} times as fast as {name}, the best policy", times_of(times))
    };
    let moved = match oracle.pages.migrated {
        0 => "no pages".to_owned(),
        1 => "1 page".to_owned(),
        pages => format!("{pages} pages"),
    };
    Some(format!(
        "oracle: the fastest of up to {} plans from each page's reads in the region, which were counted \
         before; it moves {moved}; {against}.",
        memtide_sim::ORACLE_PLANS
    ))
}

fn times_of(times: f64) -> String {
    Cell::Real(times, 2).display()
}

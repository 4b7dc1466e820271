//! What is to say of the oracle.

use memtide_sim::Comparison;

use crate::output::Cell;

/// A line on the oracle's run, if there was one.
pub fn note(comparison: &Comparison) -> Option<String> {
    let oracle = comparison.oracle.as_ref()?;
    let best = comparison.best();
    let times = comparison.reports[best].time_ms / oracle.time_ms;
    let against = match times < 1.0 {
        true => {
            format!("{}, the best policy, is {} times as fast", comparison.names[best], times_of(1.0 / times))
        }
        false => {
            format!("it is {} times as fast as {}, the best policy", times_of(times), comparison.names[best])
        }
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

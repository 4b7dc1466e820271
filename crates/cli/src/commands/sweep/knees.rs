//! Between which values of a figure more or less of it gains nothing.

use std::ops::RangeInclusive;

use super::journal::Known;
use super::plan::Plan;
use super::results::groups;
use crate::output::{Cell, Table};

/// A time up to this many times the shortest counts as good as it.
const AS_GOOD: f64 = 1.05;

/// Name of the table.
pub const KNEES: &str = "knees";

/// From which value of the one swept figure, and up to which, each policy's time is as good as its shortest;
/// nothing for several figures.
pub fn knees(plan: &Plan, known: &Known) -> Option<Table> {
    let [axis] = &plan.axes[..] else { return None };
    let time = known.time()?;
    // Else they are the values as given.
    let has_unit = axis.has_number() && axis.has_given();
    let mut table = Table::new(KNEES, &[("policy", "policy"), ("shortest_ms", "shortest, ms")]);
    for (key, end) in [("good_from", "good from"), ("good_up_to", "good up to")] {
        table.column(key, format!("{}, {end}", axis.figure.stem));
        if has_unit {
            table.column(format!("{key}_number"), axis.title());
        }
    }
    table.column("good_ms", "longest there, ms");
    let groups = groups(plan, known);
    for policy in &plan.policies {
        let of_policy = groups.iter().filter(|group| group.run.policy.name() == policy.name());
        let mut times_ms: Vec<(usize, f64)> = of_policy
            .map(|group| (group.run.point, group.interval(time).map_or(f64::INFINITY, |over| over.mean)))
            .collect();
        times_ms.sort_by(|(a, _), (b, _)| plan.by_value(*a, *b));
        let times: Vec<f64> = times_ms.iter().map(|(_, ms)| *ms).collect();
        let shortest_ms = times.iter().copied().fold(f64::INFINITY, f64::min);
        if shortest_ms.is_infinite() {
            continue;
        }
        let good = knee(&times);
        let mut row = vec![Cell::text(policy.name()), Cell::Real(shortest_ms, 3)];
        for end in [*good.start(), *good.end()] {
            let (point, _) = times_ms[end];
            row.push(Cell::text(plan.points[point].set[0].value()));
            if has_unit {
                row.push(plan.number(point, 0));
            }
        }
        row.push(Cell::Real(times[good].iter().copied().fold(0.0, f64::max), 3));
        table.rows.push(row);
    }
    Some(table)
}

/// What the table says.
pub fn note(plan: &Plan) -> String {
    let of = if plan.axes[0].has_number() { "lowest and highest" } else { "first and last" };
    let percent = (AS_GOOD - 1.0) * 100.0;
    format!(
        "Good from, up to: the {of} of the values in a row for which the time is within {percent:.0} % of \
         the policy's shortest."
    )
}

/// Indices of the times that are as good as the shortest: of those at the end, or else around the shortest.
fn knee(times: &[f64]) -> RangeInclusive<usize> {
    let by_time = |&a: &usize, &b: &usize| times[a].total_cmp(&times[b]);
    let shortest = (0..times.len()).min_by(by_time).unwrap_or_default();
    let is_good = |&index: &usize| times[index] <= AS_GOOD * times[shortest];
    let last = times.len().saturating_sub(1);
    let inside = if is_good(&last) { last } else { shortest };
    let from = (0..=inside).rev().take_while(is_good).last().unwrap_or(inside);
    let to = (inside..=last).take_while(is_good).last().unwrap_or(inside);
    from..=to
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knee_is_first_of_the_good_times_at_the_end() {
        assert_eq!(knee(&[9.0, 5.0, 4.1, 4.0, 4.2]), 2..=4);
        assert_eq!(knee(&[4.0, 9.0, 4.1]), 2..=2);
        assert_eq!(knee(&[4.0, 4.0]), 0..=1);
        assert_eq!(knee(&[f64::INFINITY, 4.0]), 1..=1, "a run that failed");
    }

    #[test]
    fn knee_is_last_of_the_good_times_where_less_is_better() {
        assert_eq!(knee(&[4.0, 4.1, 5.0, 9.0]), 0..=1);
        assert_eq!(knee(&[4.0, 9.0]), 0..=0);
        assert_eq!(knee(&[9.0, 4.1, 4.0, 9.0]), 1..=2, "between two values");
    }
}

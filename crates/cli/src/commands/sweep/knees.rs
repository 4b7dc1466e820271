//! From which value of a figure on more of it gains nothing.

use super::journal::Known;
use super::plan::Plan;
use super::results::groups;
use crate::output::{Cell, Table};

/// A time up to this many times the shortest counts as good as it.
const AS_GOOD: f64 = 1.05;

/// From which value of the one swept figure on each policy's time is as good as its shortest, and what that
/// means; nothing for several figures.
pub fn knees(plan: &Plan, known: &Known) -> Option<(Table, String)> {
    let [axis] = &plan.axes[..] else { return None };
    let time = known.time()?;
    let mut columns = vec![
        ("policy".to_owned(), "policy".to_owned()),
        ("shortest_ms".to_owned(), "shortest, ms".to_owned()),
        ("good_from".to_owned(), format!("{}, good from", axis.figure.stem)),
    ];
    // Else they are the values as given.
    let has_unit = axis.has_number() && axis.has_given();
    if has_unit {
        columns.push(("good_from_number".to_owned(), axis.title()));
    }
    columns.push(("good_ms".to_owned(), "time there, ms".to_owned()));
    let columns: Vec<(&str, &str)> =
        columns.iter().map(|(key, title)| (key.as_str(), title.as_str())).collect();
    let mut table = Table::new("knees", &columns);
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
        let good = knee(&times).map(|index| times_ms[index]);
        let of = |cell: &dyn Fn(usize, f64) -> Cell| good.map_or(Cell::Absent, |(point, ms)| cell(point, ms));
        let mut row = vec![Cell::text(policy.name()), Cell::Real(shortest_ms, 3)];
        row.push(of(&|point, _| Cell::text(plan.points[point].set[0].value())));
        if has_unit {
            row.push(of(&|point, _| plan.number(point, 0)));
        }
        row.push(of(&|_, ms| Cell::Real(ms, 3)));
        table.rows.push(row);
    }
    let note = format!(
        "Good from: the {} value from which on the time is within {:.0} % of the policy's shortest; -: it is \
         not at the {} value.",
        if axis.has_number() { "lowest" } else { "first" },
        (AS_GOOD - 1.0) * 100.0,
        if axis.has_number() { "highest" } else { "last" },
    );
    Some((table, note))
}

/// Index of the first time from which on all are as good as the shortest, if the last is.
fn knee(times: &[f64]) -> Option<usize> {
    let shortest = times.iter().copied().fold(f64::INFINITY, f64::min);
    let good_at_end = times.iter().rev().take_while(|&&time| time <= AS_GOOD * shortest).count();
    (good_at_end > 0).then(|| times.len() - good_at_end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knee_is_first_of_the_good_times_at_the_end() {
        assert_eq!(knee(&[9.0, 5.0, 4.1, 4.0, 4.2]), Some(2));
        assert_eq!(knee(&[4.0, 9.0, 4.1]), Some(2));
        assert_eq!(knee(&[4.0, 4.0]), Some(0));
        assert_eq!(knee(&[f64::INFINITY, 4.0]), Some(1), "a run that failed");
        assert_eq!(knee(&[4.0, 9.0]), None, "grows worse");
    }
}

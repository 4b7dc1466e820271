//! Programs that run together: their slow-downs, and what these amount to.

use memtide_sim::{Comparison, Report};

use super::simulated::Figure;
use crate::output::{Cell, Column, Table};

/// Columns of a run in a comparison; none unless its programs also ran alone.
pub fn of_run(comparison: &Comparison, index: usize) -> Vec<Figure> {
    let figures = [
        ("weighted_speedup", "weighted speed-up", comparison.weighted_speedup(index)),
        ("max_slowdown", "max. slow-down", comparison.max_slowdown(index)),
        ("fairness", "fairness", comparison.fairness(index)),
    ];
    if comparison.alone_ms.is_empty() {
        return Vec::new();
    }
    let cell = |value: Option<f64>| value.map_or(Cell::Absent, |value| Cell::Real(value, 2));
    figures.map(|(key, title, value)| (key.to_owned(), title.to_owned(), cell(value))).into()
}

/// Columns of a run's programs, in one row; none unless they also ran alone.
pub fn of_programs(comparison: &Comparison, index: usize) -> Vec<Figure> {
    let slowdowns = comparison.slowdowns(index);
    let programs = comparison.alone_ms.first().map_or(0, Vec::len);
    let levels = comparison.levels(index).into_iter().map(|level| {
        let key = format!("priority_{}_slowdown", level.priority);
        let title = format!("priority {}, mean slow-down", level.priority);
        (key, title, Cell::Real(level.slowdown_mean, 2))
    });
    let figure = |number: usize| {
        let slowdown = slowdowns.as_ref().map_or(Cell::Absent, |all| Cell::Real(all[number], 2));
        let number = number + 1;
        (format!("program_{number}_slowdown"), format!("program {number}, slow-down"), slowdown)
    };
    (0..programs).map(figure).chain(levels).collect()
}

/// A row per policy and service level; none unless programs have one, and also ran alone.
pub fn levels(comparison: &Comparison) -> Table {
    let columns = [
        ("policy", "policy"),
        ("priority", "priority"),
        ("programs", "programs"),
        ("slowdown", "mean slow-down"),
        ("max_slowdown", "max. slow-down"),
    ];
    let mut table = Table::new("levels", &columns).with_keys(2);
    for (index, name) in comparison.names.iter().enumerate() {
        table.rows.extend(comparison.levels(index).into_iter().map(|level| {
            vec![
                Cell::text(name),
                Cell::Whole(level.priority.into()),
                Cell::Whole(level.programs as u64),
                Cell::Real(level.slowdown_mean, 2),
                Cell::Real(level.slowdown_max, 2),
            ]
        }));
    }
    table
}

/// Place of the column of service levels in tables of programs.
const PRIORITY_COLUMN: usize = 3;

/// Adds a column of the programs' service levels to a table of programs, if any has one.
fn with_priorities(mut table: Table, comparison: &Comparison, programs: &[usize]) -> Table {
    let priorities = &comparison.priorities;
    if priorities.iter().all(Option::is_none) {
        return table;
    }
    table
        .columns
        .insert(PRIORITY_COLUMN, Column { key: "priority".to_owned(), title: "priority".to_owned() });
    for (row, &program) in table.rows.iter_mut().zip(programs) {
        let priority = priorities.get(program).copied().flatten();
        let cell = priority.map_or(Cell::Absent, |priority| Cell::Whole(priority.into()));
        row.insert(PRIORITY_COLUMN, cell);
    }
    table
}

/// A row per policy and program; none unless the programs also ran alone.
pub fn programs(comparison: &Comparison) -> Table {
    let columns = [
        ("policy", "policy"),
        ("number", "number"),
        ("program", "program"),
        ("start_ms", "start, ms"),
        ("time_ms", "time, ms"),
        ("alone_ms", "alone, ms"),
        ("slowdown", "slow-down"),
    ];
    let mut table = Table::new("programs", &columns).with_keys(3);
    let mut numbers = Vec::new();
    for (index, (name, report)) in comparison.names.iter().zip(&comparison.reports).enumerate() {
        let slowdowns = comparison.slowdowns(index).into_iter().flatten();
        for (number, slowdown) in slowdowns.enumerate() {
            numbers.push(number);
            table.rows.push(vec![
                Cell::text(name),
                Cell::Whole(number as u64 + 1),
                Cell::text(&report.programs[number]),
                Cell::Real(report.program_started_ms[number], 3),
                Cell::Real(report.program_times_ms[number], 3),
                Cell::Real(comparison.alone_ms[index][number], 3),
                Cell::Real(slowdown, 2),
            ]);
        }
    }
    with_priorities(table, comparison, &numbers)
}

/// The numbers of a mix's programs; copies that start together are one group.
pub fn together(report: &Report) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let of = |number: usize| (&report.programs[number], report.program_started_ms[number]);
    for number in 0..report.programs.len() {
        match groups.iter_mut().find(|group| of(group[0]) == of(number)) {
            Some(group) => group.push(number),
            None => groups.push(vec![number]),
        }
    }
    groups
}

/// A row per policy and program, in which copies that start together are one; for people.
pub fn copies(comparison: &Comparison) -> Table {
    let columns = [
        ("policy", "policy"),
        ("program", "program"),
        ("copies", "copies"),
        ("start_ms", "start, ms"),
        ("time_ms", "mean time, ms"),
        ("alone_ms", "alone, ms"),
        ("slowdown", "mean slow-down"),
        ("max_slowdown", "max. slow-down"),
    ];
    let mut table = Table::new("programs", &columns).with_keys(2);
    let mut numbers = Vec::new();
    for (index, (name, report)) in comparison.names.iter().zip(&comparison.reports).enumerate() {
        let slowdowns = comparison.slowdowns(index).unwrap_or_default();
        for copies in together(report).into_iter().filter(|_| !slowdowns.is_empty()) {
            numbers.push(copies[0]);
            let mean = |value: &dyn Fn(usize) -> f64| {
                copies.iter().map(|&number| value(number)).sum::<f64>() / copies.len() as f64
            };
            table.rows.push(vec![
                Cell::text(name),
                Cell::text(&report.programs[copies[0]]),
                Cell::Whole(copies.len() as u64),
                Cell::Real(report.program_started_ms[copies[0]], 3),
                Cell::Real(mean(&|number| report.program_times_ms[number]), 3),
                Cell::Real(mean(&|number| comparison.alone_ms[index][number]), 3),
                Cell::Real(mean(&|number| slowdowns[number]), 2),
                Cell::Real(copies.iter().map(|&number| slowdowns[number]).fold(0.0, f64::max), 2),
            ]);
        }
    }
    with_priorities(table, comparison, &numbers)
}

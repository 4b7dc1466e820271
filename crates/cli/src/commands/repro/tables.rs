//! Results beside the papers', as tables.

use memtide_experiments::{Kind, Verdict};

use super::Done;
use crate::output::{Cell, Document, Table, VERSION};

/// All tables, and a count of what holds.
pub fn document(done: &[Done], seed: u64) -> Document {
    let about = vec![("seed", Cell::Whole(seed)), ("memtide", Cell::text(VERSION))];
    let tables = vec![numbers(done), shapes(done), experiments(done)];
    Document {
        about,
        tables,
        main: "numbers",
        notes: counts(done).into_iter().chain(findings(done)).collect(),
    }
}

/// How many of the claims hold, in sentences.
pub fn counts(done: &[Done]) -> Vec<String> {
    let numbers = || done.iter().flat_map(|(of, judged)| of.numbers.iter().zip(&judged.numbers));
    let predicted: Vec<_> = numbers()
        .filter(|(number, _)| number.kind == Kind::Predicted && number.impossible.is_none())
        .collect();
    let impossible = numbers().filter(|(number, _)| number.impossible.is_some()).count();
    let calibrated = numbers().filter(|(number, _)| number.kind != Kind::Predicted).count();
    let shapes: Vec<_> = done.iter().flat_map(|(_, judged)| &judged.shapes).collect();
    let within = predicted.iter().filter(|(_, result)| result.is_within).count();
    let true_shapes = shapes.iter().filter(|shape| shape.holds).count();
    let moved = numbers().filter(|(_, result)| result.verdict == Verdict::ScaleDependent).count()
        + shapes.iter().filter(|shape| shape.verdict == Verdict::ScaleDependent).count();
    let mut counts = vec![format!(
        "{within} of {} predicted numbers are within their tolerance; {true_shapes} of {} statements hold.",
        predicted.len(),
        shapes.len()
    )];
    if calibrated > 0 {
        counts.push(format!("{calibrated} more numbers calibrated the model or its workloads."));
    }
    if impossible > 0 {
        counts.push(format!("{impossible} more numbers cannot come out: see their reasons."));
    }
    if moved > 0 {
        counts.push(format!("{moved} results depend on the scale: they change at half of it."));
    }
    counts
}

/// What was found out about experiments that do not hold.
fn findings(done: &[Done]) -> impl Iterator<Item = String> {
    done.iter().filter(|(_, judged)| judged.verdict() != Verdict::Holds).filter_map(|(experiment, _)| {
        experiment.finding.as_ref().map(|finding| format!("{}: {}", experiment.id, finding.trim()))
    })
}

fn experiments(done: &[Done]) -> Table {
    let columns = [("experiment", "experiment"), ("title", "title"), ("verdict", "verdict")];
    let mut table = Table::new("experiments", &columns);
    for (experiment, judged) in done {
        let verdict = Cell::text(judged.verdict().to_string());
        table.rows.push(vec![Cell::text(&experiment.id), Cell::text(&experiment.title), verdict]);
    }
    table
}

fn numbers(done: &[Done]) -> Table {
    let columns = [
        ("experiment", "experiment"),
        ("number", "number"),
        ("unit", "unit"),
        ("paper", "paper"),
        ("ours", "ours"),
        ("half_scale", "half scale"),
        ("deviation", "deviation"),
        ("deviation_unit", "in"),
        ("kind", "kind"),
        ("verdict", "verdict"),
    ];
    let mut table = Table::new("numbers", &columns);
    for (experiment, judged) in done {
        for (number, result) in experiment.numbers.iter().zip(&judged.numbers) {
            let unit = if number.unit == "%" { "points" } else { "%" };
            table.rows.push(vec![
                Cell::text(&experiment.id),
                Cell::text(&number.what),
                Cell::text(&number.unit),
                figure(number.paper),
                figure(result.ours),
                result.half.map_or(Cell::Absent, figure),
                Cell::Real(result.deviation, 1),
                Cell::text(unit),
                Cell::text(number.kind.name()),
                Cell::text(verdict(number.impossible.is_some(), result.verdict)),
            ]);
        }
    }
    table
}

/// The verdict on a number.
pub fn verdict(is_impossible: bool, verdict: Verdict) -> String {
    match (is_impossible, verdict) {
        (true, Verdict::DoesNot) => "impossible".to_owned(),
        (_, verdict) => verdict.to_string(),
    }
}

/// A figure with decimals that suit its size.
pub fn figure(value: f64) -> Cell {
    Cell::Real(value, if value.abs() < 10.0 { 3 } else { 1 })
}

fn shapes(done: &[Done]) -> Table {
    let columns = [
        ("experiment", "experiment"),
        ("statement", "statement"),
        ("holds", "here"),
        ("half_scale", "half scale"),
        ("verdict", "verdict"),
    ];
    let mut table = Table::new("shapes", &columns);
    for (experiment, judged) in done {
        for (shape, result) in experiment.shapes.iter().zip(&judged.shapes) {
            let word = |holds: bool| Cell::text(if holds { "yes" } else { "no" });
            table.rows.push(vec![
                Cell::text(&experiment.id),
                Cell::text(&shape.statement),
                word(result.holds),
                result.half.map_or(Cell::Absent, word),
                Cell::text(result.verdict.to_string()),
            ]);
        }
    }
    table
}

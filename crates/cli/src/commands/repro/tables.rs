//! Results beside the papers', as tables.

use memtide_experiments::{Kind, Number, Verdict};

use super::Done;
use crate::output::{Cell, Document, Table, VERSION};

/// All tables, and a count of what holds.
/// Without reasons and findings for people, who get those of failures only.
pub fn document(done: &[Done], seed: u64, for_people: bool) -> Document {
    let about = vec![("seed", Cell::Whole(seed)), ("memtide", Cell::text(VERSION))];
    let tables = vec![numbers(done, for_people), shapes(done), experiments(done, for_people)];
    let has_numbers = done.iter().any(|(experiment, _)| !experiment.numbers.is_empty());
    let main = if has_numbers { "numbers" } else { "shapes" };
    Document { about, tables, main, notes: counts(done) }
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
    let claims = [
        (
            predicted.len(),
            format!("{within} of {} predicted numbers are within their tolerance", predicted.len()),
        ),
        (shapes.len(), format!("{true_shapes} of {} statements hold", shapes.len())),
    ];
    let claims: Vec<String> =
        claims.into_iter().filter(|(count, _)| *count > 0).map(|(_, text)| text).collect();
    let mut counts = Vec::new();
    if !claims.is_empty() {
        counts.push(format!("{}.", claims.join("; ")));
    }
    let further = [
        (calibrated, "numbers that calibrated the model or its workloads"),
        (impossible, "numbers that cannot come out, with the reason"),
        (moved, "results that depend on the scale"),
    ];
    let further: Vec<String> = further
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{what}: {count}"))
        .collect();
    if !further.is_empty() {
        let also = if counts.is_empty() { "Only" } else { "Also" };
        counts.push(format!("{also} {}.", further.join("; ")));
    }
    counts
}

/// What was found out about experiments that do not hold.
pub fn findings(done: &[Done]) -> impl Iterator<Item = String> {
    done.iter().filter_map(|(experiment, judged)| {
        let finding: Vec<&str> = judged.finding(experiment)?.split_whitespace().collect();
        Some(format!("{}: {}", experiment.id, finding.join(" ")))
    })
}

fn experiments(done: &[Done], for_people: bool) -> Table {
    let finding = (!for_people).then_some(("finding", "finding"));
    let columns = [("experiment", "experiment"), ("title", "title"), ("verdict", "verdict")];
    let columns: Vec<_> = columns.into_iter().chain(finding).collect();
    let mut table = Table::new("experiments", &columns);
    for (experiment, judged) in done {
        let verdict = Cell::text(judged.verdict().to_string());
        let mut row = vec![Cell::text(&experiment.id), Cell::text(&experiment.title), verdict];
        row.extend(finding.map(|_| prose(judged.finding(experiment))));
        table.rows.push(row);
    }
    table
}

/// A text without line breaks.
fn prose(text: Option<&str>) -> Cell {
    text.map_or(Cell::Absent, |text| Cell::text(text.split_whitespace().collect::<Vec<_>>().join(" ")))
}

fn numbers(done: &[Done], for_people: bool) -> Table {
    let impossible = (!for_people).then_some(("impossible", "impossible"));
    let columns = [
        ("experiment", "experiment"),
        ("number", "number"),
        ("unit", "unit"),
        ("paper", "paper"),
        ("ours", "ours"),
        ("half_scale", "half scale"),
        ("deviation", "deviation"),
        ("tolerance", "tolerance"),
        ("deviation_unit", "in"),
        ("kind", "kind"),
        ("verdict", "verdict"),
    ];
    let columns: Vec<_> = columns.into_iter().chain(impossible).collect();
    let mut table = Table::new("numbers", &columns);
    for (experiment, judged) in done {
        for (number, result) in experiment.numbers.iter().zip(&judged.numbers) {
            let unit = if number.unit == "%" { "points" } else { "%" };
            let mut row = vec![
                Cell::text(&experiment.id),
                Cell::text(&number.what),
                Cell::text(&number.unit),
                figure(number, number.paper),
                figure(number, result.ours),
                result.half.map_or(Cell::Absent, |half| figure(number, half)),
                Cell::Real(result.deviation, 1),
                Cell::Real(number.tolerance(), 0),
                Cell::text(unit),
                Cell::text(number.kind.name()),
                Cell::text(verdict(number.impossible.is_some(), result.verdict)),
            ];
            row.extend(impossible.map(|_| prose(number.impossible.as_deref())));
            table.rows.push(row);
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

/// A value of a number, with decimals that suit it.
pub fn figure(number: &Number, value: f64) -> Cell {
    let is_ratio = number.unit.is_empty() && value.abs() < 10.0;
    Cell::Real(value, if is_ratio { 3 } else { 1 })
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
            table.rows.push(vec![
                Cell::text(&experiment.id),
                Cell::text(&shape.statement),
                Cell::YesNo(result.holds),
                result.half.map_or(Cell::Absent, Cell::YesNo),
                Cell::text(result.verdict.to_string()),
            ]);
        }
    }
    table
}

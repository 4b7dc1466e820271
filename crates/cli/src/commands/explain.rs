//! `memtide explain`.

use serde_json::{Value, json};

use super::compare::{Arguments, Compared, several};
use crate::failure::Failure;
use crate::output::{self, Cell, Document, Format, Table};
use crate::tables::explanation::{Explained, explained, table};
use crate::tables::verdict::stayed;

/// Compares, and prints where the time of the best policy, the worst and the baseline went.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let all = arguments.compared()?;
    let format = arguments.format();
    match format {
        Format::Json => output::print(&output::pretty(&whole(&all))),
        _ => document(&all, format).print(format),
    }
}

/// The runs to explain, each with the machine's name if there are several machines.
fn runs(all: &[Compared]) -> Vec<(Option<&str>, Explained<'_>)> {
    let of = |one| {
        let Compared { runs, comparison, .. }: &Compared = one;
        let machine = (all.len() > 1).then_some(runs.machine.name.as_str());
        explained(comparison).into_iter().map(move |run| (machine, run))
    };
    all.iter().flat_map(of).collect()
}

fn parts(runs: &[(Option<&str>, Explained<'_>)], for_people: bool) -> Table {
    let mut table = table(runs.iter().any(|(machine, _)| machine.is_some()));
    for (machine, run) in runs {
        let machine = machine.map(Cell::text);
        table
            .rows
            .extend(run.rows(for_people).into_iter().map(|row| machine.iter().cloned().chain(row).collect()));
    }
    table
}

fn document(all: &[Compared], format: Format) -> Document {
    let runs = runs(all);
    let paragraph = |(machine, run): &(Option<&str>, Explained<'_>)| {
        let text = run.sentences().join(" ");
        machine.map_or(text.clone(), |machine| format!("{machine}: {text}"))
    };
    let notes = runs.iter().map(paragraph).chain(notes(all)).collect();
    let about = if let [one] = all { one.runs.about() } else { several::about(all) };
    Document { about, tables: vec![parts(&runs, format == Format::Table)], notes, ..Document::default() }
}

/// What the figures are of, and the notes of each machine.
fn notes(all: &[Compared]) -> Vec<String> {
    let marked = all.iter().flat_map(|one| &one.comparison.reports).any(|report| report.marked);
    let region = marked.then(|| "Figures are of the region of interest.".to_owned());
    let named = |one: &Compared, note: &String| match all.len() {
        1 => note.clone(),
        _ => format!("{}: {note}", one.runs.machine.name),
    };
    let of_one = |one: &Compared| [stayed(&one.comparison), one.notes.clone()].concat();
    let of_machines =
        all.iter().flat_map(|one| of_one(one).into_iter().map(|note| named(one, &note)).collect::<Vec<_>>());
    region.into_iter().chain(of_machines).collect()
}

fn whole(all: &[Compared]) -> Value {
    let mut whole = document(all, Format::Json).json();
    let explanation = |(machine, run): (Option<&str>, Explained<'_>)| {
        let mut of_run = json!({
            "policy": run.policy(),
            "role": run.role(),
            "sentences": run.sentences(),
        });
        if let Some(machine) = machine {
            of_run["machine"] = machine.into();
        }
        of_run
    };
    whole["explanation"] = runs(all).into_iter().map(explanation).collect();
    whole["notes"] = notes(all).into();
    whole
}

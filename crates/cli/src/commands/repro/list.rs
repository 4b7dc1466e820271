//! `memtide repro list`.

use memtide_experiments::select;

use crate::failure::Failure;
use crate::output::{Cell, Document, Table};

/// All experiments.
pub fn document() -> Result<Document, Failure> {
    let columns = [
        ("experiment", "experiment"),
        ("title", "title"),
        ("source", "source"),
        ("machine", "machine"),
        ("numbers", "numbers"),
        ("shapes", "shapes"),
        ("runs", "runs"),
    ];
    let mut table = Table::new("experiments", &columns);
    for experiment in select(&[]).map_err(Failure::Run)? {
        let runs = experiment.plan.cases().len() * experiment.plan.policies.len();
        table.rows.push(vec![
            Cell::text(experiment.id),
            Cell::text(experiment.title),
            Cell::text(experiment.source),
            Cell::text(experiment.plan.machine),
            Cell::Whole(experiment.numbers.len() as u64),
            Cell::Whole(experiment.shapes.len() as u64),
            Cell::Whole(runs as u64),
        ]);
    }
    let note = "Reproduce one with `memtide repro NAME`, a paper's with `memtide repro PAPER`.";
    Ok(Document { notes: vec![note.to_owned()], ..Document::of(table) })
}

//! A comparison on several machines.

use memtide_sim::Report;
use serde_json::Value;

use super::Compared;
use crate::failure::Failure;
use crate::output::{self, Cell, Document, Format, Table};
use crate::report::{self, Draft};
use crate::runs::{RunOptions, Runs};
use crate::tables::simulated::{self, Figure};
use crate::tables::verdict::verdict;
use crate::tables::{bound, mix};

const FIGURES: [&str; 8] = [
    "time_ms",
    "rest_ms",
    "user_share",
    "system_share",
    "stall_share",
    "migrated_pages",
    "latency_mean_ns",
    "energy_mj",
];

/// The programs on each machine of a list separated by commas.
pub fn on_each(setting: &RunOptions, seed: u64) -> Result<Vec<Runs>, Failure> {
    let given: Vec<&str> = setting.machine.split(',').map(str::trim).collect();
    if given.contains(&"") {
        let message = format!("--machine '{}': a name is empty; is a comma too many?", setting.machine);
        return Err(Failure::Usage(message));
    }
    if let Some((_, twice)) = given.iter().enumerate().find(|(index, name)| given[..*index].contains(name)) {
        return Err(Failure::Usage(format!("machine '{twice}' is named twice; name it once")));
    }
    let mut all = given.iter().map(|name| setting.runs_on(name, seed)).collect::<Result<Vec<_>, _>>()?;
    let names: Vec<String> = all.iter().map(|runs| runs.machine.name.clone()).collect();
    for (runs, given) in all.iter_mut().zip(given) {
        // Such as a bundled machine and a changed copy of its file.
        if names.iter().filter(|name| **name == runs.machine.name).count() > 1 {
            runs.machine.name = given.to_owned();
        }
    }
    Ok(all)
}

/// Writes the report of all machines.
pub fn write(all: &[Compared], draft: Draft<'_>) -> Result<(), Failure> {
    let comparisons: Vec<_> = all.iter().map(|one| (&one.runs.machine, &one.comparison)).collect();
    draft.write(&report::of_machines(all[0].runs.program_names(), &comparisons, &document(all)))
}

/// Facts about all machines' runs.
pub fn about(all: &[Compared]) -> Vec<(&'static str, Cell)> {
    let of_machine = ["machine", "slice", "scale"];
    all[0].runs.about().into_iter().filter(|(key, _)| !of_machine.contains(key)).collect()
}

/// Prints a row for each machine and policy, and what is to say about each machine.
pub fn print(all: &[Compared], format: Format) -> Result<(), Failure> {
    let whole = document(all);
    if format != Format::Json {
        return whole.print(format);
    }
    let mut json = whole.json();
    json["notes"] = whole.notes.into();
    json["comparisons"] = Value::Array(all.iter().map(Compared::json).collect());
    output::print(&output::pretty(&json))
}

fn document(all: &[Compared]) -> Document {
    let of_each = |one: &Compared| {
        let name = &one.runs.machine.name;
        let notes = verdict(&one.comparison).into_iter().chain(one.notes.iter().cloned());
        notes.map(|note| format!("{name}: {note}")).collect::<Vec<_>>()
    };
    let notes = all.iter().flat_map(of_each).chain(unlike(all)).collect();
    Document { about: about(all), tables: vec![table(all)], notes, ..Document::default() }
}

fn table(all: &[Compared]) -> Table {
    let first = &all[0].comparison;
    let over_policy = format!("speed-up over {}", first.baseline_name());
    let over_machine = format!("speed-up over {}", all[0].runs.machine.name);
    let columns = [
        ("machine", "machine"),
        ("policy", "policy"),
        ("slice", "slice"),
        ("scale", "scale"),
        ("speedup", &over_policy),
        ("machine_speedup", &over_machine),
        ("over_bound", "time over bound"),
        ("bandwidth_mbps", "bandwidth, MB/s"),
    ];
    let mut table = Table::new("machines", &columns).with_keys(2);
    for (key, title, _) in figures(&first.reports[0]).chain(mix::of_run(first, 0)) {
        table.column(key, title);
    }
    for Compared { runs, comparison, .. } in all {
        for (index, (name, report)) in comparison.runs().enumerate() {
            let faster = first.runs().nth(index).map(|(_, first)| first.time_ms / report.time_ms);
            let mbps: f64 = report.nodes.iter().map(|node| node.bandwidth_mbps).sum();
            let mut row = vec![
                Cell::text(&runs.machine.name),
                Cell::text(name),
                Cell::Whole(runs.machine.slice.into()),
                Cell::Whole(runs.machine.scale.into()),
                Cell::Real(comparison.speedup(index), 2),
                faster.map_or(Cell::Absent, |faster| Cell::Real(faster, 2)),
                bound::over(comparison, index).2,
                Cell::Real(mbps, 0),
            ];
            row.extend(figures(report).chain(mix::of_run(comparison, index)).map(|(_, _, cell)| cell));
            table.rows.push(row);
        }
    }
    table
}

/// Those of the columns of one machine's comparison that tell machines apart.
fn figures(report: &Report) -> impl Iterator<Item = Figure> {
    simulated::of_run(report).into_iter().filter(|(key, ..)| FIGURES.contains(&key.as_str()))
}

/// That the same program stands for unlike ones.
fn unlike(all: &[Compared]) -> Option<String> {
    let reduced = |one: &Compared| (one.runs.machine.slice, one.runs.machine.scale);
    let differs = all.iter().any(|one| reduced(one) != reduced(&all[0]));
    differs.then(|| {
        "The machines have unlike slices or scales, so that the program stands for one of another size on \
         each; give --slice and --scale to compare their times."
            .to_owned()
    })
}

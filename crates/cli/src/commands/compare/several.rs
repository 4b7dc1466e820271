//! A comparison on several machines.

use memtide_sim::Report;
use serde_json::Value;

use super::Compared;
use crate::failure::Failure;
use crate::output::{self, Cell, Document, Format, Table};
use crate::report::{self, Draft};
use crate::runs::{RunOptions, Runs};
use crate::tables::verdict::verdict;

/// The programs on each machine of a list separated by commas.
pub fn on_each(setting: &RunOptions, seed: u64) -> Result<Vec<Runs>, Failure> {
    let names: Vec<&str> = setting.machine.split(',').map(str::trim).collect();
    let mut all: Vec<Runs> = Vec::new();
    for name in names {
        let runs = setting.runs_on(name, seed)?;
        if all.iter().any(|other| other.machine.name == runs.machine.name) {
            return Err(Failure::Usage(format!("machine '{name}' is named twice; name it once")));
        }
        all.push(runs);
    }
    Ok(all)
}

/// Prints a row for each machine and policy, and what is to say about each machine.
pub fn print(all: &[Compared], format: Format, draft: Option<Draft<'_>>) -> Result<(), Failure> {
    let whole = document(all);
    if let Some(draft) = draft {
        let comparisons: Vec<_> = all.iter().map(|one| (&one.runs.machine, &one.comparison)).collect();
        draft.write(&report::of_machines(all[0].runs.program_names(), &comparisons, &whole))?;
    }
    if format != Format::Json {
        return whole.print(format);
    }
    let mut json = whole.json();
    json["notes"] = whole.notes.into();
    json["comparisons"] = Value::Array(all.iter().map(Compared::json).collect());
    output::print(&output::pretty(&json))
}

fn document(all: &[Compared]) -> Document {
    let of_machine = ["machine", "set", "slice", "scale"];
    let about = all[0].runs.about().into_iter().filter(|(key, _)| !of_machine.contains(key)).collect();
    let of_each = |one: &Compared| {
        let name = &one.runs.machine.name;
        let notes = verdict(&one.comparison).into_iter().chain(one.notes.iter().cloned());
        notes.map(|note| format!("{name}: {note}")).collect::<Vec<_>>()
    };
    let notes = all.iter().flat_map(of_each).chain(unlike(all)).collect();
    Document { about, tables: vec![table(all)], notes, ..Document::default() }
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
        ("time_ms", "time, ms"),
        ("rest_ms", "outside region, ms"),
        ("speedup", &over_policy),
        ("machine_speedup", &over_machine),
        ("bandwidth_mbps", "bandwidth, MB/s"),
        ("latency_mean_ns", "mean latency, ns"),
        ("migrated_pages", "migrated pages"),
        ("energy_mj", "energy, mJ"),
    ];
    let mut table = Table::new("machines", &columns).with_keys(2);
    for Compared { runs, comparison, .. } in all {
        for (index, report) in comparison.reports.iter().enumerate() {
            let faster = first.reports[index].time_ms / report.time_ms;
            let mut row = vec![
                Cell::text(&runs.machine.name),
                Cell::text(&comparison.names[index]),
                Cell::Whole(runs.machine.slice.into()),
                Cell::Whole(runs.machine.scale.into()),
                Cell::Real(report.time_ms, 3),
                Cell::Real((report.run_ms - report.time_ms).max(0.0), 3),
                Cell::Real(comparison.speedup(index), 2),
                Cell::Real(faster, 2),
            ];
            row.extend(figures(report));
            table.rows.push(row);
        }
    }
    table
}

fn figures(report: &Report) -> [Cell; 4] {
    let mbps: f64 = report.nodes.iter().map(|node| node.bandwidth_mbps).sum();
    let latency = report.latency.mean_ns.map_or(Cell::Absent, |ns| Cell::Real(ns, 1));
    let energy = if report.energy_mj > 0.0 { Cell::Real(report.energy_mj, 2) } else { Cell::Absent };
    [Cell::Real(mbps, 0), latency, Cell::Whole(report.pages.migrated), energy]
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

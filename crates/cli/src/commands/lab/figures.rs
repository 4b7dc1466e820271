//! Figures of a run in the lab.

use memtide_lab::{Options, RegionOfInterest, RunOutcome};
use memtide_lab_protocol::clock::{RegionTotals, Results};

use super::guest;
use crate::machines;
use crate::output::{Cell, Document, Table, VERSION};
use crate::tables::{self, reduction};

/// Time of the measured region on the guest's clock, in ns: between all marks, if those were asked for and
/// seen; else of the whole program.
pub fn guest_ns(outcome: &RunOutcome, region: RegionOfInterest) -> f64 {
    let marked = match region {
        RegionOfInterest::Marks => outcome.timing.as_ref().filter(|timing| !timing.regions.is_empty()),
        RegionOfInterest::Program => None,
    };
    let ns = marked.map(|timing| timing.regions.iter().map(|region| region.guest_ns).sum());
    ns.unwrap_or(outcome.guest_ns as f64)
}

/// Scope of a run's figures with marks; `None` if the whole program is measured.
pub fn region_note(outcome: &RunOutcome, region: RegionOfInterest) -> Option<&'static str> {
    match (region, &outcome.timing) {
        (RegionOfInterest::Program, _) => None,
        (RegionOfInterest::Marks, Some(timing)) if !timing.regions.is_empty() => Some(
            "guest time, instructions, accesses and traffic are those between the marks; page faults, \
             migrated pages and memory in use are the whole program's",
        ),
        (RegionOfInterest::Marks, Some(_)) => Some(
            "the program made no marks: guest time is the whole program's, and nothing else was measured",
        ),
        (RegionOfInterest::Marks, None) => {
            Some("marks are not seen without timing: guest time is the whole program's")
        }
    }
}

/// Explains pages migrated by other means than the kernel's tiering; `None` without such pages.
pub fn migration_note(outcome: &RunOutcome) -> Option<&'static str> {
    let events = &outcome.events;
    let tiering = events.promoted_pages.saturating_add(events.demoted_pages);
    (events.migrated_pages > tiering).then_some(
        "promoted by the kernel: by NUMA balancing; demoted by the kernel: by reclaim. Pages moved by \
         memtide, damo or the program itself, or for a policy or compaction, are among the migrated ones \
         alone",
    )
}

/// All figures of a run.
pub fn document(outcome: &RunOutcome, options: &Options) -> Document {
    let measured = options.region;
    let mut notes = outcome.notes.clone();
    notes.extend(reduction::notes(&options.machine));
    notes.extend(
        [region_note(outcome, measured), migration_note(outcome)].into_iter().flatten().map(str::to_owned),
    );
    notes.extend(clock_note(outcome).filter(|_| !outcome.parallel));
    if outcome.parallel {
        notes.push("not deterministic: virtual CPUs ran in parallel, on the host's clock".to_owned());
    }
    notes.extend(outcome.signal.map(|signal| format!("signal {signal} ended the program")));
    notes.extend(outcome.kept.as_ref().map(|kept| format!("kept in {}", kept.display())));
    let region = outcome.timing.as_ref().and_then(Results::all_regions);
    let region = region.as_ref();
    let tables = [run(outcome, measured, region)]
        .into_iter()
        .chain(region.map(|region| tables::processes::table(&region.processes)))
        .chain([nodes(outcome, region)]);
    Document {
        about: [
            &about(outcome, options)[..],
            &[
                ("mode", Cell::text(if outcome.parallel { "parallel" } else { "deterministic" })),
                ("status", Cell::Whole(outcome.status.into())),
            ],
        ]
        .concat(),
        tables: tables.collect(),
        notes,
        ..Document::default()
    }
}

/// Versions and settings of a run.
pub fn about(outcome: &RunOutcome, options: &Options) -> Vec<(&'static str, Cell)> {
    let of_run = [
        ("slice", Cell::Whole(options.machine.slice.into())),
        ("scale", Cell::Whole(options.machine.scale.into())),
        ("program", Cell::text(guest::line(&options.command))),
        ("vcpus", Cell::Whole(outcome.vcpus.into())),
        ("kernel", Cell::text(&outcome.kernel)),
        ("qemu", Cell::text(outcome.qemu.split(' ').next().unwrap_or_default())),
        ("timing", Cell::text(timing(outcome))),
        ("seed", Cell::Whole(options.seed)),
        ("memtide", Cell::text(VERSION)),
    ];
    machines::about(&options.machine).into_iter().chain(of_run).collect()
}

/// Why the guest's clock did not follow the model, if it did not.
pub fn clock_note(outcome: &RunOutcome) -> Option<String> {
    let results = outcome.timing.as_ref().filter(|results| !results.hook)?;
    let why = results.why.as_deref().unwrap_or("QEMU's clock was not found");
    Some(format!("the guest's clock did not follow the model: {why}"))
}

/// Whether the guest's clock followed the model, or the model only counted, or there was none.
fn timing(outcome: &RunOutcome) -> &'static str {
    match &outcome.timing {
        Some(results) if results.hook => "on",
        Some(_) => "counted",
        None => "off",
    }
}

fn run(outcome: &RunOutcome, measured: RegionOfInterest, region: Option<&RegionTotals>) -> Table {
    let events = &outcome.events;
    let (title, program) = match measured {
        RegionOfInterest::Program => ("guest time, ns", None),
        RegionOfInterest::Marks => (
            if region.is_some() { "guest time between marks, ns" } else { "guest time, ns" },
            Some(("program_guest_ns", "guest time of the program, ns", Cell::Whole(outcome.guest_ns))),
        ),
    };
    let first = ("guest_ns", title, Cell::Whole(guest_ns(outcome, measured).round() as u64));
    let figures = [
        ("boot_seconds", "boot on the host, s", Cell::Real(outcome.boot_seconds, 1)),
        ("program_seconds", "program on the host, s", Cell::Real(outcome.program_seconds, 1)),
        ("faults", "page faults", Cell::Whole(events.faults)),
        ("huge_faults", "huge page faults", Cell::Whole(events.huge_faults)),
        ("hint_faults", "NUMA hint faults", Cell::Whole(events.hint_faults)),
        ("migrated_pages", "migrated pages", Cell::Whole(events.migrated_pages)),
        ("kernel_promoted_pages", "promoted by the kernel", Cell::Whole(events.promoted_pages)),
        ("kernel_demoted_pages", "demoted by the kernel", Cell::Whole(events.demoted_pages)),
        ("out_of_memory_kills", "out-of-memory kills", Cell::Whole(events.out_of_memory_kills)),
    ];
    let mut table = Table::new("run", &[]);
    let mut row = Vec::new();
    for (key, title, cell) in [first].into_iter().chain(program).chain(figures) {
        table.column(key, title);
        row.push(cell);
    }
    for (key, title, value) in region.map(timed).into_iter().flatten() {
        table.column(key, title);
        row.push(Cell::Whole(value));
    }
    table.rows.push(row);
    table
}

fn timed(region: &RegionTotals) -> [(&'static str, &'static str, u64); 6] {
    let total = &region.total;
    [
        ("instructions", "instructions", total.instructions),
        ("outside_instructions", "instructions outside the program", region.outside_instructions()),
        ("accesses", "loads and stores", total.accesses),
        ("llc_misses", "LLC misses", total.llc_misses),
        ("page_walks", "page walks", total.page_walks),
        ("accesses_per_host_second", "loads and stores per host CPU second", accesses_per_second(region)),
    ]
}

/// Modelling speed.
fn accesses_per_second(region: &RegionTotals) -> u64 {
    (region.total.accesses as f64 * 1e9 / region.host_cpu_ns.max(1) as f64) as u64
}

fn nodes(outcome: &RunOutcome, region: Option<&RegionTotals>) -> Table {
    let columns = [
        ("node", "node"),
        ("capacity_mib", "capacity, MiB"),
        ("allocations", "allocations"),
        ("mean_mib", "in use, MiB"),
        ("peak_mib", "most, MiB"),
    ];
    let traffic = [
        ("read_lines", "lines read"),
        ("prefetched_lines", "prefetched"),
        ("written_lines", "written"),
        ("latency_mean_ns", "mean latency, ns"),
    ];
    let mut table = Table::new("nodes", &columns);
    for (key, title) in region.iter().flat_map(|_| traffic) {
        table.column(key, title);
    }
    let real = |value: Option<f64>| value.map_or(Cell::Absent, |value| Cell::Real(value, 1));
    for (number, node) in outcome.nodes.iter().enumerate() {
        let mut row = vec![
            Cell::text(&node.name),
            Cell::Whole(node.mib),
            Cell::Whole(node.allocations),
            real(node.mean_mib),
            real(node.peak_mib),
        ];
        if let Some(traffic) = region.and_then(|region| region.total.nodes.get(number)) {
            let lines = [traffic.reads, traffic.prefetches, traffic.writes];
            row.extend(lines.map(Cell::Whole));
            row.push(traffic.mean_latency_ns().map_or(Cell::Absent, |ns| Cell::Real(ns, 1)));
        }
        table.rows.push(row);
    }
    table
}

#[cfg(test)]
pub mod tests {
    use memtide_lab_protocol::clock::Timeline;
    use memtide_lab_protocol::{Counts, Process, Who};

    use super::*;

    fn region(guest_ns: f64, instructions: u64, roots: &[u64]) -> RegionTotals {
        let counts = Counts { instructions, ..Counts::none(0) };
        let process =
            |&root: &u64| Process { root, name: "p".into(), who: Who::Program, counts: counts.clone() };
        RegionTotals {
            start_ns: 0.0,
            guest_ns,
            host_cpu_ns: 1,
            total: counts.clone(),
            processes: roots.iter().map(process).collect(),
            timeline: Timeline::new(Vec::new()),
        }
    }

    fn options(region: RegionOfInterest) -> Options {
        let text = include_str!("../../../../../machines/bmpm-2.toml");
        let machine = memtide_core::Machine::parse("bmpm-2.toml", text).expect("a bundled machine");
        Options { region, ..Options::new(machine, vec!["true".into()]) }
    }

    /// A program of 9 ms with two regions of 1 and 2 ms, and page migrations.
    pub fn marked_run() -> RunOutcome {
        let regions = vec![region(1e6, 10, &[1]), region(2e6, 20, &[1, 2])];
        serde_json::from_value(serde_json::json!({
            "machine": "m", "vcpus": 1, "parallel": false, "kernel": "6", "qemu": "10",
            "status": 0, "signal": null,
            "guest_ns": 9_000_000, "boot_seconds": 1.0, "program_seconds": 1.0,
            "events": {
                "faults": 1, "major_faults": 0, "hint_faults": 0, "migrated_pages": 109_735,
                "promoted_pages": 0, "demoted_pages": 0, "huge_faults": 0, "out_of_memory_kills": 0,
            },
            "nodes": [], "samples": [], "notes": [], "kept": null,
            "timing": Results { hook: true, why: None, regions },
        }))
        .expect("an outcome")
    }

    #[test]
    fn run_with_marks_prints_the_time_and_counts_of_all_regions() {
        let document = document(&marked_run(), &options(RegionOfInterest::Marks));
        let json = document.json();
        let figure = |key: &str| json["run"][0][key].as_u64();
        assert_eq!(
            ["guest_ns", "program_guest_ns", "instructions"].map(figure),
            [Some(3_000_000), Some(9_000_000), Some(30)]
        );
        let processes = [0, 1].map(|process| json["processes"][process]["instructions"].as_u64());
        assert_eq!(processes, [Some(30), Some(20)]);
        let text = document.text(crate::output::Format::Table, None);
        assert!(
            text.contains("guest time between marks, ns") && text.contains("are those between the marks"),
            "{text}"
        );
    }

    #[test]
    fn run_without_marks_prints_one_time() {
        let json = document(&marked_run(), &options(RegionOfInterest::Program)).json();
        assert_eq!(json["run"][0]["guest_ns"], 9_000_000);
        assert!(json["run"][0].get("program_guest_ns").is_none());
        let none = RunOutcome { timing: Some(Results::default()), ..marked_run() };
        let document = document(&none, &options(RegionOfInterest::Marks));
        assert_eq!(document.json()["run"][0]["guest_ns"], 9_000_000);
        assert!(document.notes.iter().any(|note| note.contains("made no marks")), "{:?}", document.notes);
    }

    #[test]
    fn pages_that_the_kernel_did_not_promote_are_explained() {
        let moved = document(&marked_run(), &options(RegionOfInterest::Program));
        let text = moved.text(crate::output::Format::Table, None);
        assert!(text.contains("promoted by the kernel") && text.contains("by NUMA balancing"), "{text}");
        assert_eq!(moved.json()["run"][0]["kernel_promoted_pages"], 0);
        assert!(moved.json()["run"][0].get("promoted_pages").is_none());
        let mut kernel = marked_run();
        kernel.events.promoted_pages = kernel.events.migrated_pages;
        assert_eq!(migration_note(&kernel), None);
    }
}

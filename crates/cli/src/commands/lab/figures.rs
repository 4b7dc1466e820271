//! What a run of the lab shows.

use memtide_lab::RunOutcome;
use memtide_lab_protocol::clock::RegionTotals;

use crate::output::{Cell, Document, Table};
use crate::tables;

/// All figures of a run.
pub fn document(outcome: &RunOutcome) -> Document {
    let mut notes = outcome.notes.clone();
    notes.extend(clock_note(outcome).filter(|_| !outcome.parallel));
    if outcome.parallel {
        notes.push("not deterministic: virtual CPUs ran in parallel, on the host's clock".to_owned());
    }
    notes.extend(outcome.signal.map(|signal| format!("signal {signal} ended the program")));
    notes.extend(outcome.kept.as_ref().map(|kept| format!("kept in {}", kept.display())));
    let region = outcome.timing.as_ref().and_then(|timing| timing.regions.last());
    let tables = [run(outcome, region)]
        .into_iter()
        .chain(region.map(|region| tables::processes::table(&region.processes)))
        .chain([nodes(outcome, region)]);
    Document {
        about: [
            &about(outcome)[..],
            &[
                ("mode", Cell::text(if outcome.parallel { "parallel" } else { "deterministic" })),
                ("status", Cell::Whole(outcome.status.into())),
            ],
        ]
        .concat(),
        tables: tables.collect(),
        notes,
    }
}

/// What a run was made of.
pub fn about(outcome: &RunOutcome) -> [(&'static str, Cell); 5] {
    [
        ("machine", Cell::text(&outcome.machine)),
        ("vcpus", Cell::Whole(outcome.vcpus.into())),
        ("kernel", Cell::text(&outcome.kernel)),
        ("qemu", Cell::text(outcome.qemu.split(' ').next().unwrap_or_default())),
        ("timing", Cell::text(timing(outcome))),
    ]
}

/// Why the guest's clock did not follow the model, if there was one.
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

fn run(outcome: &RunOutcome, region: Option<&RegionTotals>) -> Table {
    let events = &outcome.events;
    let figures = [
        ("guest_ns", "guest time, ns", Cell::Whole(outcome.guest_ns)),
        ("boot_seconds", "boot on the host, s", Cell::Real(outcome.boot_seconds, 1)),
        ("program_seconds", "program on the host, s", Cell::Real(outcome.program_seconds, 1)),
        ("faults", "page faults", Cell::Whole(events.faults)),
        ("huge_faults", "of 2 MiB", Cell::Whole(events.huge_faults)),
        ("hint_faults", "NUMA hint faults", Cell::Whole(events.hint_faults)),
        ("migrated_pages", "migrated pages", Cell::Whole(events.migrated_pages)),
        ("promoted_pages", "promoted", Cell::Whole(events.promoted_pages)),
        ("demoted_pages", "demoted", Cell::Whole(events.demoted_pages)),
        ("out_of_memory_kills", "ended for memory", Cell::Whole(events.out_of_memory_kills)),
    ];
    let mut table = Table::new("run", &figures.clone().map(|(key, title, _)| (key, title)));
    let mut row: Vec<Cell> = figures.map(|(_, _, cell)| cell).into();
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
        ("outside_instructions", "outside the program", region.outside_instructions()),
        ("accesses", "loads and stores", total.accesses),
        ("llc_misses", "LLC misses", total.llc_misses),
        ("page_walks", "page walks", total.page_walks),
        ("accesses_per_host_second", "loads and stores per host CPU second", accesses_per_second(region)),
    ]
}

/// How fast they were modelled.
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

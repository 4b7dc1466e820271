//! Tables of `memtide validate`.

use memtide_core::{LINE_BYTES, Machine, Stage};
use memtide_sim::Report;

use super::{Outcome, RIGHT, WORKLOADS};
use crate::output::{Cell, Document, Table, VERSION};

/// Largest factor between both times of a model that is of use.
const FACTOR: f64 = 1.5;

/// All figures: a table of times, a table of counts, and what they say. `doubts` are about the measurements.
pub fn document(outcomes: &[Outcome], machine: &Machine, seed: u64, doubts: &[String]) -> Document {
    let about = vec![
        ("system", Cell::text(&machine.summary)),
        ("seed", Cell::Whole(seed)),
        ("memtide", Cell::text(VERSION)),
    ];
    let doubts = doubts.iter().map(|doubt| format!("Doubtful machine file: {doubt}."));
    let notes = notes(outcomes).into_iter().chain(doubts).collect();
    Document { about, tables: vec![times(outcomes), counts(outcomes)], notes, main: "workloads" }
}

fn times(outcomes: &[Outcome]) -> Table {
    let columns = [
        ("workload", "workload"),
        ("native_ms", "native, ms"),
        ("simulated_ms", "simulated, ms"),
        ("deviation", "deviation, %"),
        ("spread", "native spread, %"),
        ("native_mbps", "native, MB/s"),
        ("simulated_mbps", "simulated, MB/s"),
        ("cause", "points to"),
        ("cause_deviation", "deviation with it varied, %"),
    ];
    let mut table = Table::new("workloads", &columns);
    table.rows = outcomes
        .iter()
        .map(|outcome| {
            let cause = outcome.cause.as_ref();
            vec![
                Cell::text(outcome.name()),
                Cell::Real(outcome.native_ms(), 1),
                Cell::Real(outcome.simulated.time_ms, 1),
                Cell::Percent(outcome.ratio() - 1.0),
                outcome.spread.map_or(Cell::Absent, Cell::Percent),
                native_mbps(outcome).map_or(Cell::Absent, |mbps| Cell::Real(mbps, 0)),
                Cell::Real(outcome.simulated.nodes.iter().map(|node| node.bandwidth_mbps).sum(), 0),
                cause.map_or(Cell::Absent, |cause| Cell::text(cause.part)),
                cause.map_or(Cell::Absent, |cause| Cell::Percent(cause.ratio - 1.0)),
            ]
        })
        .collect();
    table
}

/// Bandwidth of the misses that the processor counted.
fn native_mbps(outcome: &Outcome) -> Option<f64> {
    let lines = outcome.native.llc_misses?;
    Some((lines * LINE_BYTES) as f64 / 1e6 / outcome.native.region.as_secs_f64())
}

fn counts(outcomes: &[Outcome]) -> Table {
    let columns = [
        ("workload", "workload"),
        ("native_instructions", "native instructions, M"),
        ("simulated_instructions", "simulated, M"),
        ("native_llc_misses", "native LLC misses, M"),
        ("simulated_llc_misses", "simulated, M"),
        ("native_tlb_misses", "native TLB misses, M"),
        ("simulated_tlb_misses", "simulated, M"),
        ("native_initialisation_ms", "native initialisation, ms"),
        ("simulated_initialisation_ms", "simulated, ms"),
    ];
    let mut table = Table::new("counts", &columns);
    let millions = |count: u64| Cell::Real(count as f64 / 1e6, 2);
    let counted = |count: Option<u64>| count.map_or(Cell::Absent, millions);
    table.rows = outcomes
        .iter()
        .map(|outcome| {
            let Outcome { native, simulated, .. } = outcome;
            vec![
                Cell::text(outcome.name()),
                counted(native.instructions),
                millions(simulated.instructions),
                counted(native.llc_misses),
                millions(simulated.llc_misses),
                counted(native.tlb_misses),
                millions(simulated.tlb_misses),
                Cell::Real(native.initialisation.as_secs_f64() * 1e3, 1),
                initialisation_ms(simulated).map_or(Cell::Absent, |ms| Cell::Real(ms, 1)),
            ]
        })
        .collect();
    table
}

fn initialisation_ms(report: &Report) -> Option<f64> {
    let name = Stage::Initialisation.name();
    report.stages.iter().find(|stage| stage.stage == name).map(|stage| stage.time_ms)
}

/// How many are right, and how far off the others are.
fn notes(outcomes: &[Outcome]) -> Vec<String> {
    let right = outcomes.iter().filter(|outcome| (outcome.ratio() - 1.0).abs() <= RIGHT).count();
    let factor = |outcome: &Outcome| outcome.ratio().max(1.0 / outcome.ratio());
    let mut notes = vec![format!(
        "Times are of the region of interest. {right} of {} within {:.0} %.",
        outcomes.len(),
        RIGHT * 100.0
    )];
    let far: Vec<String> = outcomes
        .iter()
        .filter(|outcome| factor(outcome) > FACTOR)
        .map(|outcome| format!("{} ({:.2})", outcome.name(), factor(outcome)))
        .collect();
    if outcomes.len() < WORKLOADS {
        notes.push(format!("Interrupted after {} of {WORKLOADS} workloads.", outcomes.len()));
    }
    if !far.is_empty() {
        notes.push(format!("Beyond a factor of {FACTOR}: {}.", far.join(", ")));
    }
    if outcomes.iter().any(|outcome| outcome.spread.is_some_and(|spread| spread > RIGHT)) {
        notes.push("Native times differ widely: the system was busy. Run it again.".to_owned());
    }
    if outcomes.iter().all(|outcome| outcome.native.instructions.is_none()) {
        notes.push(
            "No hardware counters: the system provides none, as most virtual machines, or \
             kernel.perf_event_paranoid is above 2."
                .to_owned(),
        );
    }
    notes
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use memtide_linux::measure::RegionFigures;

    use super::*;
    use crate::commands::validate::parts::Cause;
    use crate::commands::validate::simulate;
    use crate::progress::Progress;

    fn outcome(native_of: f64) -> Outcome {
        let text = include_str!("../../../../../machines/laptop.toml");
        let machine = Machine::parse("laptop", text).expect("a machine");
        let workload = "gups:footprint_mib=4,operations=2000,threads=1".to_owned();
        let simulated = simulate(&machine, &workload, 1, (&Progress::new("", 1), 0)).expect("a report");
        let region = Duration::from_secs_f64(simulated.time_ms * native_of / 1e3);
        let native = RegionFigures { region, llc_misses: Some(1000), ..RegionFigures::default() };
        let cause = (native_of != 1.0).then_some(Cause { part: "last cache", ratio: 1.1 });
        Outcome { workload, native, spread: Some(0.01), simulated, cause }
    }

    #[test]
    fn rows_have_a_cell_per_column_and_notes_count_deviations() {
        let outcomes = [outcome(1.0), outcome(1.2), outcome(2.0)];
        for table in [times(&outcomes), counts(&outcomes)] {
            assert_eq!(table.rows.len(), 3);
            assert!(table.rows.iter().all(|row| row.len() == table.columns.len()), "{}", table.name);
        }
        let notes = notes(&outcomes).join(" ");
        assert!(
            notes.contains("2 of 3 within 25 %") && notes.contains("factor of 1.5: gups (2.00)"),
            "{notes}"
        );
    }

    #[test]
    fn deviation_and_bandwidth_are_of_the_native_time() {
        let outcome = outcome(2.0);
        let json = Document::of(times(std::slice::from_ref(&outcome))).json();
        let row = &json["workloads"][0];
        assert!((row["deviation"].as_f64().expect("a share") + 0.5).abs() < 1e-3, "{row}");
        let mbps = 64_000.0 / (outcome.simulated.time_ms * 2.0 / 1e3) / 1e6;
        assert!((row["native_mbps"].as_f64().expect("a rate") / mbps - 1.0).abs() < 1e-3, "{row}");
    }
}

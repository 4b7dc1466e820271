//! Table of a comparison in the lab: a row per subject.

use memtide_lab::{Compared, Comparison, Damo, Interval, LEAST_FOR_T, Memtide, RegionOfInterest, RunOutcome};

use super::figures;
use crate::advice;
use crate::options::Common;
use crate::output::{Cell, Document, Format, Table};
use crate::report::LabRun;
use crate::tables::reduction;

/// A column's key (unit last) and title, and its value for a subject.
type Figure = (String, String, Cell);

/// A column of a count by the kernel or the clock plugin.
type Count = (&'static str, &'static str, fn(&RunOutcome) -> Option<u64>);

const COUNTS: [Count; 8] = [
    ("faults", "page faults", |run| Some(run.events.faults)),
    ("hint_faults", "NUMA hint faults", |run| Some(run.events.hint_faults)),
    ("migrated_pages", "migrated pages", |run| Some(run.events.migrated_pages)),
    ("kernel_promoted_pages", "promoted by the kernel", |run| Some(run.events.promoted_pages)),
    ("kernel_demoted_pages", "demoted by the kernel", |run| Some(run.events.demoted_pages)),
    ("instructions", "instructions", |run| timed(run, |region| region.total.instructions)),
    ("outside_instructions", "instructions outside the program", |run| {
        timed(run, |region| region.outside_instructions())
    }),
    ("llc_misses", "LLC misses", |run| timed(run, |region| region.total.llc_misses)),
];

/// A comparison's output.
pub fn document(comparison: &Comparison, compared: &[Compared], common: Common) -> Document {
    let region = comparison.options.region;
    let base: Vec<f64> = compared[0].outcomes.iter().map(|run| guest_ms(run, region)).collect();
    let mut runs = Table::new("subjects", &[("subject", "subject")]);
    let mut nodes = Table::new("nodes", &[("subject", "subject")]);
    for subject in compared {
        let name = subject.subject.name();
        add(&mut runs, name, of_runs(subject, &base, compared[0].subject.name(), region));
        add(&mut nodes, name, of_nodes(subject));
    }
    let tables = match common.output {
        Format::Table => vec![runs, nodes],
        _ => vec![runs.join(nodes)],
    };
    let mut notes = notes(comparison, compared);
    notes.extend(reduction::notes(&comparison.options.machine));
    Document { about: about(comparison, &compared[0].outcomes[0]), tables, notes, ..Document::default() }
}

/// What a report shows of each subject.
pub fn lab_runs<'a>(comparison: &Comparison, compared: &'a [Compared]) -> Vec<LabRun<'a>> {
    let region = comparison.options.region;
    let of = |subject: &'a Compared| {
        let times: Vec<f64> = subject.outcomes.iter().map(|run| guest_ms(run, region)).collect();
        let name = subject.subject.name().to_owned();
        LabRun { name, guest_ms: Interval::of(&times).mean, outcome: &subject.outcomes[0] }
    };
    compared.iter().map(of).collect()
}

fn about(comparison: &Comparison, run: &RunOutcome) -> Vec<(&'static str, Cell)> {
    let own = [
        ("layouts", Cell::Whole(comparison.layouts.into())),
        ("time_scale", Cell::Whole(comparison.time_scale.factor().into())),
    ];
    figures::about(run, &comparison.options).into_iter().chain(own).collect()
}

fn add(table: &mut Table, subject: &str, figures: Vec<Figure>) {
    let first = table.rows.is_empty();
    let mut row = vec![Cell::text(subject)];
    for (key, title, cell) in figures {
        if first {
            table.column(key, title);
        }
        row.push(cell);
    }
    table.rows.push(row);
}

fn of_runs(subject: &Compared, base: &[f64], base_name: &str, region: RegionOfInterest) -> Vec<Figure> {
    let times: Vec<f64> = subject.outcomes.iter().map(|run| guest_ms(run, region)).collect();
    let speedups: Vec<f64> = base.iter().zip(&times).map(|(base, time)| base / time).collect();
    let mut all = spread("guest", "_ms", "guest time, ms", &times, 3);
    all.extend(spread("speedup", "", &format!("speed-up over {base_name}"), &speedups, 3));
    for (key, title, count) in COUNTS {
        let counts: Option<Vec<u64>> = subject.outcomes.iter().map(count).collect();
        if let Some(counts) = counts {
            all.push((key.to_owned(), title.to_owned(), mean_count(&counts)));
        }
    }
    let shares: Option<Vec<f64>> = subject.outcomes.iter().map(outside_share).collect();
    if let Some(shares) = shares {
        let title = "outside, %".to_owned();
        all.push(("outside_share".to_owned(), title, Cell::Percent(Interval::of(&shares).mean)));
    }
    all
}

/// Share of instructions outside the program, if the run was timed.
fn outside_share(run: &RunOutcome) -> Option<f64> {
    let all = timed(run, |region| region.total.instructions)?.max(1);
    Some(timed(run, |region| region.outside_instructions())? as f64 / all as f64)
}

/// A mean, with an interval if there are several values.
fn spread(key: &str, unit: &str, title: &str, values: &[f64], digits: usize) -> Vec<Figure> {
    let Interval { mean, low, high } = Interval::of(values);
    let mut all = vec![(format!("{key}{unit}"), title.to_owned(), Cell::Real(mean, digits))];
    if values.len() > 1 {
        all.push((format!("{key}_low{unit}"), "from".to_owned(), Cell::Real(low, digits)));
        all.push((format!("{key}_high{unit}"), "to".to_owned(), Cell::Real(high, digits)));
    }
    all
}

/// A single count, or the mean of several.
fn mean_count(counts: &[u64]) -> Cell {
    match counts {
        [count] => Cell::Whole(*count),
        _ => Cell::Real(counts.iter().sum::<u64>() as f64 / counts.len() as f64, 0),
    }
}

fn of_nodes(subject: &Compared) -> Vec<Figure> {
    let mean = |of: &dyn Fn(&RunOutcome) -> Option<f64>| {
        let values: Option<Vec<f64>> = subject.outcomes.iter().map(of).collect();
        values.map(|values| Interval::of(&values).mean)
    };
    let real = |value: Option<f64>| value.map_or(Cell::Absent, |value| Cell::Real(value, 1));
    let mut all = Vec::new();
    for (number, node) in subject.outcomes[0].nodes.iter().enumerate() {
        let name = &node.name;
        let peak = mean(&|run| run.nodes[number].peak_mib);
        all.push((format!("{name}_peak_mib"), format!("{name}, most MiB"), real(peak)));
        let bytes = |run: &RunOutcome| {
            timed(run, |region| region.total.nodes.get(number).map_or(0, |node| node.bytes()))
        };
        if let Some(moved) = mean(&|run| bytes(run).map(|bytes| bytes as f64 / 1e6)) {
            all.push((format!("{name}_traffic_mb"), format!("{name} traffic, MB"), real(Some(moved))));
        }
    }
    all
}

/// The sum over all regions of interest, if the run was timed.
fn timed(run: &RunOutcome, of: impl Fn(&memtide_lab_protocol::clock::RegionTotals) -> u64) -> Option<u64> {
    run.timing.as_ref().map(|timing| timing.regions.iter().map(of).sum())
}

/// Time of the measured region, in ms.
fn guest_ms(run: &RunOutcome, region: RegionOfInterest) -> f64 {
    figures::guest_ns(run, region) / 1e6
}

fn notes(comparison: &Comparison, compared: &[Compared]) -> Vec<String> {
    let region = comparison.options.region;
    let first_scan_ms = 1000 / comparison.time_scale.factor();
    let first = &compared[0].outcomes[0];
    let mut notes = first.notes.clone();
    notes.extend(figures::clock_note(first));
    notes.extend(figures::region_note(first, region).map(str::to_owned));
    let outcomes = || compared.iter().flat_map(|subject| &subject.outcomes);
    notes.extend(outcomes().find_map(figures::migration_note).map(str::to_owned));
    for Compared { subject, setting, lacks_tiers, outcomes } in compared {
        let name = subject.name();
        if let Some(weights) = &setting.weights {
            let nodes = first.nodes.iter().zip(weights);
            let words: Vec<String> =
                nodes.map(|(node, weight)| format!("{weight} to {}", node.name)).collect();
            notes.push(format!("{name}: pages in turn, {}", words.join(", ")));
        }
        if setting.memtide.is_some() && region == RegionOfInterest::Program {
            notes.push(format!(
                "{name}: its time includes the start and end of `memtide run` and of its daemon, which weigh \
                 in short programs; mark the program's region of interest, and use --region marks"
            ));
        }
        notes.extend(setting.memtide.iter().flat_map(Memtide::lines).map(|line| format!("{name}: {line}")));
        notes.extend(setting.damo.iter().flat_map(Damo::lines).map(|line| format!("{name}: {line}")));
        if *lacks_tiers {
            notes.push(format!("{name}: {}", advice::lab::ONE_TIER));
        } else if subject.needs_hint_faults() && outcomes.iter().all(|run| run.events.hint_faults == 0) {
            notes.push(format!(
                "{name} saw no NUMA hint fault: the kernel first scans a program after {first_scan_ms} ms of \
                 its processor time, and with 2 only memory of a slower tier"
            ));
        }
        for kept in outcomes.iter().filter_map(|run| run.kept.as_ref()) {
            notes.push(format!("{name} kept in {}", kept.display()));
        }
    }
    notes.extend(match compared[0].outcomes.len() {
        1 => None,
        runs if runs < LEAST_FOR_T => Some("from, to: minimum and maximum of the layouts".to_owned()),
        _ => Some("from, to: 95 % confidence interval of the mean (Student's t)".to_owned()),
    });
    notes
}

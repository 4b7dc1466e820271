//! Notes on what a machine's slice and scale do to results.

use memtide_core::Machine;
use memtide_sim::Report;

/// Deviation of ratios in per cent from which it is reported.
const DEVIATION_PERCENT: f64 = 5.0;

/// Share of accesses from which a shared channel is reported.
const SHARED_ACCESSES: f64 = 0.1;

/// Notes on a machine with the slice and scale of a run: lost proportions, and the measured deviation.
pub fn notes(machine: &Machine) -> Vec<String> {
    let mut notes: Vec<String> = machine
        .reduction_warnings()
        .into_iter()
        .map(|warning| format!("Reduced machine: {warning}."))
        .collect();
    let deviation = machine.reduction_deviation_percent.filter(|percent| *percent > DEVIATION_PERCENT);
    notes.extend(deviation.map(|percent| {
        format!(
            "At the machine file's slice and scale, ratios to local deviate by up to {percent} % from those \
             of less reduced machines, over eight workloads and five policies: see docs/reductions.md."
        )
    }));
    notes
}

/// The same, and how many accesses went to channels of which the slice has a share.
pub fn notes_of_runs(machine: &Machine, reports: &[Report]) -> Vec<String> {
    let mut all = notes(machine);
    all.extend(shared_cpus(machine, reports));
    all.extend(shared_channels(machine, reports));
    all
}

/// Whether a slice leaves several threads to a CPU of programs that the whole machine has CPUs for.
fn shared_cpus(machine: &Machine, reports: &[Report]) -> Option<String> {
    let threads = reports.iter().map(|report| report.threads).max()?;
    let (cpus, all) = (machine.reduced().cpus() as u64, machine.cpus() as u64);
    (threads > cpus && threads <= all).then(|| {
        format!("{threads} threads share the {cpus} CPUs of this slice; the whole machine has {all}.")
    })
}

fn shared_channels(machine: &Machine, reports: &[Report]) -> Option<String> {
    let small = machine.reduced();
    let shared: Vec<&str> = small
        .nodes
        .iter()
        .filter(|node| node.dram.is_some() && node.sharing_slices > 1)
        .map(|node| node.name.as_str())
        .collect();
    let most = |name: &str| {
        let share = |report: &Report| report.nodes.iter().find(|node| node.name == name)?.access_share.into();
        reports.iter().filter_map(share).fold(0.0, f64::max)
    };
    let served = shared.into_iter().map(|name| (name, most(name)));
    let served = served.filter(|(_, share)| *share > SHARED_ACCESSES);
    let served: Vec<String> =
        served.map(|(name, share)| format!("{:.0} % ({name})", share * 100.0)).collect();
    (!served.is_empty()).then(|| {
        format!(
            "A share of a channel serves up to {} of the accesses; its waits assume that the other slices do \
             the same a microsecond later.",
            served.join(", ")
        )
    })
}

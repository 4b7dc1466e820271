//! Notes on what a machine's slice and scale do to results.

use memtide_core::Machine;
use memtide_sim::Report;
use serde::{Deserialize, Serialize};

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

/// What a run asks of the parts of a machine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Load {
    threads: u64,
    /// Shares of the accesses, by node.
    access_shares: Vec<f64>,
}

impl From<&Report> for Load {
    fn from(report: &Report) -> Load {
        let access_shares = report.nodes.iter().map(|node| node.access_share).collect();
        Load { threads: report.threads, access_shares }
    }
}

impl Load {
    /// The greatest of several runs.
    pub fn greatest(loads: impl IntoIterator<Item = Load>) -> Load {
        loads.into_iter().fold(Load::default(), |mut most, load| {
            most.access_shares.resize(load.access_shares.len(), 0.0);
            let shares = most.access_shares.iter_mut().zip(load.access_shares);
            shares.for_each(|(most, share)| *most = share.max(*most));
            Load { threads: most.threads.max(load.threads), ..most }
        })
    }
}

/// The same, and how many accesses went to channels of which the slice has a share.
pub fn notes_of_runs(machine: &Machine, reports: &[Report]) -> Vec<String> {
    notes_of_load(machine, &Load::greatest(reports.iter().map(Load::from)))
}

/// As [`notes_of_runs`].
pub fn notes_of_load(machine: &Machine, load: &Load) -> Vec<String> {
    let mut all = notes(machine);
    all.extend(shared_cpus(machine, load));
    all.extend(shared_channels(machine, load));
    all
}

/// Whether a slice leaves several threads to a CPU of programs that the whole machine has CPUs for.
fn shared_cpus(machine: &Machine, &Load { threads, .. }: &Load) -> Option<String> {
    let (cpus, all) = (machine.reduced().cpus() as u64, machine.cpus() as u64);
    (threads > cpus && threads <= all).then(|| {
        format!("{threads} threads share the {cpus} CPUs of this slice; the whole machine has {all}.")
    })
}

fn shared_channels(machine: &Machine, load: &Load) -> Option<String> {
    let small = machine.reduced();
    let nodes = small.nodes.iter().zip(&load.access_shares);
    let served: Vec<String> = nodes
        .filter(|(node, _)| node.dram.is_some() && node.sharing_slices > 1)
        .filter(|(_, share)| **share > SHARED_ACCESSES)
        .map(|(node, share)| format!("{:.0} % ({})", share * 100.0, node.name))
        .collect();
    (!served.is_empty()).then(|| {
        format!(
            "Of the accesses, up to {} go to a node of which this slice has a part of a channel only; the \
             other slices are taken to load that channel in the same way, a microsecond later.",
            served.join(", ")
        )
    })
}

//! Outcome of a run.

use std::path::PathBuf;

use memtide_lab_protocol::agent::{Ending, Sample};
use memtide_lab_protocol::clock::Results;
use serde::{Deserialize, Serialize};

/// Outcome of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunOutcome {
    /// The machine.
    pub machine: String,
    /// Virtual CPUs.
    pub vcpus: u16,
    /// Whether they ran in parallel: another run has another outcome.
    pub parallel: bool,
    /// Release of the guest's kernel.
    pub kernel: String,
    /// Version of QEMU.
    pub qemu: String,
    /// The program's exit status; 128 + N if signal N ended it.
    pub status: u8,
    /// The signal that ended it.
    pub signal: Option<u8>,
    /// Run time of the program on the guest's clock, in ns.
    pub guest_ns: u64,
    /// Host time of the boot, in s.
    pub boot_seconds: f64,
    /// Host time of the program, in s.
    pub program_seconds: f64,
    /// Kernel counters over the program's run.
    pub events: Events,
    /// By node.
    pub nodes: Vec<NodeOutcome>,
    /// Memory in use over time.
    pub samples: Vec<Sample>,
    /// Results of the clock plugin, if the run was timed.
    pub timing: Option<Results>,
    /// Deviations from the machine file, and problems in the guest.
    pub notes: Vec<String>,
    /// The run's folder, if kept.
    pub kept: Option<PathBuf>,
}

/// Kernel counters over the program's run (`/proc/vmstat`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Events {
    /// Page faults.
    pub faults: u64,
    /// Major page faults.
    pub major_faults: u64,
    /// NUMA hint faults.
    pub hint_faults: u64,
    /// Pages migrated.
    pub migrated_pages: u64,
    /// Pages promoted to a faster tier.
    pub promoted_pages: u64,
    /// Pages demoted to a slower tier.
    pub demoted_pages: u64,
    /// Huge pages allocated by faults.
    pub huge_faults: u64,
    /// Processes killed for lack of memory.
    pub out_of_memory_kills: u64,
}

/// A node of the guest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeOutcome {
    /// Its name in the machine file.
    pub name: String,
    /// Its memory in MiB.
    pub mib: u64,
    /// Allocations served from it; a huge page counts as one.
    pub allocations: u64,
    /// Peak of memory used by programs, in MiB; `None` if the run was too short for a sample.
    pub peak_mib: Option<f64>,
    /// Mean over time of memory used by programs, in MiB.
    pub mean_mib: Option<f64>,
}

impl Events {
    /// From the agent's counters.
    pub(crate) fn of(ending: &Ending) -> Events {
        let sum = |names: &[&str]| names.iter().map(|name| ending.counters.event(name)).sum();
        Events {
            faults: sum(&["pgfault"]),
            major_faults: sum(&["pgmajfault"]),
            hint_faults: sum(&["numa_hint_faults"]),
            migrated_pages: sum(&["pgmigrate_success"]),
            promoted_pages: sum(&["pgpromote_success"]),
            demoted_pages: sum(&[
                "pgdemote_kswapd",
                "pgdemote_direct",
                "pgdemote_khugepaged",
                "pgdemote_proactive",
            ]),
            huge_faults: sum(&["thp_fault_alloc"]),
            out_of_memory_kills: sum(&["oom_kill"]),
        }
    }
}

impl NodeOutcome {
    /// A node's figure by its number.
    pub(crate) fn of(number: usize, name: &str, mib: u64, ending: &Ending) -> NodeOutcome {
        let in_use = |sample: &Sample| sample.nodes_kib.get(number).map(|&kib| kib as f64 / 1024.0);
        NodeOutcome {
            name: name.to_owned(),
            mib,
            allocations: ending.counters.nodes.get(number).map_or(0, |node| node.allocations),
            peak_mib: ending.samples.iter().filter_map(in_use).reduce(f64::max),
            mean_mib: mean_over_time(&ending.samples, in_use),
        }
    }
}

/// Time-weighted mean: each sample stands for the time since the previous one.
fn mean_over_time(samples: &[Sample], value: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
    let (mut before, mut sum) = (0, 0.0);
    for sample in samples {
        sum += value(sample)? * (sample.guest_ns - before) as f64;
        before = sample.guest_ns;
    }
    (before > 0).then(|| sum / before as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_weighted_by_interval() {
        let sample = |guest_ns, kib| Sample { guest_ns, nodes_kib: vec![kib] };
        let samples = [sample(10, 1024), sample(40, 5120)];
        let mean =
            mean_over_time(&samples, |sample| sample.nodes_kib.first().map(|&kib| kib as f64 / 1024.0));
        assert_eq!(mean, Some((10.0 + 30.0 * 5.0) / 40.0));
        assert_eq!(mean_over_time(&[], |_| Some(1.0)), None);
    }
}

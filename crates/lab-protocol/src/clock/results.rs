//! What the clock plugin has measured, as a JSON file.

use serde::{Deserialize, Serialize};

use super::Timeline;
use crate::json::{self, ProtocolError};
use crate::version::CLOCK_PROTOCOL;
use crate::{Counts, Process, Who};

/// What the plugin has measured so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Whether the guest's clock follows the model.
    pub hook: bool,
    /// Why not.
    pub why: Option<String>,
    /// Regions of interest so far, in order.
    pub regions: Vec<RegionTotals>,
}

/// What happened in a region of interest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegionTotals {
    /// Time on the guest's clock from the program's start to the region's, in ns.
    pub start_ns: f64,
    /// Time on the guest's clock, in ns.
    pub guest_ns: f64,
    /// Processor time of the host that it took, in ns: the one figure that differs from run to run.
    pub host_cpu_ns: u64,
    /// The sum over all processes.
    pub total: Counts,
    /// Processes that ran, in the order in which they were first seen.
    pub processes: Vec<Process>,
    /// Traffic over time.
    pub timeline: Timeline,
}

impl RegionTotals {
    /// Instructions of the program and the processes that it started, outside the kernel.
    pub fn program_instructions(&self) -> u64 {
        let own = self.processes.iter().filter(|process| process.who == Who::Program);
        own.fold(0, |sum: u64, process| sum.saturating_add(process.counts.user_instructions))
    }

    /// All other instructions: the kernel's, on the program's behalf or not, and those of other processes.
    pub fn outside_instructions(&self) -> u64 {
        self.total.instructions.saturating_sub(self.program_instructions())
    }
}

impl Results {
    /// The sum of all regions, which begins with the first one; none without any. It has no timeline.
    pub fn all_regions(&self) -> Option<RegionTotals> {
        let (first, others) = self.regions.split_first()?;
        let mut all = RegionTotals { timeline: Timeline::new(Vec::new()), ..first.clone() };
        for region in others {
            all.guest_ns += region.guest_ns;
            all.host_cpu_ns = all.host_cpu_ns.saturating_add(region.host_cpu_ns);
            all.total.add(&region.total);
            for process in &region.processes {
                let same = |one: &&mut Process| {
                    (one.root, &one.name, one.who) == (process.root, &process.name, process.who)
                };
                match all.processes.iter_mut().find(same) {
                    Some(known) => known.counts.add(&process.counts),
                    None => all.processes.push(process.clone()),
                }
            }
        }
        Some(all)
    }

    /// What the plugin writes.
    pub fn to_json(&self) -> Vec<u8> {
        json::encode(CLOCK_PROTOCOL, self)
    }

    /// What the lab reads.
    ///
    /// # Errors
    /// If it is of another version, or no results of the clock plugin.
    pub fn from_json(text: &[u8]) -> Result<Results, ProtocolError> {
        json::decode("results of the clock plugin", CLOCK_PROTOCOL, text)
    }
}

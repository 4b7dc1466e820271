//! Results of the clock plugin, as a JSON file.

use serde::{Deserialize, Serialize};

use super::Timeline;
use crate::json::{self, ProtocolError};
use crate::version::CLOCK_PROTOCOL;
use crate::{Counts, Process, Who};

/// Results of the clock plugin so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Whether the guest's clock follows the model.
    pub hook: bool,
    /// Why not, if it does not.
    pub why: Option<String>,
    /// Regions of interest so far, in order.
    pub regions: Vec<RegionTotals>,
}

/// Results of a region of interest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegionTotals {
    /// Start of the region on the guest's clock, in ns since the program's start.
    pub start_ns: f64,
    /// Duration on the guest's clock, in ns.
    pub guest_ns: f64,
    /// Host CPU time, in ns: the only figure that differs between runs.
    pub host_cpu_ns: u64,
    /// The sum over all processes.
    pub total: Counts,
    /// Processes that ran, in order of first appearance.
    pub processes: Vec<Process>,
    /// Traffic over time.
    pub timeline: Timeline,
}

impl RegionTotals {
    /// User instructions of the program and its descendants.
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
    /// The sum of all regions, starting with the first, without a timeline; `None` without regions.
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

    /// Serialises the results.
    pub fn to_json(&self) -> Vec<u8> {
        json::encode(CLOCK_PROTOCOL, self)
    }

    /// Parses results.
    ///
    /// # Errors
    /// If it has another version or is not the clock plugin's results.
    pub fn from_json(text: &[u8]) -> Result<Results, ProtocolError> {
        json::decode("results of the clock plugin", CLOCK_PROTOCOL, text)
    }
}

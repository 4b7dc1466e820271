//! Monitors: means to find out which regions processes access.

use std::fmt;
use std::io;

use memtide_core::policy::RegionSampling;
use serde::{Deserialize, Serialize};

use super::damon::Damon;
use super::smaps::Smaps;
use super::soft_dirty::SoftDirty;
use crate::processes::Process;

/// Consecutive base pages of a process with the same access count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Number of the first page (address / 4096).
    pub start: u64,
    /// Number of pages.
    pub pages: u64,
    /// Samples of the last aggregation interval with an access, reads or writes.
    pub accesses: u32,
    /// Aggregation intervals since the run last changed.
    pub age: u32,
}

/// Resident base pages from which on a process's bits are not cleared: its page faults wait for the clearing,
/// about 0.1 s for 4 GiB.
pub const CLEARED_MAX: u64 = 1 << 20;

/// Watches processes.
pub trait RegionMonitor: fmt::Debug + Send {
    /// Replaces the watched processes. The state of those watched before is kept.
    ///
    /// # Errors
    /// The kernel's, with the file at fault.
    fn watch(&mut self, processes: &[Process]) -> io::Result<()>;

    /// The recent accesses of each watched process, in the order of [`watch`](RegionMonitor::watch); runs in
    /// address order.
    ///
    /// # Errors
    /// The kernel's, with the file at fault.
    fn read(&mut self) -> io::Result<Vec<Vec<Found>>>;

    /// Samples counted in what was read last, if the monitor chose their interval for a budget; 0 if there
    /// were no new ones.
    fn samples(&self) -> Option<u32> {
        None
    }
}

/// A kind of monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// [`Damon`].
    Damon,
    /// [`Smaps`].
    Smaps,
}

impl Kind {
    /// All kinds, the best first.
    pub const ALL: [Kind; 2] = [Kind::Damon, Kind::Smaps];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Damon => "damon",
            Kind::Smaps => "smaps",
        }
    }

    /// Whether it can be used here.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn check(self) -> Result<(), Unusable> {
        match self {
            Kind::Damon => Damon::check(),
            Kind::Smaps => Ok(Smaps::check()?),
        }
    }

    fn make(self, needs: &RegionSampling) -> Box<dyn RegionMonitor> {
        match self {
            Kind::Damon => Box::new(Damon::new(needs)),
            Kind::Smaps => Box::new(Smaps::new(needs)),
        }
    }
}

/// Why a monitor cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}{}", match remedy {
    Some(Remedy::Command(command)) => format!("; to fix it: `{command}`"),
    Some(Remedy::Release { owner, .. }) => format!("; used by {owner}"),
    Some(Remedy::Root) | None => String::new(),
})]
pub struct Unusable {
    /// The obstacle.
    pub why: String,
    /// The remedy, if there is one.
    pub remedy: Option<Remedy>,
}

/// How to make a monitor usable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Run memtide's daemon as root.
    Root,
    /// Run this command; it stops nothing that is in use.
    Command(String),
    /// Its user must end it; if it is not needed, a command stops it.
    Release {
        /// Its user, and how to end it there.
        owner: String,
        /// What the command stops.
        stops: &'static str,
        /// The command.
        command: String,
    },
}

impl From<io::Error> for Unusable {
    fn from(error: io::Error) -> Unusable {
        Unusable { why: error.to_string(), remedy: None }
    }
}

/// A kind of monitor, and whether it can be used here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usable {
    /// Its name.
    pub name: &'static str,
    /// What it reports.
    pub reports: &'static str,
    /// Why it cannot be used, if so.
    pub why_not: Option<Unusable>,
}

/// All kinds of monitors, the best first.
pub fn usable() -> Vec<Usable> {
    let usable = |name, reports, check: Result<(), Unusable>| Usable { name, reports, why_not: check.err() };
    vec![
        usable("damon", "accesses, by adaptive regions", Kind::Damon.check()),
        usable("smaps", "accesses, by whole mappings", Kind::Smaps.check()),
        usable(
            "soft-dirty",
            "writes, for policies that request them",
            SoftDirty::check().map_err(Unusable::from),
        ),
    ]
}

/// The selected monitor.
#[derive(Debug)]
pub struct Chosen {
    /// Its kind.
    pub kind: Kind,
    /// Why the better kinds were not selected.
    pub why_not_better: Option<String>,
    /// The monitor, without processes to watch.
    pub monitor: Box<dyn RegionMonitor>,
    needs: RegionSampling,
    wanted: Option<Kind>,
}

impl Chosen {
    /// Selects again after this monitor has failed; if it `never_worked`, another kind.
    ///
    /// # Errors
    /// Why no monitor works. This one stays.
    pub fn choose_again(&mut self, never_worked: bool) -> io::Result<()> {
        *self = choose_but(never_worked.then_some(self.kind), &self.needs, self.wanted)?;
        Ok(())
    }
}

/// The requested monitor, or the best that can be used here.
///
/// # Errors
/// Why there is none.
pub fn choose(needs: &RegionSampling, wanted: Option<Kind>) -> io::Result<Chosen> {
    choose_but(None, needs, wanted)
}

fn choose_but(useless: Option<Kind>, needs: &RegionSampling, wanted: Option<Kind>) -> io::Result<Chosen> {
    let mut passed_over = Vec::new();
    for kind in Kind::ALL.into_iter().filter(|kind| wanted.is_none_or(|wanted| wanted == *kind)) {
        match kind.check() {
            Ok(()) if useless == Some(kind) => {
                passed_over.push(format!("{}: it failed each time", kind.name()))
            }
            Ok(()) => {
                let why_not_better = (!passed_over.is_empty()).then(|| passed_over.join("; "));
                return Ok(Chosen { kind, why_not_better, monitor: kind.make(needs), needs: *needs, wanted });
            }
            Err(why) => passed_over.push(format!("{}: {why}", kind.name())),
        }
    }
    Err(io::Error::other(passed_over.join("; ")))
}

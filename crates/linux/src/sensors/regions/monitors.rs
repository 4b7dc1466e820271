//! Monitors: ways to find out which regions processes access.

use std::fmt;
use std::io;

use memtide_core::policy::RegionSampling;
use serde::{Deserialize, Serialize};

use super::damon::Damon;
use super::smaps::Smaps;
use super::soft_dirty::SoftDirty;
use crate::processes::Process;

/// Neighbouring base pages of a process that were accessed alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The first, as its address / 4096.
    pub start: u64,
    /// How many.
    pub pages: u64,
    /// Samples of the last aggregation interval that were accesses, reads or writes.
    pub accesses: u32,
    /// Aggregation intervals since the run last changed.
    pub age: u32,
}

/// Base pages of a process in memory from which on its bits are not cleared: its page faults wait while they are, some tenth of a second
/// for 4 GiB.
pub const CLEARED_MAX: u64 = 1 << 20;

/// Watches processes.
pub trait RegionMonitor: fmt::Debug + Send {
    /// Watches these processes, and no others, from now on. What is known of those that were watched before is kept.
    ///
    /// # Errors
    /// The kernel's, told with the file at fault.
    fn watch(&mut self, processes: &[Process]) -> io::Result<()>;

    /// What each process that is watched accessed lately, in the order that they were given; runs in the order of their addresses.
    ///
    /// # Errors
    /// The kernel's, told with the file at fault.
    fn read(&mut self) -> io::Result<Vec<Vec<Found>>>;
}

/// A way to watch which memory is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// [`Damon`].
    Damon,
    /// [`Smaps`].
    Smaps,
}

impl Kind {
    /// All, the best first.
    pub const ALL: [Kind; 2] = [Kind::Damon, Kind::Smaps];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Damon => "damon",
            Kind::Smaps => "smaps",
        }
    }

    /// Whether it can be used here.
    ///
    /// # Errors
    /// Why not.
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

/// Why a way to watch memory cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}{}", match mend {
    Some(Mend::Command(command)) => format!("; to fix it: `{command}`"),
    Some(Mend::Release { owner, .. }) => format!("; used by {owner}"),
    Some(Mend::Root) | None => String::new(),
})]
pub struct Unusable {
    /// What is in the way.
    pub why: String,
    /// How to make it usable, if that is possible.
    pub mend: Option<Mend>,
}

/// How to make a way to watch memory usable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mend {
    /// Run memtide's daemon as root.
    Root,
    /// Run this command, which stops nothing and is none of memtide's.
    Command(String),
    /// Have who uses it end it in order; if nobody needs it, a command stops it.
    Release {
        /// Who may use it, and how they end it.
        owner: String,
        /// What the command stops.
        stops: &'static str,
        /// The command.
        command: String,
    },
}

impl From<io::Error> for Unusable {
    fn from(error: io::Error) -> Unusable {
        Unusable { why: error.to_string(), mend: None }
    }
}

/// A way to watch memory, and whether it can be used here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usable {
    /// What it is called.
    pub name: &'static str,
    /// What it tells.
    pub tells: &'static str,
    /// Why it cannot be used, if it cannot.
    pub why_not: Option<Unusable>,
}

/// All ways to watch memory, the best first.
pub fn usable() -> Vec<Usable> {
    let usable = |name, tells, check: Result<(), Unusable>| Usable { name, tells, why_not: check.err() };
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

/// A monitor that was chosen.
#[derive(Debug)]
pub struct Chosen {
    /// Which.
    pub kind: Kind,
    /// Why the better ones were not.
    pub why_not_better: Option<String>,
    /// It, watching nobody yet.
    pub monitor: Box<dyn RegionMonitor>,
    needs: RegionSampling,
    wanted: Option<Kind>,
}

impl Chosen {
    /// Looks for the best one again, for this one has failed; if it `never_worked`, for another one.
    ///
    /// # Errors
    /// Why there is none now. This one stays.
    pub fn choose_again(&mut self, never_worked: bool) -> io::Result<()> {
        *self = choose_but(never_worked.then_some(self.kind), &self.needs, self.wanted)?;
        Ok(())
    }
}

/// The monitor that is asked for, or the best that can be used here.
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

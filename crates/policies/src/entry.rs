//! How a policy registers: what is known of it, its parameters, and how it is made.

use memtide_core::Machine;
use memtide_core::params::{Parameter, Values};
use memtide_core::policy::{Migration, Placement};

/// What there is to know about a policy.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// Its name.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// Where it comes from: paper and algorithm or equation, or kernel documentation.
    pub source: &'static str,
    /// Whether it uses the nodes' latencies or bandwidths, and not tiers and nearness alone.
    pub figures: bool,
    /// Its parameters.
    pub parameters: &'static [Parameter],
}

/// A placement policy for a machine, or why its values do not fit the machine.
pub(crate) type Made = Result<Box<dyn Placement>, String>;

/// A placement policy in the list of all.
pub(crate) struct PlacementEntry {
    pub(crate) info: Info,
    /// Makes it for a machine.
    pub(crate) make: fn(&Machine, &Values) -> Made,
}

/// A migration policy in the list of all.
pub(crate) struct MigrationEntry {
    pub(crate) info: Info,
    /// Whether values, each of them allowed, go together.
    pub(crate) check: fn(&Values) -> Result<(), String>,
    /// Makes it for a machine.
    pub(crate) make: fn(&Machine, &Values) -> Box<dyn Migration>,
}

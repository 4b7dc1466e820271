//! Registration of a policy: its description, parameters and constructor.

use memtide_core::Machine;
use memtide_core::params::{Kind, Parameter, Values};
use memtide_core::policy::{Migration, Placement};

/// Description of a policy.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// Its name.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// When to use it (docs/which-policy).
    pub when: &'static str,
    /// Its source: paper and algorithm or equation, or kernel documentation.
    pub source: &'static str,
    /// Whether it needs the nodes' latencies or bandwidths: tiers and distances do not stand in for them.
    pub figures: bool,
    /// Its parameters.
    pub parameters: &'static [Parameter],
}

impl Info {
    /// Whether a parameter names nodes: what it does is then the user's choice.
    pub fn chooses_nodes(&self) -> bool {
        self.parameters.iter().any(|parameter| matches!(parameter.kind, Kind::Nodes { .. }))
    }
}

/// A placement policy for a machine, or why its values do not fit the machine.
pub(crate) type Made = Result<Box<dyn Placement>, String>;

/// Entry of a placement policy.
pub(crate) struct PlacementEntry {
    pub(crate) info: Info,
    /// Creates it for a machine.
    pub(crate) make: fn(&Machine, &Values) -> Made,
}

/// Entry of a migration policy.
pub(crate) struct MigrationEntry {
    pub(crate) info: Info,
    /// Checks the combination of individually allowed values.
    pub(crate) check: fn(&Values) -> Result<(), String>,
    /// Creates it for a machine.
    pub(crate) make: fn(&Machine, &Values) -> Box<dyn Migration>,
}

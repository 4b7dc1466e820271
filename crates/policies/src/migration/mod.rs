//! Migration policies, one file each.

mod anb;
mod bw_migration;
mod hot_cold;
mod none;
mod runs;
mod shared;
mod trigger;

use crate::entry::MigrationEntry;

/// Every migration policy.
pub(crate) const ALL: &[MigrationEntry] = &[none::ENTRY, anb::ENTRY, bw_migration::ENTRY, hot_cold::ENTRY];

/// How a migration policy registers.
pub(crate) struct MigrationEntry {
    pub(crate) info: Info,
    /// Whether values, each of them allowed, go together.
    pub(crate) check: fn(&Values) -> Result<(), String>,
    /// Makes it for a machine.
    pub(crate) make: fn(&Machine, &Values) -> Box<dyn Migration>,
}

/// The policy `none`: pages stay.
pub fn no_migration() -> Box<dyn Migration> {
    Box::new(none::Stay)
}

/// The epoch of policies that act on hint faults alone: the period of the scanner that brings them about.
fn scan_period(machine: &Machine) -> Time {
    Time::from_ns(machine.kernel.numa_scan_period_ms * 1e6)
}

/// What a policy remembers, as text.
fn to_text(state: &impl Serialize) -> String {
    serde_json::to_string(state).expect("a policy's state is lists of numbers")
}

/// The same from text.
fn from_text<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| format!("no state of this policy: {error}"))
}

#[cfg(test)]
mod tests;

//! Parts that migration policies have in common.

use memtide_core::{Machine, Time};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The epoch of policies that act on hint faults alone: the period of the scanner that brings them about.
pub(super) fn scan_period(machine: &Machine) -> Time {
    Time::from_ns(machine.kernel.numa_scan_period_ms * 1e6)
}

/// What a policy remembers, as text.
pub(super) fn to_text(state: &impl Serialize) -> String {
    serde_json::to_string(state).expect("a policy's state is lists of numbers")
}

/// The same from text.
pub(super) fn from_text<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| format!("not a state of this policy: {error}"))
}

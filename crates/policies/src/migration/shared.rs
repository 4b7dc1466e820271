//! Shared by migration policies.

use memtide_core::{Machine, Time};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The epoch of policies that only act on hint faults: the scanner's period.
pub(super) fn scan_period(machine: &Machine) -> Time {
    Time::from_ns(machine.kernel.numa_scan_period_ms * 1e6)
}

/// A policy's state as text.
pub(super) fn to_text(state: &impl Serialize) -> String {
    serde_json::to_string(state).expect("a policy's state is lists of numbers")
}

/// Parses a policy's state.
pub(super) fn from_text<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| format!("not a state of this policy: {error}"))
}

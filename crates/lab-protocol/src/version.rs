//! Versions of the formats between the lab's parts. A change of a format raises its version; tests compare
//! each format with a golden text.

/// Version of the lab's tasks and its agent's messages ([`crate::agent`]).
pub const AGENT_PROTOCOL: u32 = 1;

/// Version of the clock plugin's configuration and results ([`crate::clock`]).
pub const CLOCK_PROTOCOL: u32 = 1;

/// Layout version of the counters page ([`crate::counters`]), its second word.
pub const COUNTERS_LAYOUT: u64 = 1;

/// What `memtide-guest --version` prints: memtide's version, and that of the protocol between the lab and its
/// agent.
pub fn agent_version() -> String {
    format!("{} (protocol {AGENT_PROTOCOL})", env!("CARGO_PKG_VERSION"))
}

//! The processor's side of a machine: initiators, cores, caches, TLBs, prefetcher.

use serde::{Deserialize, Serialize};

use crate::units::Time;

/// A group of CPUs that reaches memory in the same way, such as a socket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Initiator {
    /// Name, for links and nodes to refer to.
    pub name: String,
    /// CPUs in it, at least 1. Simultaneous threads of one core are not modelled: a CPU is a core.
    pub cpus: u16,
}

/// A core.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Core {
    /// Clock in MHz, 1 to 100 000.
    pub clock_mhz: f64,
    /// Instructions retired a cycle when nothing waits for memory, 0.01 to 16.
    pub instructions_per_cycle: f64,
    /// Instructions between the oldest unfinished one and the newest that may start; 1 is an in-order core.
    pub reorder_buffer: u32,
    /// Lines that one core may wait for at once (line fill buffers, MSHRs), 1 to 64.
    pub outstanding_misses: u16,
    /// Consecutive whole lines that stores must overwrite before the next ones are allocated without being
    /// fetched; 0, the default, always fetches.
    #[serde(default)]
    pub write_streaming_lines: u16,
}

impl Core {
    /// Time of `cycles` core cycles.
    pub fn cycles(&self, cycles: f64) -> Time {
        Time::from_ns(cycles * 1e3 / self.clock_mhz)
    }
}

/// A cache level: set-associative, write-back, write-allocate, least recently used line replaced first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// Name, such as `L1d`.
    pub name: String,
    /// Capacity in KiB of one instance.
    pub capacity_kib: u64,
    /// Ways of a set.
    pub ways: u16,
    /// Load-to-use latency of a hit, in core cycles, counted from the start of the access.
    pub latency_cycles: f64,
    /// CPUs that share one instance, counted through an initiator's CPUs; 1 is a private cache.
    #[serde(default = "private")]
    pub shared_by: u16,
    /// An instance is a share of a cache that more CPUs of the real machine share: a shared level even with
    /// one CPU.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub slice: bool,
}

fn private() -> u16 {
    1
}

impl Cache {
    /// Whether several CPUs share an instance, or would on the real machine.
    pub fn is_shared(&self) -> bool {
        self.shared_by > 1 || self.slice
    }
}

/// A TLB level, private to its core.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tlb {
    /// Name, such as `L2`.
    pub name: String,
    /// Translations it holds, of 4 KiB and 2 MiB pages alike.
    pub entries: u32,
    /// Ways of a set.
    pub ways: u16,
    /// Cycles that a hit in this level costs above a hit in the first.
    #[serde(default)]
    pub latency_cycles: f64,
    /// Cycles of a page walk after a miss in this level; read from the last level.
    #[serde(default)]
    pub walk_cycles: f64,
}

/// A stream prefetcher: it finds ascending or descending lines within a page and fetches ahead of them into the
/// last cache level.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prefetcher {
    /// Streams that it follows at once on one core.
    pub streams: u16,
    /// How many lines ahead of a stream it fetches, 1 to 64; it does not cross a 4 KiB page.
    pub distance_lines: u16,
}

impl super::Machine {
    /// How long after it begins an access may end without holding its core up: the time in which the reorder
    /// buffer fills, or a hit in the first cache takes, for which compilers schedule.
    pub fn hidden_latency(&self) -> Time {
        let instructions = f64::from(self.core.reorder_buffer) / self.core.instructions_per_cycle;
        let hit = self.caches.first().map_or(0.0, |c| c.latency_cycles);
        self.core.cycles(instructions.max(hit))
    }
}

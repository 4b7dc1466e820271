//! The processor's part of a machine: initiators, cores, caches, TLBs, prefetcher.

use serde::{Deserialize, Serialize};

use crate::units::Time;

/// A group of CPUs with equal routes to memory, such as a socket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Initiator {
    /// Name, referred to by links and nodes.
    pub name: String,
    /// Number of CPUs, at least 1. Simultaneous multithreading is not modelled: a CPU is a core.
    pub cpus: u16,
}

/// A core.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Core {
    /// Clock in MHz, 1 to 100 000.
    pub clock_mhz: f64,
    /// Instructions retired per cycle without memory stalls, 0.01 to 16.
    pub instructions_per_cycle: f64,
    /// Size of the reorder buffer in instructions; 1 is an in-order core.
    pub reorder_buffer: u32,
    /// Entries of the store queue, 1 to 1024: stores leave it in program order, once their lines are there.
    /// 64 is the default.
    #[serde(default = "store_queue")]
    pub store_queue: u16,
    /// Maximum outstanding lines of one core (line fill buffers, MSHRs), 1 to 64.
    pub outstanding_misses: u16,
    /// Consecutive whole lines that stores must overwrite before further ones are allocated without a fetch;
    /// 0, the default, always fetches.
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
    /// Associativity.
    pub ways: u16,
    /// Load-to-use latency of a hit, in core cycles, counted from the start of the access.
    pub latency_cycles: f64,
    /// CPUs of an initiator that share one instance; 1 is a private cache.
    #[serde(default = "private")]
    pub shared_by: u16,
    /// An instance is a share of a cache that more CPUs of the real machine share: a shared level even with
    /// one CPU.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub slice: bool,
}

fn store_queue() -> u16 {
    64
}

fn private() -> u16 {
    1
}

fn one() -> u16 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_one(number: &u16) -> bool {
    *number == 1
}

fn three() -> u16 {
    3
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_three(number: &u16) -> bool {
    *number == 3
}

impl Cache {
    /// Whether an instance is shared by several CPUs here or on the real machine.
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
    /// Number of translations, of 4 KiB and 2 MiB pages.
    pub entries: u32,
    /// Associativity.
    pub ways: u16,
    /// Cycles of a hit in this level, in addition to a hit in the first.
    #[serde(default)]
    pub latency_cycles: f64,
    /// Cycles of a page walk after a miss in this level, with the page table in a private cache if
    /// `cold_walk_cycles` is given; of this and the following figures only the last level's count.
    #[serde(default)]
    pub walk_cycles: f64,
    /// Cycles of a page walk that finds a line of the page table in no private cache; without it, walks read
    /// no lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cold_walk_cycles: Option<f64>,
    /// Walks pass two page tables, a virtual machine's and its hypervisor's, and read a line of each.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nested_walks: bool,
    /// Concurrent page walks of a core, 1 to 64.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub walkers: u16,
}

/// A stream prefetcher: detects ascending or descending lines within a page, at a fixed stride, and
/// prefetches into the last cache level.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prefetcher {
    /// Maximum concurrent streams per core.
    pub streams: u16,
    /// Prefetch distance in lines, 1 to 64, within a 4 KiB page.
    pub distance_lines: u16,
    /// Largest stride that is recognised, in lines, 1 to 32: lines at that distance are prefetched.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub stride_lines: u16,
    /// Misses of consecutive lines that start a stream, 2 or 3; larger strides need three.
    #[serde(default = "three", skip_serializing_if = "is_three")]
    pub trigger_misses: u16,
    /// Ascending streams continue in the next page of the program's memory.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub next_page: bool,
    /// Prefetched lines go into the core's first cache as well.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub first_cache: bool,
}

impl super::Machine {
    /// Latency of an access that does not stall its core: the time to fill the reorder buffer, or a hit in
    /// the first cache, for which compilers schedule.
    pub fn hidden_latency(&self) -> Time {
        let instructions = f64::from(self.core.reorder_buffer) / self.core.instructions_per_cycle;
        let hit = self.caches.first().map_or(0.0, |c| c.latency_cycles);
        self.core.cycles(instructions.max(hit))
    }
}

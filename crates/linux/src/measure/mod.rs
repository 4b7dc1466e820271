//! Measures a memory node from a CPU: latency, idle and under load, and bandwidth, by running loads and
//! stores.
//!
//! A chase visits all lines in one random cycle, which no prefetcher follows.

mod chase;
mod clock;
mod faults;
mod figure;
mod ladder;
mod loaded;
mod next_page;
mod overlap;
mod region;
mod reorder;
mod tlb;
mod traffic;
mod writes;

use std::io;
use std::time::Duration;

use memtide_core::{CpuId, NodeId, PageSize};

pub use self::chase::{Idle, idle_latency};
pub use self::clock::clock_mhz;
pub use self::faults::fault_ns;
pub use self::figure::Figure;
pub use self::ladder::{Rung, cache_latencies_ns, cold_walk_ns, footprints_kib, memory_ns, rung};
pub use self::loaded::{Loaded, loaded_latency};
pub use self::next_page::{follows_next_page, page_ns};
pub use self::overlap::{LastCache, Overlap, last_cache, overlap};
pub use self::region::{RegionFigures, RegionMeter, in_base_pages};
pub use self::reorder::{RunAhead, RunAheadPoint, run_ahead};
pub use self::tlb::{TlbPoint, TlbReach, page_counts, tlb_point, tlb_reach};
pub use self::traffic::{Kernel, bandwidth_mbps};
pub use self::writes::{MOST_WRITES_PER_READ, write_mbps};

use crate::sys::Words;

/// Memory size, repetitions and time limit.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// MiB of the chase, and of each CPU's traffic.
    pub mib: usize,
    /// Loads per chase, in five parts.
    pub loads: u64,
    /// Passes over each CPU's memory.
    pub rounds: u32,
    /// Time limit per measurement: no further part or round starts after it; one always runs.
    pub limit: Duration,
    /// Seed of the chase's order.
    pub seed: u64,
}

impl Effort {
    /// Bytes of the chase, and of each CPU's traffic.
    fn bytes(&self) -> usize {
        self.mib << 20
    }
}

/// Why a node cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The kernel refuses the memory.
    #[error("cannot allocate {mib} MiB on node {}: {source}", node.0)]
    Memory {
        /// The node.
        node: NodeId,
        /// Requested size.
        mib: usize,
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel refuses the CPU.
    #[error("cannot run a thread on CPU {}: {source}", cpu.0)]
    Cpu {
        /// The CPU.
        cpu: CpuId,
        /// The kernel's error.
        source: io::Error,
    },
}

/// Whether this system is a virtual machine, as its CPUs report it (x86-64).
pub fn is_virtual_machine() -> bool {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = cpus.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"))
}

/// Pins the calling thread to one CPU.
fn pinned(cpu: CpuId) -> Result<(), MeasureError> {
    crate::run_on(&[cpu]).map_err(|source| MeasureError::Cpu { cpu, source })
}

/// Pins the calling thread to one CPU and allocates memory on a node, in pages of this size if available.
fn on(cpu: CpuId, node: NodeId, bytes: usize, pages: PageSize) -> Result<Words, MeasureError> {
    pinned(cpu)?;
    let mib = bytes.div_ceil(1 << 20);
    let mut words =
        Words::untouched(bytes, node, pages).map_err(|source| MeasureError::Memory { node, mib, source })?;
    words.touch();
    Ok(words)
}

#[cfg(test)]
const SMALL: Effort = Effort { mib: 12, loads: 100_000, rounds: 3, limit: Duration::from_secs(60), seed: 1 };

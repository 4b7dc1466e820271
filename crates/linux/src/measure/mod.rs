//! Measures a memory node from a CPU: latency, idle and under load, and bandwidth, by running loads and
//! stores.
//!
//! A chase visits lines so that no stream prefetcher follows and few of them need a page walk: the pages in
//! random order, each page's 64 lines 27 lines apart, wrapping around.

mod chase;
mod figure;
mod loaded;
mod traffic;
mod writes;

use std::io;
use std::time::Duration;

use memtide_core::{CpuId, NodeId};

pub use self::chase::{Idle, idle_latency};
pub use self::figure::Figure;
pub use self::loaded::{Loaded, loaded_latency};
pub use self::traffic::{Kernel, bandwidth_mbps};
pub use self::writes::write_mbps;

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

/// Pins the calling thread to one CPU and allocates memory on a node.
fn on(cpu: CpuId, node: NodeId, mib: usize) -> Result<Words, MeasureError> {
    crate::run_on(&[cpu]).map_err(|source| MeasureError::Cpu { cpu, source })?;
    Words::on_node(mib << 20, node).map_err(|source| MeasureError::Memory { node, mib, source })
}

#[cfg(test)]
const SMALL: Effort = Effort { mib: 12, loads: 100_000, rounds: 3, limit: Duration::from_secs(60), seed: 1 };

//! What a memory node gives a CPU: idle latency and bandwidth, by running loads and stores.
//!
//! Lines are visited so that no stream prefetcher follows and few of them need a page walk: the pages in a random order, each
//! page's 64 lines 27 lines apart, around and around.

mod chase;
mod traffic;

use std::io;

use memtide_core::{CpuId, NodeId};

pub use self::chase::idle_latency_ns;
pub use self::traffic::{Kernel, bandwidth_mbps};

/// Why a node cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The kernel refuses the memory.
    #[error("no {mib} MiB can be had on node {}: {source}; ask for less with --mib, or see `free memory` in numactl -H", node.0)]
    Memory {
        /// The node.
        node: NodeId,
        /// How much was asked for.
        mib: usize,
        /// What the kernel says.
        source: io::Error,
    },
    /// The kernel refuses the CPU.
    #[error("no thread can run on CPU {}: {source}", cpu.0)]
    Cpu {
        /// The CPU.
        cpu: CpuId,
        /// What the kernel says.
        source: io::Error,
    },
}

/// Has the calling thread run on one CPU.
fn pin(cpu: CpuId) -> Result<(), MeasureError> {
    crate::run_on(&[cpu]).map_err(|source| MeasureError::Cpu { cpu, source })
}

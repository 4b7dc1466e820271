//! The real machine through the interfaces of a stock Linux kernel.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod counters;
mod cpu_budget;
mod cpu_load;
pub mod doctor;
pub mod input;
pub mod live;
pub mod machines;
mod mappings;
pub mod measure;
pub mod movers;
mod own_memory;
pub mod placement;
pub mod processes;
pub mod sensors;
mod sys;
pub mod topology;
mod zones;

use std::io;

use memtide_core::CpuId;
use rustix::thread::{CpuSet, sched_setaffinity};

/// Pins the calling thread, and its future children, to these CPUs.
///
/// # Errors
/// The kernel's, if none of the CPUs is online and allowed.
pub fn run_on(cpus: &[CpuId]) -> io::Result<()> {
    let mut set = CpuSet::new();
    if cpus.iter().any(|cpu| cpu.index() >= CpuSet::MAX_CPU) {
        return Err(io::Error::other(format!("CPUs from {} on are not supported", CpuSet::MAX_CPU)));
    }
    cpus.iter().for_each(|cpu| set.set(cpu.index()));
    Ok(sched_setaffinity(None, &set)?)
}

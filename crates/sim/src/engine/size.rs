//! Checks that the model of a machine fits into the simulator and the host's memory.

use memtide_core::machine::{Cache, Machine, Node, Tlb};
use memtide_core::{LINE_BYTES, PAGE_BYTES};
use memtide_memory::PageWalkers;

use crate::SimError;

/// Maximum simulated memory: 1 TiB, of which each used page takes 15 bytes, or 19 with wear.
const PAGES_MAX: u64 = 1 << 28;

/// Maximum lines of all caches and entries of all TLBs, of 4 to 16 bytes, allocated at the start.
const CACHED_MAX: u64 = 1 << 27;

/// Refuses a machine that is too large at its scale.
pub fn check(machine: &Machine) -> Result<(), SimError> {
    let pages: u64 = machine.nodes.iter().map(Node::pages).sum();
    let lines = PageWalkers::line_limit(machine);
    let too_many = |cache: &Cache| lines > memtide_memory::Cache::line_limit(cache.capacity_kib, cache.ways);
    if pages <= PAGES_MAX && cached(machine) <= CACHED_MAX && !machine.caches.iter().any(too_many) {
        return Ok(());
    }
    Err(SimError::TooLarge { machine: machine.name.clone(), memory_gib: (pages * PAGE_BYTES) >> 30 })
}

/// Lines of all caches and entries of all TLBs.
fn cached(machine: &Machine) -> u64 {
    let cpus = machine.cpus() as u64;
    let cache =
        |cache: &Cache| cpus.div_ceil(cache.shared_by.into()) * (cache.capacity_kib * 1024 / LINE_BYTES);
    let tlb = |tlb: &Tlb| cpus * u64::from(tlb.entries);
    machine.caches.iter().map(cache).sum::<u64>() + machine.tlbs.iter().map(tlb).sum::<u64>()
}

//! Costs of the simulated operating system.

use serde::{Deserialize, Serialize};

use crate::units::PAGE_BYTES;

/// Costs and periods of the operating system's memory management.
///
/// The defaults are assumed: round figures of the order of Linux 6.x on servers of about 2.5 GHz. The ratio
/// of fault to move costs is as measured on Linux 6.12 in guest instructions (a move of a 4 KiB page costs
/// about twice a first-touch fault).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Kernel {
    /// A first-touch fault of a 4 KiB page, zeroing included, in ns.
    pub fault_ns: f64,
    /// A first-touch fault of a 2 MiB page, zeroing included, in ns.
    pub huge_fault_ns: f64,
    /// A NUMA hint fault, in ns.
    pub hint_fault_ns: f64,
    /// A TLB miss on a page table entry that is marked to count it, in ns: the fault that counts it. Of
    /// the order of the 1 us that Thermostat (Agarwal and Wenisch, ASPLOS 2017) reports for BadgerTrap's.
    pub marked_miss_ns: f64,
    /// Isolating and unmapping a page to move, in ns.
    pub unmap_ns: f64,
    /// Invalidating translations on one other CPU (an interrupt), in ns.
    pub shootdown_ns: f64,
    /// Mapping a moved page and freeing its old frame, in ns. The copy itself goes through the memory model.
    pub remap_ns: f64,
    /// Writing a 4 KiB page to swap or reading it back, in ns.
    pub swap_ns: f64,
    /// Checking whether a page was accessed and clearing its bits, for a region monitor, in ns. On Linux 7
    /// this takes about half the guest instructions of a first-touch fault.
    pub sample_ns: f64,
    /// Recording an access for access samples, in ns: Intel's PEBS takes 200 to 300 ns (Akiyama and
    /// Hirofuchi, ROSS 2017).
    pub access_sample_ns: f64,
    /// Checking and clearing the bits of a page table entry in a walk over all of them, in ns: eight entries
    /// share a line of memory.
    pub walk_entry_ns: f64,
    /// Time between two steps of the NUMA hint scanner on one task, in ms.
    pub numa_scan_period_ms: f64,
    /// Memory marked by the scanner per step, in MiB; at least a page of 4 KiB.
    pub numa_scan_mib: f64,
    /// Free memory that placement leaves on a node, in basis points of its capacity (Linux's low watermark).
    pub watermark_low_bp: u32,
    /// Free memory at which reclaim stops, in basis points of a node's capacity (Linux's high watermark).
    pub watermark_high_bp: u32,
}

impl Kernel {
    /// Minimum of [`Kernel::numa_scan_mib`]: a page.
    pub const SCAN_MIB_MIN: f64 = PAGE_BYTES as f64 / (1 << 20) as f64;

    /// Pages of 4 KiB marked by the hint scanner per step, at least 1.
    pub fn numa_scan_pages(&self) -> u64 {
        (libm::round(self.numa_scan_mib / Kernel::SCAN_MIB_MIN) as u64).max(1)
    }
}

impl Default for Kernel {
    fn default() -> Kernel {
        Kernel {
            fault_ns: 500.0,
            huge_fault_ns: 60_000.0,
            hint_fault_ns: 400.0,
            marked_miss_ns: 1000.0,
            unmap_ns: 300.0,
            shootdown_ns: 200.0,
            remap_ns: 300.0,
            swap_ns: 10_000.0,
            sample_ns: 250.0,
            access_sample_ns: 250.0,
            walk_entry_ns: 10.0,
            numa_scan_period_ms: 1000.0,
            numa_scan_mib: 256.0,
            watermark_low_bp: 10,
            watermark_high_bp: 20,
        }
    }
}

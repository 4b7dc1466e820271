//! Free memory of a guest with a part of the machine's memory, in the proportions of the whole machine.
//!
//! - Linux keeps 11 blocks of 2 MiB of each zone free for huge pages, up to 5 % of all memory
//!   (`set_recommended_min_free_kbytes` in mm/khugepaged.c). On a machine of 100 GiB that is less than a
//!   thousandth, in a small guest 5 %. A guest keeps what Linux does without huge pages, until memory is
//!   plugged in: the kernel then chooses again.
//! - The CPUs' lists of free pages may have an eighth of a zone together (`zone_highsize` in
//!   mm/page_alloc.c). A daemon that migrates pages fills those of the CPUs that it runs on, which are many
//!   times as large where a guest has few of the machine's CPUs. A guest's CPU may have what one of the
//!   machine's may.

use memtide_core::Machine;
use memtide_lab_protocol::agent::Write;

use crate::layout::Layout;
use crate::memory::Memory;
use crate::subjects::write;

const MIN_FREE_KBYTES: &str = "/proc/sys/vm/min_free_kbytes";
const LISTS_FRACTION: &str = "/proc/sys/vm/percpu_pagelist_high_fraction";

/// `calculate_min_free_kbytes` in mm/page_alloc.c: the square root of 16 times the memory in KiB, in limits.
const PER_KIB: u64 = 16;
const LIMITS_KIB: (u64, u64) = (128, 262_144);

/// `MIN_PERCPU_PAGELIST_HIGH_FRACTION` in mm/page_alloc.c: part of a zone that the lists may have.
const FRACTION_MIN: u64 = 8;

/// The settings of a guest with a part of the machine's memory; none for a whole machine, whose kernel
/// decides itself.
pub fn settings(machine: &Machine, layout: &Layout) -> Vec<Write> {
    if machine.slice <= 1 && machine.scale <= 1 {
        return Vec::new();
    }
    let of_kernel = layout.nodes.iter().filter(|node| !matches!(node.memory, Memory::Shared(_)));
    let kib: u64 = of_kernel.map(|node| node.mib << 10).sum();
    let (least, most) = LIMITS_KIB;
    let cpus: u64 = machine.reduced().initiators.iter().map(|initiator| u64::from(initiator.cpus)).sum();
    let per_vcpu = cpus.div_ceil(layout.vcpu_initiators.len() as u64);
    vec![
        write(MIN_FREE_KBYTES, (kib * PER_KIB).isqrt().clamp(least, most)),
        write(LISTS_FRACTION, FRACTION_MIN * per_vcpu),
    ]
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn texts(scale: u32) -> Vec<String> {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/comparison/ddr5-cxl-1s.toml");
        let text = fs::read_to_string(file).expect("a file");
        let machine = Machine { scale, ..Machine::parse("ddr5-cxl-1s", &text).expect("a machine") };
        let layout = Layout::new(&machine, Some(2)).expect("a layout");
        settings(&machine, &layout).into_iter().map(|write| write.text).collect()
    }

    #[test]
    fn part_of_a_machine_has_as_little_free_memory_as_the_whole() {
        // Two nodes of 512 MiB: the root of 2^4 x 2^20. 2 of 32 CPUs: a 16th of an eighth.
        assert_eq!(texts(320), ["4096", "128"]);
    }

    #[test]
    fn whole_machine_keeps_what_its_kernel_chooses() {
        assert!(texts(1).is_empty());
    }
}

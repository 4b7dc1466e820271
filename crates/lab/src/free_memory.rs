//! Memory that the guest's kernel keeps free.
//!
//! For transparent huge pages Linux keeps 11 blocks of 2 MiB of each zone free, up to 5 % of all memory
//! (`set_recommended_min_free_kbytes` in mm/khugepaged.c); the per-CPU lists of free pages follow. On a
//! machine of 100 GiB that is less than a thousandth, in a guest with a small part of its memory 5 %. Such a
//! guest keeps what Linux does without huge pages, until memory is plugged in: the kernel then chooses again.

use memtide_core::Machine;
use memtide_lab_protocol::agent::Write;

use crate::layout::Layout;
use crate::memory::Memory;
use crate::subjects::write;

const MIN_FREE_KBYTES: &str = "/proc/sys/vm/min_free_kbytes";

/// `calculate_min_free_kbytes` in mm/page_alloc.c: the square root of 16 times the memory in KiB, in limits.
const PER_KIB: u64 = 16;
const LIMITS_KIB: (u64, u64) = (128, 262_144);

/// The setting for a guest with a part of the machine's memory; none for a whole machine, whose kernel decides
/// itself.
pub fn settings(machine: &Machine, layout: &Layout) -> Option<Write> {
    let is_part = machine.slice > 1 || machine.scale > 1;
    let of_kernel = layout.nodes.iter().filter(|node| !matches!(node.memory, Memory::Shared(_)));
    let kib: u64 = of_kernel.map(|node| node.mib << 10).sum();
    let (least, most) = LIMITS_KIB;
    is_part.then(|| write(MIN_FREE_KBYTES, (kib * PER_KIB).isqrt().clamp(least, most)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn min_free_kib(scale: u32) -> Option<String> {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/comparison/ddr5-cxl-1s.toml");
        let text = fs::read_to_string(file).expect("a file");
        let machine = Machine { scale, ..Machine::parse("ddr5-cxl-1s", &text).expect("a machine") };
        let layout = Layout::new(&machine, Some(1)).expect("a layout");
        settings(&machine, &layout).map(|write| write.text)
    }

    #[test]
    fn part_of_a_machine_keeps_what_linux_does_without_huge_pages() {
        // Two nodes of 512 MiB: the root of 2^4 x 2^20.
        assert_eq!(min_free_kib(320).as_deref(), Some("4096"));
    }

    #[test]
    fn whole_machine_keeps_what_its_kernel_chooses() {
        assert_eq!(min_free_kib(1), None);
    }
}

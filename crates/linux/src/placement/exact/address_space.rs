//! Address spaces and their ranges with exact placement.

use std::cell::Cell;
use std::fs;
use std::io;
use std::ops::Range;

use super::maps;
use crate::placement::stat;
use crate::sys::trace::{self, Registers, Tid};
use crate::sys::userfaultfd::{PAGE, Userfaultfd};

/// An address space.
#[derive(Debug)]
pub struct AddressSpace {
    pub userfaultfd: Userfaultfd,
    /// Last known end of the heap.
    heap_end: Cell<u64>,
}

impl AddressSpace {
    /// The address space of a new process.
    pub fn of(pid: Tid, userfaultfd: Userfaultfd) -> io::Result<AddressSpace> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // Start of the heap.
        let heap_end = stat::field(&stat, 47).unwrap_or_default().into();
        Ok(AddressSpace { userfaultfd, heap_end })
    }

    /// Registers all current ranges.
    pub fn register_all(&self, pid: Tid) -> io::Result<()> {
        maps::anonymous(pid)?.into_iter().for_each(|range| self.register(range));
        Ok(())
    }

    /// Registers the memory that a thread has mapped by its last system call before a signal stop. Any signal
    /// may come before the one sent for a mapping, or replace it.
    pub fn signalled(&self, tid: Tid, has_mapped: bool) -> io::Result<()> {
        let registers = trace::registers(tid)?;
        match registers.orig_rax as i64 {
            libc::SYS_mmap => anonymous(&registers).into_iter().for_each(|range| self.register(range)),
            libc::SYS_brk => self.register(self.heap_end.replace(registers.rax)..registers.rax),
            libc::SYS_mremap => self.register_all(tid)?,
            // The signal was blocked until now, as during another handler.
            _ if has_mapped => self.register_all(tid)?,
            _ => {}
        }
        Ok(())
    }

    fn register(&self, range: Range<u64>) {
        let range = whole_pages(range);
        if !range.is_empty() {
            // Fails if another thread has unmapped it or mapped something else there, which is not to be
            // registered.
            let _ = self.userfaultfd.register(range);
        }
    }
}

/// The private anonymous range that an mmap call returned, if it mapped one.
fn anonymous(registers: &Registers) -> Option<Range<u64>> {
    const FIRST_ERROR: u64 = -4095_i64 as u64;
    const KIND: i32 = libc::MAP_TYPE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB;
    let (flags, start) = (registers.r10 as i32, registers.rax);
    let fits = flags & KIND == libc::MAP_PRIVATE | libc::MAP_ANONYMOUS && start < FIRST_ERROR;
    fits.then(|| start..start.saturating_add(registers.rsi))
}

fn whole_pages(range: Range<u64>) -> Range<u64> {
    let up = |address: u64| address.saturating_add(PAGE - 1) & !(PAGE - 1);
    up(range.start)..up(range.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_ranges_are_whole_pages() {
        assert_eq!(whole_pages(0x1001..0x3001), 0x2000..0x4000);
        assert_eq!(whole_pages(0x1000..0x1000), 0x1000..0x1000);
        assert_eq!(whole_pages(5..u64::MAX), 0x1000..u64::MAX - 4095);
    }
}

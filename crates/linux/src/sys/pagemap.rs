//! What /proc/PID/pagemap tells of pages when it is scanned.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use rustix::process::Pid;

/// What the ioctl `PAGEMAP_SCAN` takes (linux/fs.h, Linux 6.7).
#[repr(C)]
#[derive(Default)]
struct PagemapScan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    ranges: u64,
    ranges_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// A range of pages that [`PagemapScan`] found.
#[repr(C)]
#[derive(Default)]
struct PagemapRange {
    start: u64,
    end: u64,
    categories: u64,
}

const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_PFNZERO: u64 = 1 << 5;
const PAGE_IS_HUGE: u64 = 1 << 6;

/// Whether a base page is part of a huge one that is mapped whole, by its process's /proc/PID/pagemap; not, on a kernel that does
/// not tell.
pub fn is_huge(pagemap: &File, page: u64) -> bool {
    scan_huge(pagemap, page).unwrap_or(false)
}

/// The same.
///
/// # Errors
/// The kernel's, if it has no `PAGEMAP_SCAN`.
pub fn scan_huge(pagemap: &File, page: u64) -> io::Result<bool> {
    let mut range = [PagemapRange::default()];
    let scan = PagemapScan {
        category_mask: PAGE_IS_HUGE,
        return_mask: PAGE_IS_HUGE,
        ..PagemapScan::of(page..page + 1)
    };
    Ok(scan.run(pagemap, &mut range)?.0 == 1)
}

/// Whether the memory that a page map tells of is no more: its process has ended, or runs another program.
pub fn has_gone(pagemap: &File) -> bool {
    pagemap.read_at(&mut [0; 8], 0).is_ok_and(|read| read == 0)
}

/// Bytes of /proc/PID/pagemap for each base page.
pub const ENTRY_BYTES: usize = 8;

const ENTRY_PRESENT: u64 = 1 << 63;
const ENTRY_FRAME: u64 = (1 << 55) - 1;

/// The page frames of neighbouring base pages from `first` on, as many as `entries` has room for; none for a
/// page that is not in memory. All are 0 for a reader without CAP_SYS_ADMIN.
///
/// # Errors
/// The kernel's, and if the address space ends too early.
pub fn frames<'a>(
    pagemap: &File,
    first: u64,
    entries: &'a mut [u8],
) -> io::Result<impl Iterator<Item = Option<u64>> + 'a> {
    pagemap.read_exact_at(entries, first.saturating_mul(ENTRY_BYTES as u64))?;
    let (entries, _) = entries.as_chunks::<ENTRY_BYTES>();
    Ok(entries.iter().map(|entry| {
        let entry = u64::from_ne_bytes(*entry);
        (entry & ENTRY_PRESENT != 0).then_some(entry & ENTRY_FRAME)
    }))
}

/// Neighbouring base pages that are in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Present {
    /// Which.
    pub pages: Range<u64>,
    /// Whether they are parts of huge pages.
    pub is_huge: bool,
}

/// Base pages that are in memory, up to `most` of them; the zero page is left out. Also gives up to where it looked.
///
/// # Errors
/// The kernel's, if it is older than Linux 6.7 or may not be asked.
pub fn present(pagemap: &File, pages: Range<u64>, most: u64) -> io::Result<(Vec<Present>, u64)> {
    let mut ranges: [PagemapRange; 64] = std::array::from_fn(|_| PagemapRange::default());
    let scan = PagemapScan {
        max_pages: most,
        category_inverted: PAGE_IS_PFNZERO,
        category_mask: PAGE_IS_PRESENT | PAGE_IS_PFNZERO,
        return_mask: PAGE_IS_HUGE,
        ..PagemapScan::of(pages)
    };
    let (found, end) = scan.run(pagemap, &mut ranges)?;
    let found = ranges[..found].iter();
    let found = found.map(|range| Present {
        pages: range.start >> 12..range.end >> 12,
        is_huge: range.categories & PAGE_IS_HUGE != 0,
    });
    Ok((found.collect(), end))
}

impl PagemapScan {
    fn of(pages: Range<u64>) -> PagemapScan {
        let size = size_of::<PagemapScan>() as u64;
        PagemapScan { size, start: pages.start << 12, end: pages.end << 12, ..PagemapScan::default() }
    }

    /// Gives how many ranges were found, and the base page up to which was looked.
    fn run(mut self, pagemap: &File, ranges: &mut [PagemapRange]) -> io::Result<(usize, u64)> {
        (self.ranges, self.ranges_len) = (ranges.as_mut_ptr() as u64, ranges.len() as u64);
        let request = libc::_IOWR::<PagemapScan>(b'f'.into(), 16);
        // SAFETY: the request's own structure, which names room for so many ranges; both live as long as the call.
        let found = unsafe { libc::ioctl(pagemap.as_raw_fd(), request, &raw mut self) };
        let found = usize::try_from(found).map_err(|_| io::Error::last_os_error())?;
        Ok((found, self.walk_end >> 12))
    }
}

/// Tells of a process's base pages whether each is part of a huge one; of none, if its page map may not be read.
pub fn huge_pages(pid: Pid) -> impl Fn(u64) -> bool {
    let pagemap = File::open(format!("/proc/{}/pagemap", pid.as_raw_nonzero())).ok();
    move |page| pagemap.as_ref().is_some_and(|pagemap| is_huge(pagemap, page))
}

//! Scans of /proc/PID/pagemap.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use rustix::process::Pid;

/// Argument of the `PAGEMAP_SCAN` ioctl (linux/fs.h, Linux 6.7).
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

/// A process's pagemap.
///
/// # Errors
/// If there is no such process, or it may not be inspected.
pub fn open(pid: Pid) -> io::Result<File> {
    File::open(format!("/proc/{}/pagemap", pid.as_raw_nonzero()))
}

/// Whether a base page is part of a PMD-mapped huge page, by its process's /proc/PID/pagemap; false on a
/// kernel without `PAGEMAP_SCAN`.
pub fn is_huge(pagemap: &File, page: u64) -> bool {
    scan_huge(pagemap, page).unwrap_or(false)
}

/// As [`is_huge`], with the error.
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

/// Whether an error means that the address space is gone: its process has exited, or has called exec.
pub fn has_gone(pagemap: &File) -> bool {
    pagemap.read_at(&mut [0; 8], 0).is_ok_and(|read| read == 0)
}

/// Bytes of /proc/PID/pagemap per base page.
pub const ENTRY_BYTES: usize = 8;

const ENTRY_PRESENT: u64 = 1 << 63;
const ENTRY_FILE_OR_SHARED: u64 = 1 << 61;
const ENTRY_EXCLUSIVE: u64 = 1 << 56;
const ENTRY_FRAME: u64 = (1 << 55) - 1;
const SHARED_ANONYMOUS_MASK: u64 = ENTRY_PRESENT | ENTRY_FILE_OR_SHARED | ENTRY_EXCLUSIVE;

/// The page frames of consecutive base pages from `first` on, up to the length of `entries`; `None` for a
/// page that is not resident. All are 0 for a reader without CAP_SYS_ADMIN.
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

/// Whether consecutive base pages from `first` on, up to the length of `entries`, are anonymous memory that
/// the process shares with no other; `None` if some are not resident.
///
/// # Errors
/// The kernel's, and if the address space ends too early.
pub fn are_own(pagemap: &File, first: u64, entries: &mut [u8]) -> io::Result<Option<bool>> {
    pagemap.read_exact_at(entries, first.saturating_mul(ENTRY_BYTES as u64))?;
    let (entries, _) = entries.as_chunks::<ENTRY_BYTES>();
    let entries = entries.iter().map(|entry| u64::from_ne_bytes(*entry));
    let all_have = |bits| entries.clone().all(|entry| entry & bits == bits);
    let own = all_have(ENTRY_EXCLUSIVE) && entries.clone().all(|entry| entry & ENTRY_FILE_OR_SHARED == 0);
    Ok(all_have(ENTRY_PRESENT).then_some(own))
}

/// Which of consecutive base pages from `first` on, up to the length of `entries` and `others`, are anonymous
/// memory that two processes have in common, by the pagemaps of both. The page frames tell; for a reader
/// without CAP_SYS_ADMIN, that both share each of them with some process.
///
/// # Errors
/// The kernel's, and if an address space ends too early.
pub fn in_common<'a>(
    [pagemap, other]: [&File; 2],
    first: u64,
    [entries, others]: [&'a mut [u8]; 2],
) -> io::Result<impl Iterator<Item = bool> + 'a> {
    let offset = first.saturating_mul(ENTRY_BYTES as u64);
    pagemap.read_exact_at(entries, offset)?;
    other.read_exact_at(others, offset)?;
    let ((entries, _), (others, _)) = (entries.as_chunks::<ENTRY_BYTES>(), others.as_chunks::<ENTRY_BYTES>());
    Ok(entries.iter().zip(others).map(|(entry, other)| {
        let [entry, other] = [entry, other].map(|entry| u64::from_ne_bytes(*entry));
        let is_shared = |entry| entry & SHARED_ANONYMOUS_MASK == ENTRY_PRESENT;
        is_shared(entry) && is_shared(other) && entry & ENTRY_FRAME == other & ENTRY_FRAME
    }))
}

/// A run of resident base pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Present {
    /// The pages.
    pub pages: Range<u64>,
    /// Whether they are parts of huge pages.
    pub is_huge: bool,
}

/// Resident base pages, at most `most`, without the zero page. Also returns where the scan ended.
///
/// # Errors
/// The kernel's, if it is older than Linux 6.7 or denies access.
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

    /// Returns the number of ranges found, and the base page where the scan ended.
    fn run(mut self, pagemap: &File, ranges: &mut [PagemapRange]) -> io::Result<(usize, u64)> {
        (self.ranges, self.ranges_len) = (ranges.as_mut_ptr() as u64, ranges.len() as u64);
        let request = libc::_IOWR::<PagemapScan>(b'f'.into(), 16);
        // SAFETY: the request's own structure, with the length of its output buffer; both outlive the call.
        let found = unsafe { libc::ioctl(pagemap.as_raw_fd(), request, &raw mut self) };
        let found = usize::try_from(found).map_err(|_| io::Error::last_os_error())?;
        Ok((found, self.walk_end >> 12))
    }
}

/// For each base page of a process, whether it is part of a huge page; false for all if pagemap is not
/// readable.
pub fn huge_pages(pid: Pid) -> impl Fn(u64) -> bool {
    let pagemap = open(pid).ok();
    move |page| pagemap.as_ref().is_some_and(|pagemap| is_huge(pagemap, page))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A page map of zeros, except for the entries from page 16 on.
    pub(crate) fn pagemap(entries: &[u64]) -> File {
        let file = tempfile::tempfile().expect("a file");
        let bytes: Vec<u8> = entries.iter().flat_map(|entry| entry.to_ne_bytes()).collect();
        file.write_all_at(&bytes, 16 * ENTRY_BYTES as u64).expect("it is written");
        file
    }

    #[test]
    fn pages_in_common_are_anonymous_and_of_one_frame() {
        let shared = |frame| ENTRY_PRESENT | frame;
        let pages = [
            (shared(7), shared(7), true),
            (shared(7), shared(8), false),
            (shared(0), shared(0), true),
            (shared(0) | ENTRY_EXCLUSIVE, shared(0), false),
            (shared(0), shared(0) | ENTRY_EXCLUSIVE, false),
            (shared(7) | ENTRY_FILE_OR_SHARED, shared(7) | ENTRY_FILE_OR_SHARED, false),
            (7, 7, false),
        ];
        let [one, other] = [pages.map(|(one, ..)| one), pages.map(|(_, other, _)| other)];
        let [one, other] = [pagemap(&one), pagemap(&other)];
        let [mut entries, mut others] = [[0; 7 * ENTRY_BYTES]; 2];
        let common = in_common([&one, &other], 16, [&mut entries, &mut others]).expect("both are read");
        assert_eq!(common.collect::<Vec<_>>(), pages.map(|(.., common)| common));
        assert!(in_common([&one, &other], 17, [&mut entries, &mut others]).is_err(), "its end");
    }

    #[test]
    fn written_pages_are_own_and_code_is_not() {
        let pagemap = File::open("/proc/self/pagemap").expect("a system with /proc");
        let own = |page| are_own(&pagemap, page, &mut [0; 2 * ENTRY_BYTES]).ok().flatten();
        let words = [1u64; 2048];
        assert_eq!(own(words.as_ptr() as u64 / 4096 + 1), Some(true));
        let code = written_pages_are_own_and_code_is_not as *const () as u64 / 4096;
        let of_code = are_own(&pagemap, code, &mut [0; ENTRY_BYTES]).expect("its page");
        assert_eq!(of_code, Some(false), "a file's page");
        assert_eq!(own(1), None, "not mapped");
        assert_eq!(words.iter().sum::<u64>(), 2048);
    }
}

//! process_madvise(2) on another process's memory.

use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::userfaultfd::PAGE;

/// Tells the kernel that a base page of a process is cold (`MADV_COLD`): it becomes inactive. A huge page of
/// which that is a part is split (`madvise_cold_or_pageout_pte_range` in mm/madvise.c).
///
/// # Errors
/// The kernel's: no such process or page, no CAP_SYS_NICE, or a kernel older than Linux 5.10.
pub fn set_cold(process: Pid, page: u64) -> io::Result<()> {
    advise(process, page..page + 1, libc::MADV_COLD)
}

/// Collapses the base pages of 2 MiB of a process into a huge page (`MADV_COLLAPSE`), whatever the settings
/// of transparent huge pages; absent ones are filled.
///
/// # Errors
/// The kernel's: no such process or pages, no CAP_SYS_NICE, no free huge page, memory that may have none, or
/// a kernel older than Linux 6.1.
pub fn collapse(process: Pid, pages: Range<u64>) -> io::Result<()> {
    advise(process, pages, libc::MADV_COLLAPSE)
}

/// Whether the kernel collapses pages of other processes: without pages it still refuses unknown advice.
pub fn can_collapse(process: Pid) -> bool {
    advise(process, 0..0, libc::MADV_COLLAPSE).is_ok()
}

fn advise(process: Pid, pages: Range<u64>, advice: libc::c_int) -> io::Result<()> {
    let process = pidfd_open(process, PidfdFlags::empty())?;
    let bytes = (pages.end - pages.start) * PAGE;
    let pages =
        [libc::iovec { iov_base: (pages.start * PAGE) as *mut libc::c_void, iov_len: bytes as usize }];
    // SAFETY: one range, of another process; the advice changes no page's content.
    let advised = unsafe {
        libc::syscall(libc::SYS_process_madvise, process.as_raw_fd(), pages.as_ptr(), pages.len(), advice, 0)
    };
    if advised == bytes as i64 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

//! process_madvise(2) on another process's memory.

use std::io;
use std::os::fd::AsRawFd;

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::userfaultfd::PAGE;

/// Tells the kernel that a base page of a process is cold (`MADV_COLD`): it becomes inactive. A huge page of
/// which that is a part is split (`madvise_cold_or_pageout_pte_range` in mm/madvise.c).
///
/// # Errors
/// The kernel's: no such process or page, no CAP_SYS_NICE, or a kernel older than Linux 5.10.
pub fn set_cold(process: Pid, page: u64) -> io::Result<()> {
    let process = pidfd_open(process, PidfdFlags::empty())?;
    let pages = [libc::iovec { iov_base: (page * PAGE) as *mut libc::c_void, iov_len: PAGE as usize }];
    // SAFETY: one range, of another process; the advice changes no page's content.
    let advised = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            process.as_raw_fd(),
            pages.as_ptr(),
            pages.len(),
            libc::MADV_COLD,
            0,
        )
    };
    if advised == PAGE as i64 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

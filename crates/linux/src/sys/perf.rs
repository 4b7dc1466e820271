//! ioctl(2) of perf events that the wrapper library lacks.

use std::io;
use std::os::fd::AsRawFd;

use perf_event::Counter;

/// `PERF_EVENT_IOC_PERIOD` (linux/perf_event.h).
const SET_PERIOD: libc::Ioctl = 0x4008_2404;

/// Sets the number of events per sample from now on.
///
/// # Errors
/// The kernel's: a period that the event cannot have.
pub fn set_sample_period(counter: &Counter, period: u64) -> io::Result<()> {
    // SAFETY: the kernel reads one word.
    let done = unsafe { libc::ioctl(counter.as_raw_fd(), SET_PERIOD, &raw const period) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

//! What the wrapper library of perf events lacks: an ioctl(2), and what an event needs that is not permitted.

use std::io;
use std::os::fd::AsRawFd;

use perf_event::Counter;

/// `PERF_EVENT_IOC_PERIOD` (linux/perf_event.h).
const SET_PERIOD: libc::Ioctl = 0x4008_2404;

/// The error of an event that could not be opened there, with what it needs.
pub fn not_opened(place: &str, error: &io::Error) -> io::Error {
    let hint = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; it needs CAP_PERFMON, or /proc/sys/kernel/perf_event_paranoid of at most 0"
        }
        _ => "",
    };
    io::Error::new(error.kind(), format!("{place}: {error}{hint}"))
}

/// Sets the number of events per sample from now on.
///
/// # Errors
/// The kernel's: a period that the event cannot have.
pub fn set_sample_period(counter: &Counter, period: u64) -> io::Result<()> {
    // SAFETY: the kernel reads one word.
    let done = unsafe { libc::ioctl(counter.as_raw_fd(), SET_PERIOD, &raw const period) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

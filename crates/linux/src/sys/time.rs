//! Clocks.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Processor time of this thread.
pub fn thread_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// Processor time of this process.
pub fn process_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

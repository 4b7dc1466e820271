//! Clocks.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Processor time of this thread.
pub fn thread_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

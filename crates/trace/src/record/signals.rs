//! Signals during a recording.

use std::io;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};

/// Signals within this time are one request: `timeout` sends one to its child and one to all of its group.
const DEBOUNCE: Duration = Duration::from_secs(1);

/// Prevents signals from ending memtide before the trace is written, until it is dropped.
pub struct Signals {
    pending: SignalsInfo<WithOrigin>,
    asked: Option<Instant>,
}

impl Signals {
    pub fn hold() -> io::Result<Signals> {
        let pending = SignalsInfo::new([SIGINT, SIGTERM, SIGHUP])?;
        Ok(Signals { pending, asked: None })
    }

    /// Whether there was a request since the last call.
    pub fn any(&mut self) -> bool {
        self.request().is_some()
    }

    /// The signal of a request since the last call, if it was sent to memtide alone. A terminal also sends it
    /// to the program.
    pub fn for_memtide(&mut self) -> Option<i32> {
        self.request().filter(|origin| origin.cause != Cause::Kernel).map(|origin| origin.signal)
    }

    fn request(&mut self) -> Option<Origin> {
        let last = self.pending.pending().last()?;
        if self.asked.is_some_and(|asked| asked.elapsed() < DEBOUNCE) {
            return None;
        }
        self.asked = Some(Instant::now());
        Some(last)
    }
}

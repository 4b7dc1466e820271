//! Signals that come while a program is recorded.

use std::io;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::Cause;

/// Keeps signals from ending memtide before the trace is written, until it is dropped.
pub struct Signals(SignalsInfo<WithOrigin>);

impl Signals {
    pub fn hold() -> io::Result<Signals> {
        SignalsInfo::new([SIGINT, SIGTERM, SIGHUP]).map(Signals)
    }

    /// Whether any has come since the last question.
    pub fn any(&mut self) -> bool {
        self.0.pending().count() > 0
    }

    /// The last one since the last question that was sent to memtide alone. What a terminal sends, it sends to the
    /// program too.
    pub fn for_memtide(&mut self) -> Option<i32> {
        self.0.pending().filter(|origin| origin.cause != Cause::Kernel).last().map(|origin| origin.signal)
    }
}

//! Ctrl-C and termination signals.

use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;

/// Polling interval of the flag.
const POLL: Duration = Duration::from_millis(20);

/// Signals in quick succession are one request: `timeout` sends two, and a terminal one to each process.
const DEBOUNCE: Duration = Duration::from_secs(1);

static ASKED: AtomicBool = AtomicBool::new(false);

/// Sets the flag at the first signal, for a clean end; a later signal ends the process at once.
pub fn install() -> Result<(), Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM])
        .map_err(|error| Failure::Run(format!("cannot handle signals: {error}")))?;
    thread::spawn(move || {
        let mut first: Option<Instant> = None;
        for _ in &mut signals {
            ASKED.store(true, Ordering::Relaxed);
            if first.get_or_insert_with(Instant::now).elapsed() > DEBOUNCE {
                exit(130);
            }
        }
    });
    Ok(())
}

/// The flag set by the first signal.
pub fn flag() -> &'static AtomicBool {
    &ASKED
}

/// Whether the command was interrupted.
pub fn requested() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// An error if the command was interrupted.
pub fn check() -> Result<(), Failure> {
    if requested() { Err(Failure::Interrupted) } else { Ok(()) }
}

/// Sleeps, or fails with `Interrupted` if the command is interrupted.
pub fn pause(time: Duration) -> Result<(), Failure> {
    let until = Instant::now() + time;
    while !requested() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(POLL));
    }
    Err(Failure::Interrupted)
}

/// Runs long uninterruptible work without side effects in a thread: on an interrupt it ends with the process.
pub fn interruptible<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let (done, result) = mpsc::sync_channel(1);
    let worker = thread::spawn(move || {
        // The receiver is gone if the command was interrupted.
        let _ = done.send(work());
    });
    loop {
        match result.recv_timeout(POLL) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Timeout) => check()?,
            Err(RecvTimeoutError::Disconnected) => {
                let panicked = worker.join().expect_err("a worker that ends in order sends its result");
                std::panic::resume_unwind(panicked)
            }
        }
    }
}

//! Ctrl-C and requests to end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::failure::Failure;

static ASKED: LazyLock<Arc<AtomicBool>> = LazyLock::new(|| Arc::new(AtomicBool::new(false)));

/// Takes note of the first signal, so that what runs can end in order; a second one ends the command at once.
pub fn install() -> Result<(), Failure> {
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_shutdown(signal, 130, ASKED.clone())
            .and_then(|_| flag::register(signal, ASKED.clone()))
            .map_err(|error| Failure::Run(format!("signals cannot be handled: {error}")))?;
    }
    Ok(())
}

/// Whether the command was asked to end.
pub fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// An error if the command was asked to end.
pub fn check() -> Result<(), Failure> {
    if asked() { Err(Failure::Interrupted) } else { Ok(()) }
}

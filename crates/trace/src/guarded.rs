//! Turns panics of the Parquet library, which hostile input may cause, into errors without output on standard
//! error.
//!
//! The panic hook is global to the process, so [`guarded`] installs one in front of the existing hook, once:
//! on a thread that is decoding it prints nothing, on any other it calls the existing hook. A program that
//! sets a hook later gets that hook, and the message.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use parquet::errors::ParquetError;

thread_local! {
    /// Whether this thread is decoding untrusted input.
    static DECODES: Cell<bool> = const { Cell::new(false) };
}

/// Marks the thread as decoding while it exists.
struct Decoding {
    /// Whether the thread was already marked.
    before: bool,
}

impl Decoding {
    fn begin() -> Decoding {
        Decoding { before: DECODES.replace(true) }
    }
}

impl Drop for Decoding {
    fn drop(&mut self) {
        DECODES.set(self.before);
    }
}

fn silence_decoding() {
    static ONCE: Once = Once::new();
    // A panicking thread cannot set a hook.
    if std::thread::panicking() {
        return;
    }
    ONCE.call_once(|| {
        let hook = take_hook();
        set_hook(Box::new(move |info| {
            // Destroyed thread-locals belong to a thread that is ending, not decoding.
            if !DECODES.try_with(Cell::get).unwrap_or(false) {
                hook(info);
            }
        }));
    });
}

/// Runs the Parquet decoder on untrusted input; a panic in it becomes an error.
///
/// # Errors
/// The decoder's, or that it panicked.
pub(crate) fn guarded<T>(decode: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, String> {
    silence_decoding();
    let decoding = Decoding::begin();
    let decoded = catch_unwind(AssertUnwindSafe(decode));
    drop(decoding);
    match decoded {
        Ok(decoded) => decoded.map_err(|error| error.to_string()),
        Err(_) => Err("the Parquet decoder failed".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Set where the test runs itself as a program.
    const INNER: &str = "MEMTIDE_TEST_PANIC";

    #[test]
    fn decoders_panic_is_silent_and_other_panics_are_not() {
        if std::env::var_os(INNER).is_some() {
            assert!(guarded::<()>(|| panic!("in the decoder")).is_err());
            let other = std::thread::spawn(|| panic!("on another thread"));
            assert!(other.join().is_err());
            panic!("after decoding");
        }
        let program = std::env::current_exe().unwrap();
        let name = "guarded::tests::decoders_panic_is_silent_and_other_panics_are_not";
        let run =
            Command::new(program).args([name, "--exact", "--nocapture"]).env(INNER, "1").output().unwrap();
        let told = String::from_utf8_lossy(&run.stderr);
        assert!(!told.contains("in the decoder"), "{told}");
        assert!(told.contains("on another thread") && told.contains("after decoding"), "{told}");
    }

    #[test]
    fn thread_is_marked_only_while_it_decodes() {
        let nested = guarded(|| {
            assert!(DECODES.get());
            assert_eq!(guarded::<()>(|| panic!("inner")), Err("the Parquet decoder failed".to_owned()));
            assert!(DECODES.get());
            Ok(())
        });
        assert_eq!(nested, Ok(()));
        assert!(!DECODES.get());
        assert!(guarded::<()>(|| panic!("outer")).is_err());
        assert!(!DECODES.get());
    }
}

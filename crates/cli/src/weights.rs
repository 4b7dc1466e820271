//! The kernel's interleave weights that an earlier run left set.

use memtide_linux::placement::Weights;

/// Restores the kernel's weights that a killed run left set, if this user may; prints the outcome.
pub fn put_back() {
    match Weights::restore_leftover() {
        Ok(true) => {
            message!("memtide: restored the kernel's weights, which a killed run had left set")
        }
        Ok(false) => {}
        Err(error) => message!("memtide: a killed run has left the kernel's weights set: {error}"),
    }
}

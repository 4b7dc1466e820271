//! Memory of the counters page.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::AtomicU64;

/// Maps a file; never unmapped.
pub fn map(path: &Path) -> io::Result<&'static [AtomicU64]> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let bytes = file.metadata()?.len() as usize;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, anywhere.
    let start = unsafe { libc::mmap(null_mut(), bytes, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is never unmapped, begins at a page, and is changed by others as atomics are.
    Ok(unsafe { std::slice::from_raw_parts(start.cast(), bytes / size_of::<AtomicU64>()) })
}

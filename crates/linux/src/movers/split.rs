//! Splits huge pages.

use memtide_core::policy::Refusal;
use rustix::io::Errno;
use rustix::process::Pid;

use super::move_pages::{Moved, refusal_of};
use crate::sys::advice::set_cold;
use crate::sys::pagemap::huge_pages;

/// Splits the huge page of a process that begins at a base page: the base pages stay on its node. The first
/// of them becomes inactive, which tells the kernel to split.
///
/// # Errors
/// Why it was not split: it is no huge page, or in use, or may not be split.
pub fn split(process: Pid, page: u64) -> Moved {
    let is_huge = huge_pages(process);
    if !is_huge(page) {
        return Err(Refusal::Gone);
    }
    set_cold(process, page).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::NOSYS | Errno::INVAL) => Refusal::Unsupported,
        _ => refusal_of(&error),
    })?;
    // The kernel does not split a page that is in use, or mapped by several processes.
    if is_huge(page) { Err(Refusal::Busy) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_page_is_no_huge_page_to_split() {
        let me = rustix::process::getpid();
        let words = [1u64; 1024];
        assert_eq!(split(me, words.as_ptr() as u64 / 4096 + 1), Err(Refusal::Gone));
        assert_eq!(split(me, 1), Err(Refusal::Gone), "not mapped");
    }
}

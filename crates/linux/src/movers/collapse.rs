//! Collapses base pages into huge ones.

use memtide_core::PageSize;
use memtide_core::policy::Refusal;
use rustix::io::Errno;
use rustix::process::Pid;

use super::move_pages::{Moved, nodes_of, refusal_of};
use crate::sys::advice;
use crate::sys::pagemap::{self, ENTRY_BYTES, are_own, scan_huge};
use crate::sys::transparent_huge_pages;

const HUGE_PAGES: u64 = PageSize::Huge.base_pages();

/// Collapses base pages of a process into the huge page that begins at one, on their node. The kernel copies
/// them.
///
/// # Errors
/// Why they were not collapsed. [`Refusal::Gone`]: they are not all there on one node, or are huge already.
/// [`Refusal::Busy`]: a child of the process shares some of them, as each would then have a copy.
/// [`Refusal::NoRoom`]: the node has no free huge page. [`Refusal::NotAllowed`]: the process must not have
/// huge pages there. [`Refusal::Unsupported`]: the system does not let every program have huge pages, or its
/// kernel is older than Linux 6.7, which does not say what is huge.
pub fn collapse(process: Pid, page: u64) -> Moved {
    if !transparent_huge_pages::are_for_all() {
        return Err(Refusal::Unsupported);
    }
    let pages = page..page.checked_add(HUGE_PAGES).ok_or(Refusal::Gone)?;
    let pagemap = pagemap::open(process).map_err(|error| refusal_of(&error))?;
    let is_huge = || scan_huge(&pagemap, page).map_err(|_| Refusal::Unsupported);
    if !page.is_multiple_of(HUGE_PAGES) || is_huge()? {
        return Err(Refusal::Gone);
    }
    let mut entries = [0; ENTRY_BYTES * HUGE_PAGES as usize];
    match are_own(&pagemap, page, &mut entries) {
        Ok(Some(true)) => {}
        Ok(Some(false)) => return Err(Refusal::Busy),
        Ok(None) | Err(_) => return Err(Refusal::Gone),
    }
    let all: Vec<u64> = pages.clone().collect();
    let nodes = nodes_of(process, &all).map_err(|error| refusal_of(&error))?;
    if nodes.iter().any(|node| node.is_none() || *node != nodes[0]) {
        return Err(Refusal::Gone);
    }
    advice::collapse(process, pages).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::NOSYS) => Refusal::Unsupported,
        Some(Errno::INVAL) if !advice::can_collapse(process) => Refusal::Unsupported,
        Some(Errno::INVAL) => Refusal::NotAllowed,
        _ => refusal_of(&error),
    })?;
    // The kernel reports success, too, for pages of two mappings, which it leaves as they are.
    if is_huge()? { Ok(()) } else { Err(Refusal::NotAllowed) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_are_not_there_do_not_collapse() {
        let me = rustix::process::getpid();
        let refusals = [Err(Refusal::Gone), Err(Refusal::Unsupported)];
        assert!(refusals.contains(&collapse(me, 0)), "not mapped");
        let words = [1u64; 1024];
        let page = words.as_ptr() as u64 / 4096 + 1;
        let unaligned = page - u64::from(page.is_multiple_of(HUGE_PAGES));
        assert!(refusals.contains(&collapse(me, unaligned)));
    }
}

//! The simulator uses at most 24 bytes of host memory per simulated page.
#![allow(unsafe_code, reason = "a global allocator is unsafe by its interface")]

#[path = "support/runs.rs"]
mod runs;
mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use memtide_core::{Batch, Program, ProgramError, Then, ThreadId};
use memtide_sim::{Job, run};

use runs::policy;
use support::{MachineText, store};

/// Counts the bytes in use, and their maximum.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

fn changed(old: usize, new: usize) {
    let in_use =
        IN_USE.fetch_add(new.wrapping_sub(old), Ordering::Relaxed).wrapping_add(new).wrapping_sub(old);
    MOST.fetch_max(in_use, Ordering::Relaxed);
}

// SAFETY: every call is handed on to the system's allocator with the caller's own arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        changed(0, layout.size());
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        changed(0, layout.size());
        // SAFETY: the caller keeps `alloc_zeroed`'s contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        changed(layout.size(), 0);
        // SAFETY: the memory came from `System`, with this layout.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // Both may exist for a moment.
        changed(0, bytes);
        changed(layout.size(), 0);
        // SAFETY: the memory came from `System`, with this layout; the caller keeps the rest of the contract.
        unsafe { System.realloc(memory, layout, bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Touches one page after another, a few at a time.
struct Toucher {
    next: u64,
    pages: u64,
}

impl Program for Toucher {
    fn threads(&self) -> usize {
        1
    }

    fn next(&mut self, _: ThreadId, batch: &mut Batch) -> Result<(), ProgramError> {
        batch.clear();
        let end = (self.next + 1024).min(self.pages);
        batch.accesses.extend((self.next..end).map(|page| store(page * 4096)));
        self.next = end;
        batch.then = if end == self.pages { Then::End } else { Then::Continue };
        Ok(())
    }
}

/// Maximum bytes in use while a program touches every page of a machine's memory.
fn most_bytes(mib: u64) -> usize {
    let machine = MachineText::new("").socket("s", 1).node("n", 0, "s", mib, 100.0, 1e5).machine();
    let pages = mib << 8;
    let jobs = vec![Job::new("all", Box::new(Toucher { next: 0, pages }))];
    let before = IN_USE.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let report = run(&machine, jobs, policy(&machine, "local"), 1, &mut |_| true).expect("enough memory");
    assert_eq!((report.pages.faults, report.nodes[0].pages), (pages, pages));
    MOST.load(Ordering::Relaxed) - before
}

#[test]
fn page_takes_at_most_24_bytes_with_directories() {
    let few = most_bytes(256);
    for mib in [700, 4096] {
        let pages = (mib - 256) << 8;
        let each = (most_bytes(mib) - few) as f64 / pages as f64;
        assert!(each <= 24.0, "{each:.3} bytes a page at {mib} MiB");
        assert!(each >= 20.0, "{each:.3} bytes a page at {mib} MiB: was all of it counted?");
    }
}

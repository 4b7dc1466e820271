//! Page moves in flight: each copies a page line by line through the memory model.

use memtide_core::policy::{Move, Planned};
use memtide_core::{CpuId, LINE_BYTES, Time};
use memtide_memory::{Uncore, Waiter};

/// Bit of a waiter's number that distinguishes copies from cores.
pub(crate) const COPY: u32 = 1 << 31;

/// Lines per base page.
const LINES_OF_PAGE: u64 = memtide_core::PAGE_BYTES / LINE_BYTES;

/// A page move to another frame. The copying CPU keeps as many reads in flight as it has miss registers; each
/// line is written as soon as it arrives, and another one is read once the links on the way accept more
/// writes.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    pub planned: Planned,
    pub wanted: Move,
    pub from: u32,
    pub to: u32,
    /// When the kernel started it.
    pub begun: Time,
    /// Threads that wait for the page.
    pub waiters: Vec<usize>,
    /// Whether the page was unmapped meanwhile: its frame is gone, and the new one is not needed.
    pub cancelled: bool,
    /// Whether it is made by the kernel thread of a policy outside the kernel, one move after another.
    pub by_daemon: bool,
    /// Whether a store to the page, which stays mapped, has made the copy useless.
    pub dropped: bool,
    /// Copies dropped so far.
    pub attempts: u32,
    cpu: CpuId,
    read: u64,
    written: u64,
    lines: u64,
}

impl Copy {
    pub fn new(
        planned: Planned,
        wanted: Move,
        from: u32,
        to: u32,
        cpu: CpuId,
        begun: Time,
        by_daemon: bool,
    ) -> Copy {
        let lines = wanted.size.base_pages() * LINES_OF_PAGE;
        Copy {
            planned,
            wanted,
            from,
            to,
            begun,
            waiters: Vec::new(),
            cancelled: false,
            by_daemon,
            dropped: false,
            attempts: 0,
            cpu,
            read: 0,
            written: 0,
            lines,
        }
    }

    /// Starts the first reads at `at`.
    pub fn start(&mut self, number: usize, window: u16, at: Time, uncore: &mut Uncore) {
        for _ in 0..u64::from(window).min(self.lines) {
            self.read_next(number, at, uncore);
        }
    }

    /// Starts again after it was dropped.
    pub fn restart(&mut self, number: usize, window: u16, at: Time, uncore: &mut Uncore) {
        (self.dropped, self.attempts) = (false, self.attempts + 1);
        (self.read, self.written) = (0, 0);
        self.start(number, window, at, uncore);
    }

    /// Handles the arrival of a line at `at`; returns whether it was the last. Once dropped, no further line
    /// is read.
    pub fn line_arrived(&mut self, number: usize, at: Time, uncore: &mut Uncore) -> bool {
        let line = u64::from(self.to) * LINES_OF_PAGE + self.written;
        uncore.write(self.cpu, line, at);
        self.written += 1;
        if self.read < self.lines && !self.dropped {
            self.read_next(number, at.max(uncore.accepts(self.cpu, line)), uncore);
        }
        self.written == self.read
    }

    fn read_next(&mut self, number: usize, at: Time, uncore: &mut Uncore) {
        let line = u64::from(self.from) * LINES_OF_PAGE + self.read;
        uncore.read(self.cpu, line, at, Waiter(COPY | number as u32));
        self.read += 1;
    }
}

//! Windows: parts of the region of interest on ideal memory, with the reads of each page in them.
//!
//! There are at most [`WINDOWS`]: once there are more, neighbours merge, and windows become twice as long. A
//! window begins after a number of instructions, so that a run on real memory finds it at its own pace.

use std::cmp::Ordering;

use memtide_core::{InitiatorId, PageSize, TaskId, Time, Vpn};

use crate::engine::{Engine, Timer};
use crate::os::Owner;

/// Maximum number of windows.
const WINDOWS: usize = 16;

/// Length of the first windows.
const FIRST_WINDOW: Time = Time::from_us(50);

/// A part of the region of interest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Instructions that the programs retire in the region before it.
    pub instructions: u64,
    /// Its length on ideal memory.
    pub time: Time,
    /// The pages read in it, sorted by page.
    pub reads: Vec<PageReads>,
}

/// Reads of a page in a window, on ideal memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageReads {
    pub(super) task: TaskId,
    pub(super) page: Vpn,
    pub(super) size: PageSize,
    /// Lines read.
    pub(super) lines: u64,
    /// Of them, those that a thread waited for.
    pub(super) misses: u64,
    /// The initiator that reads most of them.
    pub(super) initiator: InitiatorId,
}

impl PageReads {
    pub(super) fn key(&self) -> (TaskId, Vpn) {
        (self.task, self.page)
    }

    /// Adds reads of the same page; its reader is that with most of the lines.
    fn add(&mut self, other: &PageReads) {
        if other.lines > self.lines {
            self.initiator = other.initiator;
        }
        self.lines += other.lines;
        self.misses += other.misses;
    }
}

/// Reads of each page in all windows.
pub(super) fn in_all(windows: &[Window]) -> Vec<PageReads> {
    windows.iter().fold(Vec::new(), |sum, window| merged(&sum, &window.reads))
}

/// The sum of two sorted lists of pages.
fn merged(a: &[PageReads], b: &[PageReads]) -> Vec<PageReads> {
    let mut sum = Vec::with_capacity(a.len().max(b.len()));
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    while let (Some(first), Some(second)) = (a.peek(), b.peek()) {
        match first.key().cmp(&second.key()) {
            Ordering::Less => sum.extend(a.next()),
            Ordering::Greater => sum.extend(b.next()),
            Ordering::Equal => {
                let mut both = **first;
                both.add(second);
                sum.push(both);
                a.next();
                b.next();
            }
        }
    }
    sum.extend(a.chain(b));
    sum
}

/// The windows of a run on ideal memory.
#[derive(Default)]
pub(crate) struct Windows {
    windows: Vec<Window>,
    /// Start and instructions of the window under way; `None` outside of the region.
    current: Option<(Time, u64)>,
    /// Length of windows, as a power of two times [`FIRST_WINDOW`].
    doubled: u32,
}

impl Windows {
    fn length(&self) -> Time {
        FIRST_WINDOW * (1 << self.doubled)
    }

    fn push(&mut self, window: Window) {
        self.windows.push(window);
        if self.windows.len() > WINDOWS {
            let pair = |pair: &[Window]| match pair {
                [first, second] => Window {
                    instructions: first.instructions,
                    time: first.time + second.time,
                    reads: merged(&first.reads, &second.reads),
                },
                [first, ..] => first.clone(),
                [] => unreachable!("chunks are not empty"),
            };
            self.windows = self.windows.chunks(2).map(pair).collect();
            self.doubled += 1;
        }
    }
}

impl Engine<'_> {
    pub(super) fn begin_window(&mut self, instructions: u64) {
        self.region.windows.current = Some((self.now, instructions));
        self.set_timer(Timer::Oracle, self.now + self.region.windows.length());
    }

    /// Ends the window under way, if there is one.
    pub(super) fn end_window(&mut self) {
        let Some((begun, instructions)) = self.region.windows.current.take() else { return };
        let reads = self.page_reads();
        self.region.windows.push(Window { instructions, time: self.now.since(begun), reads });
    }

    /// Forgets what was read so far outside of the region.
    pub(super) fn forget_reads(&mut self) {
        self.uncore.take_page_uses();
    }

    /// The windows of a run that has ended.
    pub(crate) fn take_windows(&mut self) -> Vec<Window> {
        self.end_window();
        std::mem::take(&mut self.region.windows.windows)
    }

    /// Reads of each page since the last call, sorted by page. Those of a page freed and another one in its
    /// frame count for the later one.
    fn page_reads(&mut self) -> Vec<PageReads> {
        let used = self.uncore.take_page_uses();
        let reads = used.into_iter().map(|(frame, used)| {
            let Owner { task, page, size } = self.os.frames.page_in(frame);
            let (lines, misses) = (used.lines.into(), used.misses.into());
            PageReads { task, page, size, lines, misses, initiator: used.initiator }
        });
        let mut reads: Vec<PageReads> = reads.collect();
        reads.sort_by_key(PageReads::key);
        reads.dedup_by(|next, page| {
            let same = next.key() == page.key();
            if same {
                page.add(next);
            }
            same
        });
        reads
    }
}

/// Reads of a page of task 0 by initiator 0, for tests.
#[cfg(test)]
pub(super) fn page_reads(page: u64, lines: u64, misses: u64) -> PageReads {
    let (task, page, size) = (TaskId(0), Vpn(page), PageSize::Base);
    PageReads { task, page, size, lines, misses, initiator: InitiatorId(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_have_each_page_once_in_order() {
        let a = [page_reads(1, 5, 1), page_reads(4, 1, 1)];
        let b = [page_reads(0, 2, 2), PageReads { initiator: InitiatorId(1), ..page_reads(1, 7, 2) }];
        let both = PageReads { initiator: InitiatorId(1), ..page_reads(1, 12, 3) };
        assert_eq!(merged(&a, &b), [b[0], both, a[1]]);
    }

    #[test]
    fn windows_double_and_lose_nothing() {
        let mut windows = Windows::default();
        for at in 0..100 {
            let time = windows.length();
            windows.push(Window { instructions: at * 10, time, reads: vec![page_reads(at % 3, 1, 1)] });
        }
        assert!((WINDOWS / 2..=WINDOWS).contains(&windows.windows.len()));
        assert!(windows.windows.windows(2).all(|two| two[0].instructions < two[1].instructions));
        let all = in_all(&windows.windows);
        assert_eq!(all.iter().map(|page| page.lines).collect::<Vec<_>>(), [34, 33, 33]);
    }
}

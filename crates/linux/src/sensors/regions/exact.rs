//! Parts of a region on one node, page by page: by the page frames in /proc/PID/pagemap.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::time::Instant;

use memtide_core::{NodeId, PageSize};
use rustix::process::Pid;

use super::Found;
use super::located::{Located, Run};
use crate::processes::Process;
use crate::sys::pagemap::{ENTRY_BYTES, frames, present};
use crate::topology::FrameNodes;

/// Maximum resident base pages of a process that is looked up page by page, 4 GiB: each 1 GiB holds up the
/// epoch for some 13 ms (a page map of base pages, read on an AMD EPYC of Zen 4).
pub const PAGES_MAX: u64 = 1 << 20;

/// A look at all processes is taken as often as this part of a core's time allows.
const BUDGET_PART: u32 = 400;

/// Base pages whose entries are read at once.
const CHUNK: u64 = 4096;

/// Looks up the frames of pages.
#[derive(Debug, Default)]
pub struct PageFrames {
    nodes: FrameNodes,
    entries: Vec<u8>,
    /// The kernel does not show frames, or is too old, or does not tell their nodes.
    is_hidden: bool,
    /// Times in a row that a frame was on no known node.
    unknown: u32,
    looked: BTreeMap<i32, Looked>,
}

/// Where a process's pages were.
#[derive(Debug)]
struct Looked {
    runs: Vec<Run>,
    /// When they are looked up again.
    due: Instant,
}

/// Times in a row after which frames on no known node are not expected to become known.
const UNKNOWN_MAX: u32 = 3;

/// Why pages cannot be looked up.
enum Failed {
    /// Now.
    Now(io::Error),
    /// Frames are hidden.
    Hidden,
    /// A frame is on no known node: memory was added, or two nodes share its memory block.
    Unknown,
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Failed {
        Failed::Now(error)
    }
}

impl PageFrames {
    /// Forgets all processes but these.
    pub fn keep(&mut self, processes: &[Process]) {
        self.looked
            .retain(|&pid, _| processes.iter().any(|process| process.pid.as_raw_nonzero().get() == pid));
    }

    /// The runs of each region of one of `processes` processes, as they were when they were last looked up;
    /// the nodes get the numbers that `number` says. `None` if frames are not readable.
    pub fn runs(
        &mut self,
        pid: Pid,
        processes: usize,
        found: &[Found],
        number: impl Fn(NodeId) -> Option<NodeId>,
    ) -> Option<Vec<Vec<Run>>> {
        if self.is_hidden {
            return None;
        }
        let pid = pid.as_raw_nonzero().get();
        let begun = Instant::now();
        if self.looked.get(&pid).is_none_or(|looked| looked.due <= begun) {
            let runs = self.look(pid, found, number)?;
            let part = BUDGET_PART.saturating_mul(u32::try_from(processes).unwrap_or(u32::MAX));
            let due = Instant::now() + begun.elapsed().saturating_mul(part);
            self.looked.insert(pid, Looked { runs, due });
        }
        let runs = &self.looked.get(&pid)?.runs;
        Some(found.iter().map(|found| within(runs, found)).collect())
    }

    /// The runs of all regions of a process, in order.
    fn look(
        &mut self,
        pid: i32,
        found: &[Found],
        number: impl Fn(NodeId) -> Option<NodeId>,
    ) -> Option<Vec<Run>> {
        if self.nodes.is_empty() {
            self.nodes = FrameNodes::read().unwrap_or_default();
            self.is_hidden = self.nodes.is_empty();
        }
        let pagemap = File::open(format!("/proc/{pid}/pagemap")).ok()?;
        let mut runs = Vec::new();
        match found.iter().try_for_each(|found| self.of_region(&pagemap, found, &number, &mut runs)) {
            Ok(()) => {
                self.unknown = 0;
                return Some(runs);
            }
            Err(Failed::Unknown) => {
                self.nodes = FrameNodes::default();
                self.unknown += 1;
                self.is_hidden = self.unknown >= UNKNOWN_MAX;
            }
            Err(Failed::Hidden) => self.is_hidden = true,
            Err(Failed::Now(error)) => {
                self.is_hidden =
                    error.kind() == io::ErrorKind::Unsupported || error.raw_os_error() == Some(libc::ENOTTY);
            }
        }
        None
    }

    fn of_region(
        &mut self,
        pagemap: &File,
        found: &Found,
        number: &impl Fn(NodeId) -> Option<NodeId>,
        runs: &mut Vec<Run>,
    ) -> Result<(), Failed> {
        let (mut at, end) = (found.start, found.start + found.pages);
        while at < end {
            let (ranges, scanned) = present(pagemap, at..end, u64::MAX)?;
            for range in ranges {
                let (start, size) =
                    (range.pages.start, if range.is_huge { PageSize::Huge } else { PageSize::Base });
                // Of a huge page, one entry tells all.
                let (step, read) = if range.is_huge { (size.base_pages(), 1) } else { (CHUNK, CHUNK) };
                let mut from = start;
                while from < range.pages.end {
                    let until = (from - from % step + step).min(range.pages.end);
                    let pages = read.min(until - from);
                    self.look_up(pagemap, from, pages, |page, id| {
                        let to = if range.is_huge { until } else { page + 1 };
                        if let Some(node) = number(id) {
                            append(runs, page, to, Located { node, size, written: false });
                        }
                    })?;
                    from = until;
                }
            }
            if scanned <= at {
                break;
            }
            at = scanned;
        }
        Ok(())
    }

    /// Calls `see` with each of these pages that is resident, and its node.
    fn look_up(
        &mut self,
        pagemap: &File,
        first: u64,
        pages: u64,
        mut see: impl FnMut(u64, NodeId),
    ) -> Result<(), Failed> {
        let bytes = pages as usize * ENTRY_BYTES;
        self.entries.resize(bytes.max(self.entries.len()), 0);
        for (page, frame) in (first..).zip(frames(pagemap, first, &mut self.entries[..bytes])?) {
            match frame {
                Some(0) => return Err(Failed::Hidden),
                Some(frame) => see(page, self.nodes.node_of(frame).ok_or(Failed::Unknown)?),
                None => {}
            }
        }
        Ok(())
    }
}

/// The parts of runs that lie in a region.
fn within(runs: &[Run], found: &Found) -> Vec<Run> {
    let (start, end) = (found.start, found.start + found.pages);
    let first = runs.partition_point(|run| run.end <= start);
    let runs = runs[first..].iter().take_while(|run| run.start < end);
    runs.map(|run| Run { start: run.start.max(start), end: run.end.min(end), ..*run }).collect()
}

/// Adds pages after all others.
fn append(runs: &mut Vec<Run>, start: u64, end: u64, located: Located) {
    match runs.last_mut() {
        Some(last) if last.located == located && last.end == start => last.end = end,
        _ => runs.push(Run { start, end, located }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This process's own pages, if the kernel shows them.
    #[test]
    fn own_pages_are_found_where_they_are_resident() {
        let pages = 700;
        let memory = vec![7u8; pages * 4096 + 4096];
        let start = (memory.as_ptr() as u64).div_ceil(4096);
        let found = |start, pages| Found { start, pages, accesses: 0, age: 0 };
        let both = [found(start, 300), found(start + 300, 400)];
        let pid = rustix::process::getpid();
        let mut page_frames = PageFrames::default();
        let Some(runs) = page_frames.runs(pid, 1, &both, Some) else {
            assert!(page_frames.is_hidden, "it is known why");
            return;
        };
        let pages = |runs: &[Run]| runs.iter().map(|run| run.end - run.start).sum::<u64>();
        assert_eq!(runs.iter().map(|runs| pages(runs)).collect::<Vec<_>>(), [300, 400], "{runs:?}");
        let later = page_frames.runs(pid, usize::MAX, &[found(start + 100, 50)], Some);
        assert_eq!(later.map(|runs| pages(&runs[0])), Some(50), "as it was");
        page_frames.keep(&[]);
        assert!(page_frames.looked.is_empty());
        drop(memory);
    }
}

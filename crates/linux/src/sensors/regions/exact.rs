//! Parts of a region on one node, page by page: by the page frames in /proc/PID/pagemap.

use std::fs::File;
use std::io;
use std::ops::Range;

use memtide_core::{NodeId, PageSize};
use rustix::process::Pid;

use super::located::{Located, Run, append};
use crate::sys::pagemap::{self, ENTRY_BYTES, frames, present};
use crate::topology::FrameNodes;

/// Resident base pages of all processes up to which every one is looked up: 768 MiB. That takes some 10 ms of
/// base pages on an AMD EPYC of Zen 4, and little of huge ones.
pub const PAGES_MAX: u64 = 3 << 16;

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
    /// Whether frames can be read, as far as is known.
    pub fn are_readable(&self) -> bool {
        !self.is_hidden
    }

    /// The runs of these pages of a process, which are in order of address; `None` if frames cannot be read.
    pub fn runs(
        &mut self,
        pid: Pid,
        ranges: &[Range<u64>],
        number: impl Fn(NodeId) -> Option<NodeId>,
    ) -> Option<Vec<Run>> {
        if self.is_hidden {
            return None;
        }
        if self.nodes.is_empty() {
            self.nodes = FrameNodes::read().unwrap_or_default();
            self.is_hidden = self.nodes.is_empty();
        }
        let pagemap = pagemap::open(pid).ok()?;
        let mut runs = Vec::new();
        let looked_up = ranges
            .iter()
            .try_for_each(|pages| self.look_up_range(&pagemap, pages.clone(), &number, &mut runs));
        match looked_up {
            Ok(()) => {
                self.unknown = 0;
                Some(runs)
            }
            Err(Failed::Unknown) => {
                self.nodes = FrameNodes::default();
                self.unknown += 1;
                self.is_hidden = self.unknown >= UNKNOWN_MAX;
                None
            }
            Err(Failed::Hidden) => {
                self.is_hidden = true;
                None
            }
            Err(Failed::Now(error)) => {
                self.is_hidden =
                    error.kind() == io::ErrorKind::Unsupported || error.raw_os_error() == Some(libc::ENOTTY);
                None
            }
        }
    }

    /// Appends the runs of these pages.
    fn look_up_range(
        &mut self,
        pagemap: &File,
        pages: Range<u64>,
        number: &impl Fn(NodeId) -> Option<NodeId>,
        runs: &mut Vec<Run>,
    ) -> Result<(), Failed> {
        let Range { start: mut at, end } = pages;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// This process's own pages, if the kernel shows them.
    #[test]
    fn own_pages_are_found_where_they_are_resident() {
        let pages = 700;
        let memory = vec![7u8; pages * 4096 + 4096];
        let start = (memory.as_ptr() as u64).div_ceil(4096);
        let end = start + pages as u64;
        let mut page_frames = PageFrames::default();
        let me = rustix::process::getpid();
        let Some(runs) = page_frames.runs(me, &[start..start + 300, start + 300..end], Some) else {
            assert!(page_frames.is_hidden, "it is known why");
            return;
        };
        let resident: u64 = runs.iter().map(|run| run.end.min(end) - run.start.max(start)).sum();
        assert_eq!(resident, pages as u64, "{runs:?}");
        assert!(runs.is_sorted_by(|a, b| a.end <= b.start));
        drop(memory);
    }
}

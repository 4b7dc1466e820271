//! Parts of a region on one node, page by page: by the page frames in /proc/PID/pagemap.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Range;

use memtide_core::{NodeId, PageSize};
use rustix::process::Pid;

use super::Found;
use super::located::{Located, Run};
use crate::processes::{Process, resident_pages};
use crate::sensors::{Changed, Watched};
use crate::sys::pagemap::{ENTRY_BYTES, frames, present};
use crate::topology::FrameNodes;

/// Resident base pages of all processes up to which every one is looked up: 768 MiB. That takes some 10 ms of
/// base pages on an AMD EPYC of Zen 4, and little of huge ones.
pub const PAGES_MAX: u64 = 3 << 16;

/// Base pages whose entries are read at once.
const CHUNK: u64 = 4096;

/// Epochs for which pages are taken to be where they were, while no page is moved or added.
const EPOCHS_MAX: u32 = 8;

/// Part of the resident pages by which their number may change in that time.
const CHANGE_MAX: u64 = 256;

/// Looks up the frames of pages.
#[derive(Debug, Default)]
pub struct PageFrames {
    known: HashMap<Pid, Known>,
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

/// Where all of a process's pages in its regions were.
#[derive(Debug, Default)]
struct Known {
    started_ticks: u64,
    resident_pages: u64,
    epochs: u32,
    /// What was looked up, in order of address; adjacent regions are one range.
    ranges: Vec<Range<u64>>,
    /// In order of address.
    runs: Vec<Run>,
}

impl Known {
    /// Whether a region was looked up.
    fn covers(&self, found: &Found) -> bool {
        let at = self.ranges.partition_point(|range| range.end <= found.start);
        let range = self.ranges.get(at);
        found.pages == 0
            || range.is_some_and(|range| range.start <= found.start && found.start + found.pages <= range.end)
    }

    /// Changes the runs as these pages changed.
    fn apply<'c>(&mut self, changes: impl Iterator<Item = &'c Changed>) {
        let mut changes: Vec<&Changed> = changes.collect();
        if changes.is_empty() {
            return;
        }
        changes.sort_by_key(|changed| changed.pages.start);
        let mut changes = changes.into_iter().peekable();
        for mut run in std::mem::take(&mut self.runs) {
            while let Some(changed) = changes.next_if(|changed| changed.pages.start < run.end) {
                let (start, end) = (changed.pages.start.max(run.start), changed.pages.end.min(run.end));
                if start >= end {
                    continue;
                }
                let node = changed.node.unwrap_or(run.located.node);
                append(&mut self.runs, run.start, start, run.located);
                append(&mut self.runs, start, end, Located { node, size: changed.size, written: false });
                run.start = end;
            }
            append(&mut self.runs, run.start, run.end, run.located);
        }
    }

    /// The parts of these runs in a region.
    fn within(&self, found: &Found) -> Vec<Run> {
        let (start, end) = (found.start, found.start + found.pages);
        let first = self.runs.partition_point(|run| run.end <= start);
        let within = self.runs[first..].iter().take_while(|run| run.start < end);
        within.map(|run| Run { start: run.start.max(start), end: run.end.min(end), ..*run }).collect()
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Failed {
        Failed::Now(error)
    }
}

impl PageFrames {
    /// Forgets all other processes.
    pub fn keep(&mut self, processes: &[Process]) {
        self.known.retain(|pid, _| processes.iter().any(|process| process.pid == *pid));
    }

    /// The runs of each region; `None` if frames are not readable. Looks pages up if some of this process's
    /// came or went, or were not as they were observed, or after some epochs.
    pub fn runs(&mut self, process: &Process, found: &[Found], watched: &Watched) -> Option<Vec<Vec<Run>>> {
        let resident_pages = resident_pages(process.pid.as_raw_nonzero().get())?;
        let is_outdated = watched.outdated.contains(&process.pid);
        if let Some(known) = self.known.get_mut(&process.pid) {
            known.epochs += 1;
            known.apply(watched.changed.iter().filter(|changed| changed.pid == process.pid));
            let is_same = known.started_ticks == process.started_ticks
                && known.resident_pages.abs_diff(resident_pages) <= resident_pages / CHANGE_MAX;
            let is_covered = found.iter().all(|found| known.covers(found));
            if is_same && is_covered && !is_outdated && known.epochs < EPOCHS_MAX {
                return Some(found.iter().map(|found| known.within(found)).collect());
            }
        }
        let all = self.look_up_all(process.pid, found, |id| watched.number(id));
        let known = |all: &Vec<Vec<Run>>| Known {
            started_ticks: process.started_ticks,
            resident_pages,
            epochs: 0,
            ranges: ranges(found),
            runs: all.concat(),
        };
        match all.as_ref().map(known) {
            Some(known) => self.known.insert(process.pid, known),
            None => self.known.remove(&process.pid),
        };
        all
    }

    fn look_up_all(
        &mut self,
        pid: Pid,
        found: &[Found],
        number: impl Fn(NodeId) -> Option<NodeId>,
    ) -> Option<Vec<Vec<Run>>> {
        if self.is_hidden {
            return None;
        }
        if self.nodes.is_empty() {
            self.nodes = FrameNodes::read().unwrap_or_default();
            self.is_hidden = self.nodes.is_empty();
        }
        let pagemap = File::open(format!("/proc/{}/pagemap", pid.as_raw_nonzero())).ok()?;
        let runs: Result<Vec<Vec<Run>>, Failed> =
            found.iter().map(|found| self.of_region(&pagemap, found, &number)).collect();
        match runs {
            Ok(runs) => {
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

    fn of_region(
        &mut self,
        pagemap: &File,
        found: &Found,
        number: &impl Fn(NodeId) -> Option<NodeId>,
    ) -> Result<Vec<Run>, Failed> {
        let (mut at, end) = (found.start, found.start + found.pages);
        let mut runs = Vec::new();
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
                            append(&mut runs, page, to, Located { node, size, written: false });
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
        Ok(runs)
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

/// The regions, of which adjacent ones are one range.
fn ranges(found: &[Found]) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for found in found {
        let end = found.start + found.pages;
        match ranges.last_mut() {
            Some(last) if last.end == found.start => last.end = end,
            _ => ranges.push(found.start..end),
        }
    }
    ranges
}

/// Adds pages after all others, if there are any.
fn append(runs: &mut Vec<Run>, start: u64, end: u64, located: Located) {
    match runs.last_mut() {
        _ if start >= end => {}
        Some(last) if last.located == located && last.end == start => last.end = end,
        _ => runs.push(Run { start, end, located }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Numbers;

    fn watched() -> Watched {
        let nodes = (0..=255).map(NodeId).collect();
        Watched::new(Numbers { nodes, cpus: Vec::new(), scan_pages: 0 })
    }

    #[test]
    fn known_runs_change_as_pages_are_moved_and_split() {
        let run = |start, end, node, size| {
            let located = Located { node: NodeId(node), size, written: false };
            Run { start, end, located }
        };
        let runs = vec![run(0, 10, 0, PageSize::Base), run(512, 1536, 1, PageSize::Huge)];
        let mut known = Known { runs: runs.clone(), ..Known::default() };
        let pid = rustix::process::getpid();
        let change = |pages, node, size| Changed { pid, pages, node, size };
        known.apply([].iter());
        assert_eq!(known.runs, runs);
        let changes = [
            change(1024..1536, Some(NodeId(0)), PageSize::Huge),
            change(4..5, Some(NodeId(1)), PageSize::Base),
            change(20..21, Some(NodeId(1)), PageSize::Base),
            change(5..6, Some(NodeId(1)), PageSize::Base),
            change(512..1024, None, PageSize::Base),
        ];
        known.apply(changes.iter());
        let expected = [
            run(0, 4, 0, PageSize::Base),
            run(4, 6, 1, PageSize::Base),
            run(6, 10, 0, PageSize::Base),
            run(512, 1024, 1, PageSize::Base),
            run(1024, 1536, 0, PageSize::Huge),
        ];
        assert_eq!(known.runs, expected);
    }

    /// This process's own pages, if the kernel shows them.
    #[test]
    fn own_pages_are_found_where_they_are_resident() {
        let pages = 700;
        let memory = vec![7u8; pages * 4096 + 4096];
        let start = (memory.as_ptr() as u64).div_ceil(4096);
        let found = Found { start, pages: pages as u64, accesses: 0, age: 0 };
        let process = crate::processes::one(rustix::process::getpid()).expect("this process");
        let mut page_frames = PageFrames::default();
        let mut watched = watched();
        let Some(runs) = page_frames.runs(&process, &[found], &watched) else {
            assert!(page_frames.is_hidden, "it is known why");
            return;
        };
        let resident: u64 =
            runs[0].iter().map(|run| run.end.min(start + pages as u64) - run.start.max(start)).sum();
        assert_eq!(resident, pages as u64, "{runs:?}");
        assert!(runs[0].is_sorted_by(|a, b| a.end <= b.start));
        let half = [(0, 300), (300, 400)].map(|(at, pages)| Found { start: start + at, pages, ..found });
        let before = page_frames.known[&process.pid].epochs;
        let parts = page_frames.runs(&process, &half, &watched).expect("as before");
        let known = &page_frames.known[&process.pid];
        // Others' tests may have changed how much is resident.
        assert!(known.epochs == before + 1 || known.epochs == 0);
        let resident: u64 = parts.concat().iter().map(|run| run.end - run.start).sum();
        assert_eq!(resident, pages as u64, "{parts:?}");
        watched.outdated.push(process.pid);
        let again = page_frames.runs(&process, &half, &watched).expect("as before");
        assert_eq!((page_frames.known[&process.pid].epochs, again), (0, parts));
        page_frames.keep(&[]);
        assert!(page_frames.known.is_empty());
        drop(memory);
    }

    #[test]
    fn parts_of_known_runs_are_those_in_the_region() {
        let located = |node| Located { node: NodeId(node), size: PageSize::Base, written: false };
        let run = |start, end, node| Run { start, end, located: located(node) };
        let known = Known { runs: vec![run(10, 20, 0), run(20, 30, 1), run(40, 50, 0)], ..Known::default() };
        let within = |start, pages| known.within(&Found { start, pages, accesses: 0, age: 0 });
        assert_eq!(within(0, 10), []);
        assert_eq!(within(12, 13), [run(12, 20, 0), run(20, 25, 1)]);
        assert_eq!(within(25, 100), [run(25, 30, 1), run(40, 50, 0)]);
        assert_eq!(within(30, 10), []);
    }

    #[test]
    fn regions_that_were_not_looked_up_are_not_known() {
        let found = |start, pages| Found { start, pages, accesses: 0, age: 0 };
        let known =
            Known { ranges: ranges(&[found(10, 10), found(20, 5), found(40, 10)]), ..Known::default() };
        for (start, pages, expected) in [
            (10, 15, true),
            (12, 3, true),
            (40, 10, true),
            (5, 6, false),
            (20, 6, false),
            (26, 2, false),
            (60, 1, false),
        ] {
            assert_eq!(known.covers(&found(start, pages)), expected, "{start}, {pages}");
        }
    }
}

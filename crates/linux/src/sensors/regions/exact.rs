//! Parts of a region on one node, page by page: by the page frames in /proc/PID/pagemap.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Range;

use memtide_core::{NodeId, PageSize};
use rustix::process::Pid;

use super::Found;
use super::located::{Located, Run};
use crate::pace::Pace;
use crate::processes::Process;
use crate::sensors::{Changed, Watched};
use crate::sys::pagemap::{ENTRY_BYTES, frames, present};
use crate::sys::time::thread_time;
use crate::topology::FrameNodes;

/// Resident base pages of all processes up to which every one is looked up: 768 MiB. That takes some 10 ms of
/// base pages on an AMD EPYC of Zen 4, and little of huge ones.
pub const PAGES_MAX: u64 = 3 << 16;

/// Base pages whose entries are read at once.
const CHUNK: u64 = 4096;

/// Minimum epochs for which pages are taken to be where they were, while next to none come or go.
const EPOCHS_MIN: u32 = 8;

/// Part of the resident pages by which their number may change in that time.
const CHANGE_MAX: u64 = 256;

/// Part of the resident pages by whose change they are looked up at once: what the process did to them takes
/// far longer.
const LARGE_CHANGE: u64 = 8;

/// Looks up the frames of pages.
#[derive(Debug)]
pub struct PageFrames {
    known: HashMap<Pid, Known>,
    /// Of looking pages up again.
    pace: Pace,
    /// The processes looked up again next are at least this stale: the others' turn comes later.
    stalest: u32,
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

/// Where a process's pages are in the regions that were looked up.
#[derive(Debug, Default)]
struct Known {
    started_ticks: u64,
    resident_pages: u64,
    /// Epochs since, each counted as [`EPOCHS_MIN`] if pages came or went, or were not where they were
    /// observed.
    staleness: u32,
    /// What was looked up, in order of address; adjacent regions are one range.
    ranges: Vec<Range<u64>>,
    /// In order of address.
    runs: Vec<Run>,
}

impl Known {
    /// Nothing yet of a process.
    fn of(process: &Process) -> Known {
        Known {
            started_ticks: process.started_ticks,
            resident_pages: process.resident_pages,
            ..Known::default()
        }
    }

    /// Ends an epoch.
    fn age(&mut self, process: &Process, watched: &Watched) {
        self.apply(watched.changed.iter().filter(|changed| changed.pid == process.pid));
        let is_outdated = watched.outdated.contains(&process.pid)
            || self.change(process) > process.resident_pages / CHANGE_MAX;
        self.staleness = self.staleness.saturating_add(if is_outdated { EPOCHS_MIN } else { 1 });
    }

    /// Base pages that came or went since, at least.
    fn change(&self, process: &Process) -> u64 {
        self.resident_pages.abs_diff(process.resident_pages)
    }

    /// What was not looked up of these regions, which are in order of address.
    fn missing(&self, found: &[Found]) -> Vec<Range<u64>> {
        let mut missing: Vec<Range<u64>> = Vec::new();
        let mut add = |pages: Range<u64>| match missing.last_mut() {
            _ if pages.is_empty() => {}
            Some(last) if last.end == pages.start => last.end = pages.end,
            _ => missing.push(pages),
        };
        for found in found {
            let (mut start, end) = (found.start, found.start + found.pages);
            let first = self.ranges.partition_point(|range| range.end <= start);
            for range in self.ranges[first..].iter().take_while(|range| range.start < end) {
                add(start..range.start.max(start));
                start = range.end.min(end);
            }
            add(start..end);
        }
        missing
    }

    /// Adds what was missing.
    fn add(&mut self, missing: Vec<Range<u64>>, runs: Vec<Run>) {
        self.runs.extend(runs);
        self.runs.sort_by_key(|run| run.start);
        self.ranges.extend(missing);
        self.ranges.sort_by_key(|range| range.start);
        self.ranges.dedup_by(|next, last| {
            let is_adjacent = next.start == last.end;
            if is_adjacent {
                last.end = next.end;
            }
            is_adjacent
        });
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
    /// Looks pages up again at this pace.
    pub fn new(pace: Pace) -> PageFrames {
        PageFrames {
            known: HashMap::new(),
            pace,
            stalest: 0,
            nodes: FrameNodes::default(),
            entries: Vec::new(),
            is_hidden: false,
            unknown: 0,
        }
    }

    /// Begins an epoch: forgets all other processes.
    pub fn keep(&mut self, processes: &[Process]) {
        self.known.retain(|pid, _| processes.iter().any(|process| process.pid == *pid));
        self.stalest = self.known.values().map(|known| known.staleness).max().unwrap_or(0);
    }

    /// The runs of each region, which are in order of address; `None` if frames are not readable. Looks up
    /// what is not known yet, and the pages of a process again some epochs later, or in the next one if some
    /// came or went or were not where they were observed, as the pace allows; if many did, at once.
    pub fn runs(&mut self, process: &Process, found: &[Found], watched: &Watched) -> Option<Vec<Vec<Run>>> {
        let is_same = |known: &Known| known.started_ticks == process.started_ticks;
        let known = self.known.remove(&process.pid).filter(is_same);
        let mut known = known.unwrap_or_else(|| Known::of(process));
        known.age(process, watched);
        let is_its_turn = known.staleness >= EPOCHS_MIN.max(self.stalest) && self.pace.is_due(watched.now);
        if is_its_turn || known.change(process) > process.resident_pages / LARGE_CHANGE {
            known = Known::of(process);
        }
        let missing = known.missing(found);
        if !missing.is_empty() {
            let begun = thread_time();
            let runs = self.look_up_all(process.pid, &missing, |id| watched.number(id))?;
            known.add(missing, runs);
            self.pace.spend(watched.now, thread_time().saturating_sub(begun));
        }
        let all = found.iter().map(|found| known.within(found)).collect();
        self.known.insert(process.pid, known);
        Some(all)
    }

    fn look_up_all(
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
        let pagemap = File::open(format!("/proc/{}/pagemap", pid.as_raw_nonzero())).ok()?;
        let mut runs = Vec::new();
        let looked_up =
            ranges.iter().try_for_each(|pages| self.look_up_range(&pagemap, pages.clone(), &number, &mut runs));
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
    use std::time::Duration;

    use super::*;
    use crate::topology::Numbers;
    use memtide_core::Time;

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
        let mut page_frames = PageFrames::new(Pace::default());
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
        let parts = page_frames.runs(&process, &half, &watched).expect("as before");
        assert_eq!(page_frames.known[&process.pid].staleness, 2);
        let resident: u64 = parts.concat().iter().map(|run| run.end - run.start).sum();
        assert_eq!(resident, pages as u64, "{parts:?}");
        watched.outdated.push(process.pid);
        let again = page_frames.runs(&process, &half, &watched).expect("as before");
        assert_eq!((page_frames.known[&process.pid].staleness, again), (0, parts));
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
    fn what_is_missing_of_regions_is_looked_up_alone() {
        let found = |start, pages| Found { start, pages, accesses: 0, age: 0 };
        let mut known = Known::default();
        assert_eq!(known.missing(&[found(10, 10), found(20, 5), found(40, 10)]), [10..25, 40..50]);
        known.add(vec![10..25, 40..50], Vec::new());
        for (regions, missing) in [
            (vec![found(10, 15)], vec![]),
            (vec![found(12, 3), found(40, 10)], vec![]),
            (vec![found(5, 6)], vec![5..10]),
            (vec![found(20, 6), found(26, 2)], vec![25..28]),
            (vec![found(0, 100)], vec![0..10, 25..40, 50..100]),
            (vec![found(60, 1), found(70, 0)], vec![60..61]),
        ] {
            assert_eq!(known.missing(&regions), missing, "{regions:?}");
        }
        let run = |start, end| {
            let located = Located { node: NodeId(0), size: PageSize::Base, written: false };
            Run { start, end, located }
        };
        known.add(vec![25..30], vec![run(26, 28)]);
        known.add(vec![30..40], vec![run(30, 31)]);
        known.add(vec![0..1], vec![run(0, 1)]);
        assert_eq!(known.ranges, [0..1, 10..50]);
        assert_eq!(known.runs, [run(0, 1), run(26, 28), run(30, 31)]);
    }

    #[test]
    fn stale_processes_are_looked_up_again_in_turn_as_the_pace_allows() {
        let process = crate::processes::one(rustix::process::getpid()).expect("this process");
        let mut watched = watched();
        let mut known = Known::of(&process);
        known.age(&process, &watched);
        assert_eq!(known.staleness, 1);
        let grown = Process { resident_pages: process.resident_pages * 65 / 64, ..process.clone() };
        known.age(&grown, &watched);
        assert_eq!(known.staleness, 1 + EPOCHS_MIN);
        watched.outdated.push(process.pid);
        known.age(&process, &watched);
        assert_eq!(known.staleness, 1 + 2 * EPOCHS_MIN);

        let mut page_frames = PageFrames::new(Pace::share(0.001));
        watched.outdated.clear();
        let staleness = |page_frames: &mut PageFrames, stale: u32, stalest: u32, now: Time| {
            let known = Known { staleness: stale, ..Known::of(&process) };
            page_frames.known.insert(process.pid, known);
            page_frames.stalest = stalest;
            let watched = Watched { now, ..Watched::new(watched.numbers.clone()) };
            page_frames.runs(&process, &[], &watched).expect("nothing to look up");
            page_frames.known[&process.pid].staleness
        };
        let start = Time::from_ms(1000);
        assert_eq!(staleness(&mut page_frames, 5, 5, start), 6, "not yet");
        assert_eq!(staleness(&mut page_frames, 9, 20, start), 10, "another is staler");
        assert_eq!(staleness(&mut page_frames, 20, 20, start), 0, "its turn");
        page_frames.pace.spend(start, Duration::from_millis(1));
        assert_eq!(staleness(&mut page_frames, 20, 20, Time::from_ms(1900)), 21, "1 ms takes 1 s");
        assert_eq!(staleness(&mut page_frames, 20, 20, Time::from_ms(2000)), 0);
        page_frames.pace.spend(start, Duration::from_secs(1));
        page_frames.known.insert(process.pid, Known { staleness: 1, ..Known::default() });
        page_frames.known.get_mut(&process.pid).expect("it").started_ticks = process.started_ticks;
        page_frames.runs(&process, &[], &watched).expect("nothing to look up");
        assert_eq!(page_frames.known[&process.pid].staleness, 0, "its pages are new");
    }
}

//! Where pages of processes are: remembered, and looked up again in turn.

use std::collections::HashMap;
use std::io;
use std::ops::Range;

use rustix::process::Pid;

use super::Found;
use super::located::{Located, Run, append};
use crate::pace::Pace;
use crate::processes::Process;
use crate::sensors::{Changed, Watched};
use crate::sys::time::thread_time;

/// Part of the resident pages by which their number may change before they are looked up again.
const CHANGE_MAX: u64 = 256;

/// Part of the resident pages by whose change they are looked up at once: what the process did to them takes
/// far longer.
const LARGE_CHANGE: u64 = 8;

/// Staleness of a process some of whose pages are not where they were.
const OUTDATED: u32 = 8;

/// Where all watched processes' pages are.
#[derive(Debug)]
pub struct Places {
    known: HashMap<Pid, Known>,
    /// Of looking pages up again.
    pace: Pace,
    /// The processes looked up again next are at least this stale: the others' turn comes later.
    stalest: u32,
}

/// Where a process's pages are in the regions that were looked up.
#[derive(Debug, Default)]
struct Known {
    started_ticks: u64,
    resident_pages: u64,
    /// Epochs since, each counted as [`OUTDATED`] if pages came or went, or were not where they were
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
        self.staleness = self.staleness.saturating_add(if is_outdated { OUTDATED } else { 1 });
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

impl Places {
    /// None yet; pages are looked up again at this pace.
    pub fn new(pace: Pace) -> Places {
        Places { known: HashMap::new(), pace, stalest: 0 }
    }

    /// Begins an epoch: forgets all other processes.
    pub fn keep(&mut self, processes: &[Process]) {
        self.known.retain(|pid, _| processes.iter().any(|process| process.pid == *pid));
        let stalest = self.known.values().map(|known| known.staleness).max();
        self.stalest = stalest.filter(|_| self.pace.is_limited()).unwrap_or(0);
    }

    /// The runs of each region of a process, in order of address, as `look_up` finds them. What is not known
    /// is looked up at once, and the rest again after `epochs`, or in the next one if pages came or went or
    /// were not where they were observed, as the pace allows; at once if many came or went.
    ///
    /// # Errors
    /// Those of `look_up`. Nothing is known of the process then.
    pub fn runs(
        &mut self,
        process: &Process,
        found: &[Found],
        watched: &Watched,
        epochs: u32,
        look_up: impl FnOnce(&[Range<u64>]) -> io::Result<Vec<Run>>,
    ) -> io::Result<Vec<Vec<Run>>> {
        let is_same = |known: &Known| known.started_ticks == process.started_ticks;
        let known = self.known.remove(&process.pid).filter(is_same);
        let mut known = known.unwrap_or_else(|| Known::of(process));
        known.age(process, watched);
        let is_its_turn = known.staleness >= epochs.max(self.stalest) && self.pace.is_due(watched.now);
        if is_its_turn || known.change(process) > process.resident_pages / LARGE_CHANGE {
            known = Known::of(process);
        }
        let missing = known.missing(found);
        if !missing.is_empty() {
            let begun = thread_time();
            let runs = look_up(&missing)?;
            known.add(missing, runs);
            self.pace.spend(watched.now, thread_time().saturating_sub(begun));
        }
        let all = found.iter().map(|found| known.within(found)).collect();
        self.known.insert(process.pid, known);
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use memtide_core::{NodeId, PageSize, Time};

    use super::*;
    use crate::topology::Numbers;

    fn nothing(_: &[Range<u64>]) -> io::Result<Vec<Run>> {
        unreachable!("no region")
    }

    fn watched() -> Watched {
        Watched::new(Numbers { nodes: Vec::new(), cpus: Vec::new(), scan_pages: 0 })
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
        assert_eq!(known.staleness, 1 + OUTDATED);
        watched.outdated.push(process.pid);
        known.age(&process, &watched);
        assert_eq!(known.staleness, 1 + 2 * OUTDATED);

        let mut places = Places::new(Pace::share(0.001));
        watched.outdated.clear();
        let staleness = |places: &mut Places, stale: u32, stalest: u32, now: Time| {
            let known = Known { staleness: stale, ..Known::of(&process) };
            places.known.insert(process.pid, known);
            places.stalest = stalest;
            let watched = Watched { now, ..Watched::new(watched.numbers.clone()) };
            places.runs(&process, &[], &watched, 8, nothing).expect("nothing to look up");
            places.known[&process.pid].staleness
        };
        let start = Time::from_ms(1000);
        assert_eq!(staleness(&mut places, 5, 5, start), 6, "not yet");
        assert_eq!(staleness(&mut places, 9, 20, start), 10, "another is staler");
        assert_eq!(staleness(&mut places, 20, 20, start), 0, "its turn");
        places.pace.spend(start, Duration::from_millis(1));
        assert_eq!(staleness(&mut places, 20, 20, Time::from_ms(1900)), 21, "1 ms takes 1 s");
        assert_eq!(staleness(&mut places, 20, 20, Time::from_ms(2000)), 0);
        places.pace.spend(start, Duration::from_secs(1));
        places.known.insert(process.pid, Known { staleness: 1, ..Known::default() });
        places.known.get_mut(&process.pid).expect("it").started_ticks = process.started_ticks;
        places.runs(&process, &[], &watched, 8, nothing).expect("nothing to look up");
        assert_eq!(places.known[&process.pid].staleness, 0, "its pages are new");
    }

    #[test]
    fn what_is_known_is_not_looked_up_again_until_then() {
        let process = crate::processes::one(rustix::process::getpid()).expect("this process");
        let found = |start, pages| Found { start, pages, accesses: 0, age: 0 };
        let on = |node| Located { node: NodeId(node), size: PageSize::Base, written: false };
        let (mut places, watched) = (Places::new(Pace::default()), watched());
        let mut runs = |found: &[Found], node| {
            let mut asked = Vec::new();
            let all = places.runs(&process, found, &watched, 3, |missing| {
                asked = missing.to_vec();
                Ok(missing
                    .iter()
                    .map(|pages| Run { start: pages.start, end: pages.end, located: on(node) })
                    .collect())
            });
            let nodes =
                |runs: Vec<Run>| runs.iter().map(|run| (run.start, run.located.node.0)).collect::<Vec<_>>();
            (asked, nodes(all.expect("no error").concat()))
        };
        assert_eq!(runs(&[found(0, 10)], 0), (vec![0..10], vec![(0, 0)]));
        assert_eq!(runs(&[found(4, 16)], 1), (vec![10..20], vec![(4, 0), (10, 1)]));
        assert_eq!(runs(&[found(0, 20)], 2), (vec![0..20], vec![(0, 2)]));
        let error = places.runs(&process, &[found(30, 1)], &watched, 3, |_| Err(io::Error::other("no")));
        assert!(error.is_err() && places.known.is_empty());
        places.known.insert(process.pid, Known { staleness: 5, ..Known::default() });
        places.keep(std::slice::from_ref(&process));
        assert_eq!(places.stalest, 0, "all have their turn");
        places.pace = Pace::share(0.5);
        places.keep(std::slice::from_ref(&process));
        assert_eq!(places.stalest, 5);
        places.keep(&[]);
        assert!(places.known.is_empty());
    }
}

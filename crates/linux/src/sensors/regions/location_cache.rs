//! Where pages of processes are, as they were looked up.
//!
//! Each page is looked up once, when a region first has it. memtide's own moves and splits change what is
//! cached. What the kernel or the process does to the pages is only seen by looking again: a process is due
//! for that some epochs after it was looked up, the latest first, as a share of a core allows. One whose size
//! has changed much does not wait: what it did to its pages takes far longer. Of one that has grown less,
//! only what had no pages is looked up at once: a program may use memory that it has had for long.
//!
//! ```text
//! epoch       1       2       3       4       5       6
//! process A   look    .       .       due     look    .        due after 3 epochs
//! process B   look    due     look    due     due     look     due after 1
//! budget      first   spent   allows  spent   allows  allows
//! ```

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::time::Duration;

use rustix::process::Pid;

use super::Found;
use super::located::{Located, Run, append};
use crate::cpu_budget::CpuBudget;
use crate::processes::Process;
use crate::sensors::{Changed, Watched};
use crate::sys::time::thread_time;

/// Part of the resident pages by which their number may change before they are looked up again.
const CHANGE_MAX: u64 = 256;

/// Part of the resident pages by whose change they are looked up at once: what the process did to them takes
/// far longer.
const LARGE_CHANGE: u64 = 8;

/// Part of the resident pages by whose growth the new ones are looked up at once.
const GROWTH: u64 = 64;

/// Staleness of a process some of whose pages are not where they were.
const OUTDATED: u32 = 8;

/// Beyond it, processes are equally late.
const STALENESS_MAX: u32 = 1 << 20;

/// Where all watched processes' pages are.
#[derive(Debug)]
pub struct LocationCache {
    processes: HashMap<Pid, Cached>,
    /// Of looking again.
    budget: CpuBudget,
    /// Lateness of the latest process: the others' turn comes later.
    latest: u32,
}

/// Where a process's pages are in the regions that were looked up.
#[derive(Debug, Default)]
struct Cached {
    started_ticks: u64,
    resident_pages: u64,
    /// Epochs since, each counted as [`OUTDATED`] if pages came or went, or were not where they were
    /// observed.
    staleness: u32,
    /// Staleness at which it is due.
    epochs: u32,
    /// What was looked up, in order of address; adjacent regions are one range.
    ranges: Vec<Range<u64>>,
    /// In order of address.
    runs: Vec<Run>,
}

impl Cached {
    /// Nothing yet of a process.
    fn of(process: &Process) -> Cached {
        Cached {
            started_ticks: process.started_ticks,
            resident_pages: process.resident_pages,
            ..Cached::default()
        }
    }

    /// How late it is; 0 if it is not due.
    fn lateness(&self) -> u32 {
        (self.staleness + 1).saturating_sub(self.epochs)
    }

    /// Ends an epoch.
    fn age(&mut self, process: &Process, watched: &Watched) {
        self.apply(watched.changed.iter().filter(|changed| changed.pid == process.pid));
        let is_outdated = watched.outdated.contains(&process.pid)
            || self.change(process) > process.resident_pages / CHANGE_MAX;
        let passed = if is_outdated { OUTDATED } else { 1 };
        self.staleness = self.staleness.saturating_add(passed).min(STALENESS_MAX);
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

    /// Whether so many pages came that they are looked up at once.
    fn has_grown(&self, process: &Process) -> bool {
        process.resident_pages.saturating_sub(self.resident_pages) > process.resident_pages / GROWTH
    }

    /// Makes what had no pages missing.
    fn forget_holes(&mut self, process: &Process) {
        self.resident_pages = process.resident_pages;
        self.ranges = self.runs.iter().map(|run| run.start..run.end).collect();
        self.join_ranges();
    }

    /// Makes adjacent ranges one.
    fn join_ranges(&mut self) {
        self.ranges.dedup_by(|next, last| {
            let is_adjacent = next.start == last.end;
            if is_adjacent {
                last.end = next.end;
            }
            is_adjacent
        });
    }

    /// Adds what was missing.
    fn add(&mut self, missing: Vec<Range<u64>>, found: Vec<Run>) {
        let mut all = std::mem::take(&mut self.runs);
        all.extend(found);
        all.sort_by_key(|run| run.start);
        all.iter().for_each(|run| append(&mut self.runs, run.start, run.end, run.located));
        self.ranges.extend(missing);
        self.ranges.sort_by_key(|range| range.start);
        self.join_ranges();
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

impl LocationCache {
    /// Without processes; it looks again within this budget.
    pub fn new(budget: CpuBudget) -> LocationCache {
        LocationCache { processes: HashMap::new(), budget, latest: 0 }
    }

    /// Begins an epoch: forgets all other processes.
    pub fn keep(&mut self, processes: &[Process]) {
        self.processes.retain(|pid, _| processes.iter().any(|process| process.pid == *pid));
        self.latest = self.processes.values().map(Cached::lateness).max().unwrap_or(0);
    }

    /// The runs of each region of a process, in order of address, as `look_up` finds them. What is not cached
    /// is looked up at once, and the rest again after `epochs`; in the next one if pages came or went or were
    /// not where they were observed. This waits for the budget, unless many came or went. If fewer came, what
    /// had no pages is looked up at once.
    ///
    /// # Errors
    /// Those of `look_up`. Nothing is cached of the process then.
    pub fn runs(
        &mut self,
        process: &Process,
        found: &[Found],
        watched: &Watched,
        epochs: u32,
        look_up: impl FnOnce(&[Range<u64>]) -> io::Result<Vec<Run>>,
    ) -> io::Result<Vec<Vec<Run>>> {
        let now = Duration::from_nanos(watched.now.as_ns() as u64);
        let is_same = |cached: &Cached| cached.started_ticks == process.started_ticks;
        let cached = self.processes.remove(&process.pid).filter(is_same);
        let mut cached = match cached {
            Some(mut cached) => {
                cached.age(process, watched);
                cached
            }
            None => Cached::of(process),
        };
        cached.epochs = epochs;
        let is_its_turn = cached.lateness() >= self.latest.max(1) && self.budget.is_due(now);
        if is_its_turn || cached.change(process) > process.resident_pages / LARGE_CHANGE {
            cached = Cached { epochs, ..Cached::of(process) };
        }
        let has_grown = cached.has_grown(process);
        if has_grown {
            cached.forget_holes(process);
        }
        let missing = cached.missing(found);
        if !missing.is_empty() {
            let (begun, are_counted) = (thread_time(), has_grown || cached.ranges.is_empty());
            let runs = look_up(&missing)?;
            if !are_counted {
                cached.resident_pages += runs.iter().map(|run| run.end - run.start).sum::<u64>();
            }
            cached.add(missing, runs);
            if is_its_turn {
                self.budget.spend(now, thread_time().saturating_sub(begun));
            }
        }
        let all = found.iter().map(|found| cached.within(found)).collect();
        self.processes.insert(process.pid, cached);
        Ok(all)
    }
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "lists of ranges, some of one")]
mod tests {
    use memtide_core::{NodeId, PageSize, Time};

    use super::*;
    use crate::topology::Numbers;

    fn watched() -> Watched {
        Watched::new(Numbers { nodes: Vec::new(), cpus: Vec::new(), scan_pages: 0 })
    }

    #[test]
    fn cached_runs_change_as_pages_are_moved_and_split() {
        let run = |start, end, node, size| {
            let located = Located { node: NodeId(node), size, written: false };
            Run { start, end, located }
        };
        let runs = vec![run(0, 10, 0, PageSize::Base), run(512, 1536, 1, PageSize::Huge)];
        let mut cached = Cached { runs: runs.clone(), ..Cached::default() };
        let pid = rustix::process::getpid();
        let change = |pages, node, size| Changed { pid, pages, node, size };
        cached.apply([].iter());
        assert_eq!(cached.runs, runs);
        let changes = [
            change(1024..1536, Some(NodeId(0)), PageSize::Huge),
            change(4..5, Some(NodeId(1)), PageSize::Base),
            change(20..21, Some(NodeId(1)), PageSize::Base),
            change(5..6, Some(NodeId(1)), PageSize::Base),
            change(512..1024, None, PageSize::Base),
        ];
        cached.apply(changes.iter());
        let expected = [
            run(0, 4, 0, PageSize::Base),
            run(4, 6, 1, PageSize::Base),
            run(6, 10, 0, PageSize::Base),
            run(512, 1024, 1, PageSize::Base),
            run(1024, 1536, 0, PageSize::Huge),
        ];
        assert_eq!(cached.runs, expected);
    }

    #[test]
    fn parts_of_cached_runs_are_those_in_the_region() {
        let located = |node| Located { node: NodeId(node), size: PageSize::Base, written: false };
        let run = |start, end, node| Run { start, end, located: located(node) };
        let cached =
            Cached { runs: vec![run(10, 20, 0), run(20, 30, 1), run(40, 50, 0)], ..Cached::default() };
        let within = |start, pages| cached.within(&Found { start, pages, accesses: 0, age: 0 });
        assert_eq!(within(0, 10), []);
        assert_eq!(within(12, 13), [run(12, 20, 0), run(20, 25, 1)]);
        assert_eq!(within(25, 100), [run(25, 30, 1), run(40, 50, 0)]);
        assert_eq!(within(30, 10), []);
    }

    #[test]
    fn only_uncached_ranges_are_looked_up() {
        let found = |start, pages| Found { start, pages, accesses: 0, age: 0 };
        let mut cached = Cached::default();
        assert_eq!(cached.missing(&[found(10, 10), found(20, 5), found(40, 10)]), [10..25, 40..50]);
        cached.add(vec![10..25, 40..50], Vec::new());
        for (regions, missing) in [
            (vec![found(10, 15)], vec![]),
            (vec![found(12, 3), found(40, 10)], vec![]),
            (vec![found(5, 6)], vec![5..10]),
            (vec![found(20, 6), found(26, 2)], vec![25..28]),
            (vec![found(0, 100)], vec![0..10, 25..40, 50..100]),
            (vec![found(60, 1), found(70, 0)], vec![60..61]),
        ] {
            assert_eq!(cached.missing(&regions), missing, "{regions:?}");
        }
        let run = |start, end| {
            let located = Located { node: NodeId(0), size: PageSize::Base, written: false };
            Run { start, end, located }
        };
        cached.add(vec![25..30], vec![run(26, 28)]);
        cached.add(vec![30..40], vec![run(30, 31)]);
        cached.add(vec![0..1], vec![run(0, 1)]);
        assert_eq!(cached.ranges, [0..1, 10..50]);
        cached.add(vec![50..60], vec![run(50, 55)]);
        cached.add(vec![60..70], vec![run(60, 61)]);
        cached.add(vec![70..80], vec![run(70, 80)]);
        cached.add(vec![80..90], vec![run(80, 90)]);
        assert_eq!(cached.ranges, [0..1, 10..90]);
        let runs = [run(0, 1), run(26, 28), run(30, 31), run(50, 55), run(60, 61), run(70, 90)];
        assert_eq!(cached.runs, runs, "adjacent ones are one");
    }

    fn this_process() -> Process {
        crate::processes::one(rustix::process::getpid()).expect("this process")
    }

    #[test]
    fn changes_make_a_process_stale() {
        let process = this_process();
        let mut watched = watched();
        let mut cached = Cached::of(&process);
        cached.age(&process, &watched);
        assert_eq!(cached.staleness, 1);
        let grown = Process { resident_pages: process.resident_pages * 65 / 64, ..process.clone() };
        cached.age(&grown, &watched);
        assert_eq!(cached.staleness, 1 + OUTDATED);
        watched.outdated.push(process.pid);
        cached.age(&process, &watched);
        assert_eq!(cached.staleness, 1 + 2 * OUTDATED);
        let late = |staleness, epochs| Cached { staleness, epochs, ..Cached::default() }.lateness();
        assert_eq!([late(7, 8), late(8, 8), late(12, 8), late(0, 1), late(1, 1)], [0, 1, 5, 0, 1]);
    }

    /// A process whose pages are looked up again after this many epochs.
    struct Looked {
        process: Process,
        epochs: u32,
        looks: u32,
    }

    impl Looked {
        fn new(pid: i32, epochs: u32) -> Looked {
            let pid = Pid::from_raw(pid).expect("an id");
            Looked { process: Process { pid, ..this_process() }, epochs, looks: 0 }
        }
    }

    /// Runs some epochs of 100 ms, in each of which this process gets this part more pages.
    fn run(budget: CpuBudget, all: &mut [Looked], epochs: u64, growth: u64) {
        let mut cache = LocationCache::new(budget);
        let found = [Found { start: 0, pages: 10, accesses: 0, age: 0 }];
        for epoch in 0..epochs {
            let watched = Watched { now: Time::from_ms(epoch * 100), ..watched() };
            let processes: Vec<Process> = all.iter().map(|looked| looked.process.clone()).collect();
            cache.keep(&processes);
            for Looked { process, epochs, looks } in &mut *all {
                let (begun, mut is_looked) = (thread_time(), false);
                let runs = cache.runs(process, &found, &watched, *epochs, |_| {
                    is_looked = true;
                    while thread_time().saturating_sub(begun) < Duration::from_micros(300) {}
                    Ok(Vec::new())
                });
                runs.expect("no error");
                *looks += u32::from(is_looked);
                process.resident_pages += process.resident_pages.checked_div(growth).unwrap_or(0);
            }
        }
    }

    #[test]
    fn without_a_limit_each_process_is_looked_up_when_due() {
        let mut all = [Looked::new(1, 8), Looked::new(2, 1)];
        run(CpuBudget::default(), &mut all, 81, 0);
        assert_eq!(all.map(|looked| looked.looks), [11, 81]);
    }

    #[test]
    fn looking_again_keeps_to_the_budget_the_latest_first() {
        // 300 us in 300 ms: every third epoch.
        let mut all = [Looked::new(1, 1), Looked::new(2, 1), Looked::new(3, 8)];
        run(CpuBudget::share(0.001), &mut all, 300, 0);
        let looks = all.map(|looked| looked.looks);
        assert!(looks.iter().sum::<u32>() <= 103, "{looks:?}");
        assert!(looks.iter().all(|&looks| looks >= 15), "{looks:?}");
    }

    #[test]
    fn large_changes_do_not_wait_and_do_not_keep_others_waiting() {
        let mut all = [Looked::new(1, 1), Looked::new(2, 1)];
        run(CpuBudget::share(0.0001), &mut all, 30, 4);
        assert!(all.iter().all(|looked| looked.looks >= 29));
        let mut all = [Looked::new(1, 1)];
        run(CpuBudget::share(0.0001), &mut all, 30, 0);
        assert!((1..=2).contains(&all[0].looks));
    }

    #[test]
    fn pages_of_a_growing_process_are_found_at_once() {
        let found = [Found { start: 0, pages: 1000, accesses: 0, age: 0 }];
        let located = Located { node: NodeId(0), size: PageSize::Base, written: false };
        let mut cache = LocationCache::new(CpuBudget::share(1e-6));
        let mut runs = |resident_pages| {
            let process = Process { resident_pages, ..this_process() };
            let mut asked = Vec::new();
            // Pages come from the front.
            let all = cache.runs(&process, &found, &watched(), 100, |missing| {
                asked = missing.to_vec();
                let run = |pages: &Range<u64>| Run { start: pages.start, end: resident_pages, located };
                Ok(missing.iter().map(run).collect())
            });
            (asked, all.expect("no error").concat().iter().map(|run| run.end - run.start).sum::<u64>())
        };
        assert_eq!(runs(640), (vec![0..1000], 640));
        assert_eq!(runs(649), (vec![], 640), "a few");
        assert_eq!(runs(660), (vec![640..1000], 660));
        assert_eq!(runs(660), (vec![], 660));
        assert_eq!(runs(600), (vec![], 660), "it waits for the budget");
        assert_eq!(runs(700), (vec![660..1000], 700));
    }

    #[test]
    fn locations_are_cached_until_they_are_due_or_their_process_is_gone() {
        let process = this_process();
        let found = |start, pages| Found { start, pages, accesses: 0, age: 0 };
        let on = |node| Located { node: NodeId(node), size: PageSize::Base, written: false };
        let (mut cache, watched) = (LocationCache::new(CpuBudget::default()), watched());
        let mut runs = |found: &[Found], node| {
            let mut asked = Vec::new();
            let all = cache.runs(&process, found, &watched, 3, |missing| {
                asked = missing.to_vec();
                let run = |pages: &Range<u64>| Run { start: pages.start, end: pages.end, located: on(node) };
                Ok(missing.iter().map(run).collect())
            });
            let all = all.expect("no error").concat();
            (asked, all.iter().map(|run| (run.start, run.located.node.0)).collect::<Vec<_>>())
        };
        assert_eq!(runs(&[found(0, 10)], 0), (vec![0..10], vec![(0, 0)]));
        assert_eq!(runs(&[found(4, 6)], 1), (vec![], vec![(4, 0)]));
        assert_eq!(runs(&[found(4, 6)], 1), (vec![], vec![(4, 0)]));
        assert_eq!(runs(&[found(0, 10)], 2), (vec![0..10], vec![(0, 2)]));
        let error = cache.runs(&process, &[found(30, 1)], &watched, 3, |_| Err(io::Error::other("no")));
        assert!(error.is_err() && cache.processes.is_empty());
        cache.processes.insert(process.pid, Cached::default());
        cache.keep(&[]);
        assert!(cache.processes.is_empty());
    }
}

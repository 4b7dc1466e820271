//! The scanner's walk through memory, as Linux's task_numa_work does it.

use std::collections::BTreeMap;

use memtide_core::policy::{HintFault, Region};
use memtide_core::{CpuId, TaskId, Time, Vpn};

use super::runners::{Runner, SeveralNodes, Threads};
use super::scanned;
use crate::processes::Process;

/// Scans the memory of processes, a part of it in each epoch.
#[derive(Debug)]
pub struct Hints {
    cpus: Vec<CpuId>,
    scan_pages: u64,
    tasks: BTreeMap<TaskId, Task>,
}

#[derive(Debug, Default)]
struct Task {
    threads: Threads,
    walk: Walk,
}

/// The scanner's position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Walk {
    /// The next base page.
    next: u64,
    /// Complete passes over memory.
    pass: u32,
}

impl Hints {
    /// A scanner of this many base pages per step; `cpus` maps each of the system's CPUs to one of the
    /// machine's in the same initiator.
    pub fn new(cpus: Vec<CpuId>, scan_pages: u64) -> Hints {
        Hints { cpus, scan_pages, tasks: BTreeMap::new() }
    }

    /// Forgets all other processes.
    pub fn keep(&mut self, tasks: &[TaskId]) {
        self.tasks.retain(|task, _| tasks.contains(task));
    }

    /// The faults of a step on a process with these regions: one for each scanned page in a region that was
    /// accessed. Their times are set later.
    ///
    /// # Errors
    /// If the process ran on CPUs of several nodes: the accessing one is then unknown.
    pub fn step(
        &mut self,
        process: &Process,
        task: TaskId,
        regions: &[Region],
    ) -> Result<Vec<HintFault>, SeveralNodes> {
        let Task { threads, walk } = self.tasks.entry(task).or_default();
        let Some(runner) = threads.runner(process.pid, &self.cpus)? else { return Ok(Vec::new()) };
        let visited = scanned::visited(regions, &scanned::mappings(process.pid));
        Ok(walk.step(&visited, self.scan_pages, runner))
    }
}

impl Walk {
    /// Advances by this many resident base pages, or to the end, after which the next step starts over.
    fn step(&mut self, regions: &[Region], scan_pages: u64, runner: Runner) -> Vec<HintFault> {
        let (mut faults, mut left, pass) = (Vec::new(), scan_pages, self.pass);
        for region in regions {
            let each = region.size.base_pages();
            let before = self.next.saturating_sub(region.start.0).div_ceil(each).min(region.pages);
            let pages = (region.pages - before).min(left.div_ceil(each));
            let first = region.start.0 + before * each;
            if region.reads + region.writes > 0 {
                let pages = (0..pages).map(|page| Vpn(first + page * each));
                faults.extend(pages.map(|page| fault(region, page, runner, pass)));
            }
            left = left.saturating_sub(pages * each);
            if left == 0 {
                self.next = first + pages * each;
                return faults;
            }
        }
        *self = Walk { next: 0, pass: pass.saturating_add(1) };
        faults
    }
}

fn fault(region: &Region, page: Vpn, runner: Runner, pass: u32) -> HintFault {
    HintFault {
        time: Time::ZERO,
        task: region.task,
        thread: runner.thread,
        cpu: runner.cpu,
        page,
        size: region.size,
        node: region.node,
        write: region.writes > 0,
        pass,
        idle: None,
    }
}

/// Spreads the faults' times over `since` (exclusive) to `now`: faults at one time would count as concurrent.
pub fn spread(faults: &mut [HintFault], since: Time, now: Time) {
    let step = (now.0.saturating_sub(since.0) / faults.len().max(1) as u64).max(1);
    for (number, fault) in (1..).zip(faults) {
        fault.time = Time(since.0 + step * number);
    }
}

#[cfg(test)]
mod tests {
    use memtide_core::{NodeId, PageSize, ThreadId};

    use super::*;

    const RUNNER: Runner = Runner { thread: ThreadId(7), cpu: CpuId(3) };

    fn region(start: u64, pages: u64, size: PageSize, reads: u32) -> Region {
        Region { task: TaskId(5), start: Vpn(start), pages, size, node: NodeId(1), reads, writes: 0, age: 0 }
    }

    fn steps(walk: &mut Walk, regions: &[Region], scan_pages: u64) -> Vec<u64> {
        walk.step(regions, scan_pages, RUNNER).iter().map(|fault| fault.page.0).collect()
    }

    #[test]
    fn walk_wraps_around_and_idle_regions_have_no_faults() {
        let (base, huge) = (PageSize::Base, PageSize::Huge);
        let regions = [region(10, 3, base, 1), region(20, 4, base, 0), region(512, 2, huge, 2)];
        let mut walk = Walk::default();
        assert_eq!(steps(&mut walk, &regions, 2), [10, 11]);
        assert_eq!(steps(&mut walk, &regions, 4), [12], "and three idle ones");
        assert_eq!(steps(&mut walk, &regions, 100), [512]);
        assert_eq!(walk.pass, 0);
        assert_eq!(steps(&mut walk, &regions, 4096), [1024]);
        assert_eq!(walk, Walk { next: 0, pass: 1 });
        assert_eq!(steps(&mut walk, &regions, 4096), [10, 11, 12, 512, 1024], "once in a step at most");
        assert_eq!(steps(&mut walk, &[], 4096), [0; 0]);
        let all = walk.step(&regions, 4096, RUNNER);
        assert!(all.iter().all(|fault| (fault.cpu, fault.thread, fault.pass) == (CpuId(3), ThreadId(7), 3)));
    }

    #[test]
    fn fault_times_are_distinct() {
        let mut faults = Walk::default().step(&[region(0, 4, PageSize::Base, 1)], 9, RUNNER);
        spread(&mut faults, Time(100), Time(140));
        assert_eq!(faults.iter().map(|fault| fault.time.0).collect::<Vec<u64>>(), [110, 120, 130, 140]);
        spread(&mut faults, Time(140), Time(140));
        assert!(faults.is_sorted_by(|a, b| a.time < b.time));
        spread(&mut [], Time(1), Time(2));
    }
}

//! Accesses by region: a monitor finds regions of equal access, a sample of their pages gives the node.

mod damon;
mod exact;
mod located;
mod location_cache;
mod monitors;
mod sampled;
mod shared_memory;
mod smaps;
mod soft_dirty;

use std::io;
use std::ops::Range;

use memtide_core::Vpn;
use memtide_core::policy::{Answer, Event, Region, RegionSampling, Sensor, View};

pub use self::damon::Damon;
use self::exact::PageFrames;
use self::located::{Located, Run};
use self::location_cache::LocationCache;
use self::monitors::Chosen;
pub use self::monitors::{CLEARED_MAX, Found, Kind, RegionMonitor, Remedy, Unusable, Usable, usable};
use self::sampled::PageSampler;
pub use self::smaps::Smaps;
pub use self::soft_dirty::SoftDirty;
use super::{Monitoring, Sense, SensorSetup, Watched, task};
use crate::cpu_budget::CpuBudget;
use crate::processes::{FORBIDDEN, Process};

/// Minimum epochs for which pages are taken to be where they were looked up, while next to none come or go.
const LOOKED_UP_EPOCHS: u32 = 8;

/// Consecutive failures after which another monitor is selected.
const FAILURES_MAX: u32 = 3;

/// The regions of the watched processes.
#[derive(Debug)]
struct RegionSensor {
    monitor: Chosen,
    /// Failures since it last worked.
    failures: u32,
    has_worked: bool,
    writes: Option<SoftDirty>,
    sampler: PageSampler,
    page_frames: PageFrames,
    locations: LocationCache,
}

pub(super) fn open(sensor: &Sensor, setup: &SensorSetup<'_>) -> Option<io::Result<Box<dyn Sense>>> {
    let Sensor::Regions(sampling) = sensor else { return None };
    Some(RegionSensor::new(sampling, setup.monitor).map(|sensor| Box::new(sensor) as Box<dyn Sense>))
}

impl RegionSensor {
    /// Half of the budget is for looking again where pages are, unless writes are counted: then all is the
    /// monitor's.
    fn new(sampling: &RegionSampling, wanted: Option<Kind>) -> io::Result<RegionSensor> {
        let writes =
            sampling.writes.then(|| SoftDirty::check().map(|()| SoftDirty::default())).transpose()?;
        let half = |bp: u32| if writes.is_some() { 0 } else { bp / 2 };
        let for_monitor = sampling.budget_bp.map(|bp| (bp - half(bp)).max(1));
        let for_locations = sampling.budget_bp.map(|bp| f64::from(half(bp).max(1)) / 1e4);
        Ok(RegionSensor {
            monitor: monitors::choose(&RegionSampling { budget_bp: for_monitor, ..*sampling }, wanted)?,
            failures: 0,
            has_worked: false,
            writes,
            sampler: PageSampler::new(),
            page_frames: PageFrames::default(),
            locations: LocationCache::new(for_locations.map_or_else(CpuBudget::default, CpuBudget::share)),
        })
    }

    /// Watches the processes again from the next call on; after several consecutive failures, by another
    /// monitor.
    fn failed(&mut self, error: &io::Error, watched: &mut Watched) {
        watched.lost = true;
        let before = self.monitor.kind;
        watched.troubles.push(format!("monitor {}: {error}", before.name()));
        self.failures += 1;
        if self.failures < FAILURES_MAX {
            return;
        }
        self.failures = 0;
        match self.monitor.choose_again(!self.has_worked) {
            Ok(()) if self.monitor.kind == before => {}
            Ok(()) => {
                let name = self.monitor.kind.name();
                watched.troubles.push(format!("memory is now monitored by {name}"));
            }
            Err(error) => watched.troubles.push(format!("cannot monitor memory: {error}")),
        }
    }

    /// Bits of a process above the size limit are not cleared, so it is not watched this way.
    fn report_large(&self, watched: &mut Watched) {
        let by_smaps = self.monitor.kind == Kind::Smaps;
        let large = watched.processes.iter().find(|process| process.resident_pages > CLEARED_MAX);
        if let Some(process) = large.filter(|_| by_smaps || self.writes.is_some()) {
            let what = if by_smaps { "memory is not monitored by smaps" } else { "writes are not monitored" };
            watched.troubles.push(format!(
                "process {} ({}) has more than {} GiB in memory: its {what}, for that would hold it up",
                process.pid.as_raw_nonzero(),
                process.name,
                CLEARED_MAX >> 18
            ));
        }
    }

    /// Splits the monitor's runs into runs on one node, page by page if the frames of `frames_left` base
    /// pages may be looked up, else by this many pages of each.
    fn locate(
        &mut self,
        process: &Process,
        found: &[Found],
        (pages, frames_left): (u64, &mut u64),
        watched: &mut Watched,
    ) -> io::Result<Vec<Vec<Run>>> {
        let RegionSensor { writes, sampler, page_frames, locations, .. } = self;
        let pid = process.pid;
        if let Some(writes) = writes {
            let Watched { numbers, troubles, shared, .. } = watched;
            let places = shared_memory::places(pid, shared, |id| numbers.of_node(id));
            let written = |pages: &[u64]| written(writes, process, pages, troubles);
            return sampler.runs(found, pages, places, written);
        }
        let watched: &Watched = watched;
        let number = |id| watched.number(id);
        let resident = process.resident_pages + watched.shared.mapped_pages(task(pid));
        let resident = resident.min(found.iter().map(|found| found.pages).sum());
        let left = frames_left.checked_sub(resident).filter(|_| page_frames.are_readable());
        *frames_left = left.unwrap_or(*frames_left);
        let epochs = if left.is_some() { LOOKED_UP_EPOCHS } else { 1 };
        locations.runs(process, found, watched, epochs, |missing| {
            if left.is_some()
                && let Some(mut runs) = page_frames.runs(pid, missing, number)
            {
                shared_memory::add_others(&mut runs, missing, task(pid), &watched.shared, |pid, pages| {
                    page_frames.runs(pid, pages, number)
                });
                return Ok(runs);
            }
            let missing: Vec<Found> = within(found, missing).collect();
            let places = shared_memory::places(pid, &watched.shared, number);
            let runs = sampler.runs(&missing, pages, places, |pages| vec![false; pages.len()])?;
            Ok(runs.concat())
        })
    }
}

/// The parts of regions in these pages, both in order of address.
fn within<'f>(found: &'f [Found], pages: &'f [Range<u64>]) -> impl Iterator<Item = Found> + 'f {
    pages.iter().flat_map(move |pages| {
        let first = found.partition_point(|found| found.start + found.pages <= pages.start);
        let within = found[first..].iter().take_while(|found| found.start < pages.end);
        within.map(|found| {
            let (start, end) = (found.start.max(pages.start), (found.start + found.pages).min(pages.end));
            Found { start, pages: end - start, ..*found }
        })
    })
}

/// Whether each page was written recently.
fn written(
    writes: &mut SoftDirty,
    process: &Process,
    pages: &[u64],
    troubles: &mut Vec<String>,
) -> Vec<bool> {
    writes.written(process, pages).unwrap_or_else(|error| {
        troubles.push(format!("soft-dirty: {error}"));
        vec![false; pages.len()]
    })
}

/// Appends the whole pages of each region's runs.
fn push_runs(process: &Process, found: &[Found], all: &[Vec<Run>], view: &mut View) {
    let mut end = 0;
    for (found, runs) in found.iter().zip(all) {
        for run in runs {
            let Some((start, pages)) = run.whole(end) else { continue };
            let (task, start, Located { node, size, written }) = (task(process.pid), Vpn(start), run.located);
            let (reads, age) = (found.accesses.max(written.into()), found.age);
            let writes = if written { reads } else { 0 };
            view.regions.push(Region { task, start, pages, size, node, reads, writes, age });
            end = start.0 + pages * size.base_pages();
        }
    }
}

impl Sense for RegionSensor {
    fn answer(&self) -> Answer {
        let writes = if self.writes.is_some() { ", writes by soft-dirty" } else { "" };
        let why = self.monitor.why_not_better.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
        let means = format!("{}{writes}{why}", self.monitor.kind.name());
        match self.monitor.kind {
            Kind::Damon => Answer::Observed(means),
            // Whole mappings, by the share of them that was referenced.
            Kind::Smaps => Answer::Inferred(means),
        }
    }

    fn monitoring(&self) -> Option<Monitoring<'_>> {
        let (name, writes) = (self.monitor.kind.name(), self.writes.is_some());
        Some(Monitoring { name, why_not_better: self.monitor.why_not_better.as_deref(), writes })
    }

    fn watch(&mut self, watched: &mut Watched) {
        if let Some(writes) = &mut self.writes {
            writes.keep(&watched.processes);
        }
        if let Err(error) = self.monitor.monitor.watch(&watched.processes) {
            self.failed(&error, watched);
        }
    }

    fn fill(&mut self, watched: &mut Watched, view: &mut View, _: &mut Vec<Event>) {
        self.report_large(watched);
        let all = match self.monitor.monitor.read() {
            Ok(all) => all,
            Err(error) => return self.failed(&error, watched),
        };
        (self.failures, self.has_worked) = (0, true);
        let all = shared_memory::by_owner(&watched.shared, &watched.processes, all);
        self.locations.keep(&watched.processes);
        view.region_samples = self.monitor.monitor.samples();
        let pages = sampled::pages_of_each(all.iter().map(Vec::len).sum());
        let (mut forbidden, mut frames_left) = (None, exact::PAGES_MAX);
        for (process, found) in watched.processes.clone().into_iter().zip(all) {
            match self.locate(&process, &found, (pages, &mut frames_left), watched) {
                Ok(runs) => push_runs(&process, &found, &runs, view),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    forbidden.get_or_insert(process);
                }
                // It has exited.
                Err(_) => {}
            }
        }
        watched.troubles.extend(forbidden.map(|Process { pid, name, .. }| {
            let pid = pid.as_raw_nonzero();
            format!("process {pid} ({name}), and perhaps others, may not be inspected: {FORBIDDEN}")
        }));
    }
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "lists of ranges, some of one")]
mod tests {
    use super::*;

    #[test]
    fn regions_are_cut_to_the_pages_that_are_asked_for() {
        let found = |start, pages| Found { start, pages, accesses: 3, age: 7 };
        let all = [found(0, 10), found(10, 10), found(30, 5)];
        let cut = |pages: &[Range<u64>]| within(&all, pages).collect::<Vec<_>>();
        assert_eq!(cut(&[0..20, 30..35]), all);
        assert_eq!(cut(&[5..12, 15..16, 32..40]), [found(5, 5), found(10, 2), found(15, 1), found(32, 3)]);
        assert_eq!(cut(&[20..30]), []);
    }
}

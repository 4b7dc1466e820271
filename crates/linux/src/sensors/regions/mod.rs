//! Accesses by region: a monitor finds regions of equal access, a sample of their pages gives the node.

mod damon;
mod exact;
mod located;
mod monitors;
mod smaps;
mod soft_dirty;

use std::io;

use memtide_core::policy::{Answer, Event, Region, RegionSampling, Sensor, View};
use memtide_core::{NodeId, PageSize, Vpn};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

pub use self::damon::Damon;
use self::exact::PageFrames;
use self::located::{Located, Run, Sample, refine, runs};
use self::monitors::Chosen;
pub use self::monitors::{CLEARED_MAX, Found, Kind, RegionMonitor, Remedy, Unusable, Usable, usable};
pub use self::smaps::Smaps;
pub use self::soft_dirty::SoftDirty;
use super::{Monitoring, Sense, SensorSetup, Watched, task};
use crate::movers::nodes_of;
use crate::pace::Pace;
use crate::processes::{FORBIDDEN, Process};
use crate::sys::pagemap::huge_pages;

/// Sampled pages per region (maximum, minimum) and over all regions. Each costs the kernel thousands of
/// instructions.
const SAMPLED_MAX: u64 = 16;
const SAMPLED_MIN: u64 = 2;
const SAMPLED_TOTAL: u64 = 512;

/// Maximum pages of a process that are looked at for the borders between samples on different nodes.
const REFINED_MAX: usize = 512;

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
    draws: Xoshiro256PlusPlus,
    page_frames: PageFrames,
}

pub(super) fn open(sensor: &Sensor, setup: &SensorSetup<'_>) -> Option<io::Result<Box<dyn Sense>>> {
    let Sensor::Regions(sampling) = sensor else { return None };
    Some(RegionSensor::new(sampling, setup.monitor).map(|sensor| Box::new(sensor) as Box<dyn Sense>))
}

impl RegionSensor {
    /// Half of the budget is the monitor's, half is for looking up where pages are.
    fn new(sampling: &RegionSampling, wanted: Option<Kind>) -> io::Result<RegionSensor> {
        let writes =
            sampling.writes.then(|| SoftDirty::check().map(|()| SoftDirty::default())).transpose()?;
        let half = sampling.budget_bp.map(|bp| bp.div_ceil(2));
        let monitor = monitors::choose(&RegionSampling { budget_bp: half, ..*sampling }, wanted)?;
        let draws = Xoshiro256PlusPlus::seed_from_u64(1);
        let pace = half.map_or_else(Pace::default, |bp| Pace::share(f64::from(bp) / 1e4));
        let page_frames = PageFrames::new(pace);
        Ok(RegionSensor { monitor, failures: 0, has_worked: false, writes, draws, page_frames })
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
    /// pages may be looked up.
    fn locate(
        &mut self,
        process: &Process,
        found: &[Found],
        (parts, frames_left): (u64, &mut u64),
        watched: &mut Watched,
        view: &mut View,
    ) -> io::Result<()> {
        let left = frames_left.checked_sub(process.resident_pages).filter(|_| self.writes.is_none());
        if let Some(left) = left
            && let Some(all) = self.page_frames.runs(process, found, watched)
        {
            *frames_left = left;
            push_runs(process, found, &all, view);
            return Ok(());
        }
        let all = self.locate_by_samples(process, found, parts, watched)?;
        push_runs(process, found, &all, view);
        Ok(())
    }

    /// The runs of each region, to the resolution of one sampled page per equal part of a region.
    fn locate_by_samples(
        &mut self,
        process: &Process,
        found: &[Found],
        parts: u64,
        watched: &mut Watched,
    ) -> io::Result<Vec<Vec<Run>>> {
        let asked: Vec<Vec<u64>> = found.iter().map(|found| self.draw_pages(found, parts)).collect();
        let all = asked.concat();
        let nodes = nodes_of(process.pid, &all)?;
        let written = self.written(process, &all, &mut watched.troubles);
        let huge = huge_pages(process.pid);
        let place = |id: Option<NodeId>, page, written| {
            let size = if huge(page) { PageSize::Huge } else { PageSize::Base };
            Some(Located { node: watched.number(id?)?, size, written })
        };
        let located = nodes.iter().zip(&all).zip(written);
        let mut located = located.map(|((&id, &page), written)| (page, place(id, page, written)));
        let mut samples: Vec<Vec<Sample>> =
            asked.iter().map(|asked| located.by_ref().take(asked.len()).collect()).collect();
        refine(&mut samples, REFINED_MAX, |pages| {
            let nodes = nodes_of(process.pid, pages)?;
            Ok(nodes.iter().zip(pages).map(|(&id, &page)| place(id, page, false)).collect())
        })?;
        Ok(found.iter().zip(&samples).map(|(found, samples)| runs(found, samples)).collect())
    }

    /// Whether each page was written recently; false for all if writes are not requested.
    fn written(&mut self, process: &Process, pages: &[u64], troubles: &mut Vec<String>) -> Vec<bool> {
        let Some(writes) = &mut self.writes else { return vec![false; pages.len()] };
        writes.written(process, pages).unwrap_or_else(|error| {
            troubles.push(format!("soft-dirty: {error}"));
            vec![false; pages.len()]
        })
    }

    /// Pages of a region, one at random from each of this many equal parts.
    fn draw_pages(&mut self, found: &Found, parts: u64) -> Vec<u64> {
        let parts = found.pages.min(parts);
        (0..parts)
            .map(|part| {
                let (from, to) = (found.pages * part / parts, found.pages * (part + 1) / parts);
                found.start + from + self.draws.next_u64() % (to - from)
            })
            .collect()
    }
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
        self.page_frames.keep(&watched.processes);
        view.region_samples = self.monitor.monitor.samples();
        let regions: usize = all.iter().map(Vec::len).sum();
        let parts = (SAMPLED_TOTAL / regions.max(1) as u64).clamp(SAMPLED_MIN, SAMPLED_MAX);
        let (mut forbidden, mut frames_left) = (None, exact::PAGES_MAX);
        for (process, found) in watched.processes.clone().into_iter().zip(all) {
            let located = self.locate(&process, &found, (parts, &mut frames_left), watched, view);
            if located.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
                forbidden.get_or_insert(process);
            }
        }
        watched.troubles.extend(forbidden.map(|Process { pid, name, .. }| {
            let pid = pid.as_raw_nonzero();
            format!("process {pid} ({name}), and perhaps others, may not be inspected: {FORBIDDEN}")
        }));
    }
}

//! Access counts by adaptive regions, as in Linux's DAMON (Documentation/mm/damon/design.rst).

mod adaptive;
mod mapped;

use memtide_core::policy::{Region, RegionSampling, Sensor, View};
use memtide_core::{Time, Vpn};
use rand_core::SeedableRng;
use rand_xoshiro::SplitMix64;

use self::adaptive::{Regions, Watched};
use super::{Sense, SensorSetup};
use crate::engine::Engine;
use crate::os::{Entry, Os};

/// Minimum number of regions, given as many pages and similar neighbours (DAMON's default).
const REGIONS_MIN: u64 = 10;

/// Counts that differ by at most 1/N of the largest one are similar (DAMON's choice).
const MERGE_DIVISOR: u32 = 10;

/// Watches all tasks' memory. Each sampling interval checks one page of each region.
struct RegionSensor {
    needs: RegionSampling,
    /// Sampling interval, chosen for the budget if there is one.
    sampling: Time,
    /// Its working time.
    system: Time,
    /// Number of epochs in which it was read.
    observations: u64,
    /// Samples per aggregation interval, and those taken so far.
    samples: u64,
    taken: u64,
    regions_max: usize,
    regions: Regions,
    /// The regions at the end of the last aggregation interval, the samples of each, and whether they were
    /// read.
    latest: Vec<Watched>,
    latest_samples: u64,
    is_read: bool,
    /// Working time at the end of the last aggregation interval.
    tuned_system: Time,
    random: SplitMix64,
}

pub(super) fn open(sensor: &Sensor, setup: &SensorSetup) -> Option<Box<dyn Sense>> {
    let Sensor::Regions(sampling) = sensor else { return None };
    Some(Box::new(RegionSensor::new(sampling, setup.seed)))
}

impl RegionSensor {
    fn new(needs: &RegionSampling, seed: u64) -> RegionSensor {
        RegionSensor {
            needs: *needs,
            sampling: needs.sampling,
            system: Time::ZERO,
            observations: 0,
            samples: samples(needs, needs.sampling),
            taken: 0,
            regions_max: (needs.regions_max as usize).max(2),
            regions: Regions::default(),
            latest: Vec::new(),
            latest_samples: 0,
            is_read: true,
            tuned_system: Time::ZERO,
            random: SplitMix64::seed_from_u64(seed),
        }
    }

    /// Counts the sampled pages that were accessed since they were picked.
    fn check(&mut self, os: &mut Os) {
        for region in self.regions.iter_mut() {
            let Some((entry, _)) = os.spaces[region.task.index()].table.find(region.picked) else { continue };
            if entry.has(Entry::PRESENT) {
                region.counts.reads += u32::from(entry.has(Entry::ACCESSED));
                region.counts.writes += u32::from(entry.has(Entry::DIRTY));
            }
        }
    }

    /// Picks a page of each region and clears its accessed and dirty bits. A translation in a TLB stays
    /// there, as in Linux: accesses through it are not seen. Earlier accesses remain visible to reclaim.
    fn prepare(&mut self, os: &mut Os) {
        for region in self.regions.iter_mut() {
            region.pick(&mut self.random);
            let Some((entry, _)) = os.spaces[region.task.index()].table.find(region.picked) else { continue };
            if entry.has(Entry::ACCESSED) {
                entry.set(Entry::YOUNG);
            }
            entry.clear(Entry::ACCESSED | Entry::DIRTY);
        }
    }

    /// Ends an aggregation interval: regions age, similar ones are merged, and currently mapped memory is
    /// split for the next interval.
    fn aggregate(&mut self, os: &mut Os) {
        let threshold = self.regions.largest_count() / MERGE_DIVISOR;
        let limit = self.regions.pages() / REGIONS_MIN;
        self.regions.update_ages(threshold);
        self.regions.merge(threshold, limit);
        self.latest.clone_from(&self.regions);
        self.latest_samples = self.samples;
        self.is_read = false;
        self.regions.cover(&mapped::spans(&mut os.spaces, self.regions_max / 2));
        self.regions.fit(threshold, limit, self.regions_max);
        self.regions.start_interval();
        self.regions.split(&mut self.random, self.regions_max);
        self.tune();
    }

    /// Sets the sampling interval by the budget, if there is one.
    fn tune(&mut self) {
        let spent = self.system.since(self.tuned_system);
        let passed = Time(self.sampling.0 * self.samples);
        self.tuned_system = self.system;
        self.sampling = self.needs.tuned(self.sampling, spent, passed);
        self.samples = samples(&self.needs, self.sampling);
    }

    /// Fills in the result of the last aggregation interval, as runs of pages of one size on one node.
    fn observe(&mut self, os: &mut Os, view: &mut View) {
        self.observations += 1;
        for watched in &self.latest {
            runs(watched, os).into_iter().for_each(|run| view.regions.push(run));
        }
        if self.needs.budget_bp.is_some() {
            view.region_samples = Some(if self.is_read { 0 } else { self.latest_samples as u32 });
        }
        self.is_read = true;
    }
}

impl Sense for RegionSensor {
    fn fill(&mut self, engine: &mut Engine<'_>, view: &mut View) {
        self.observe(&mut engine.os, view);
    }

    fn sampling(&self) -> Option<Time> {
        Some(self.sampling)
    }

    fn sample(&mut self, os: &mut Os) {
        self.check(os);
        self.system += os.costs.sample * self.regions.len() as u64;
        self.taken += 1;
        if self.taken == self.samples {
            self.taken = 0;
            self.aggregate(os);
        }
        self.prepare(os);
    }

    fn cost(&self) -> Option<(Time, u64)> {
        Some((self.system, self.observations))
    }
}

/// Samples of an aggregation interval.
fn samples(needs: &RegionSampling, sampling: Time) -> u64 {
    (needs.aggregation.0 / sampling.0).max(1)
}

/// The present pages of a region; a huge page belongs to the region in which it begins.
fn runs(watched: &Watched, os: &mut Os) -> Vec<Region> {
    let mut runs: Vec<Region> = Vec::new();
    let Watched { task, start, end, counts, age, .. } = *watched;
    let frames = &os.frames;
    os.spaces[task.index()].table.walk(Vpn(start), Vpn(end), |page, size, entry| {
        if page.0 < start || !entry.has(Entry::PRESENT) {
            return true;
        }
        let node = frames.node_of(entry.frame());
        let goes_on = |run: &&mut Region| {
            (run.size, run.node, run.start.0 + run.pages * size.base_pages()) == (size, node, page.0)
        };
        match runs.last_mut().filter(goes_on) {
            Some(run) => run.pages += 1,
            None => {
                let (reads, writes) = (counts.reads, counts.writes);
                runs.push(Region { task, start: page, pages: 1, size, node, reads, writes, age });
            }
        }
        true
    });
    runs
}

#[cfg(test)]
mod tests;

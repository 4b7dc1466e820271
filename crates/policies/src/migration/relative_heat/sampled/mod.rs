//! Heat of pages by sampled accesses: of every page alone where there are enough samples, else of blocks.

use std::ops::Range;

use memtide_core::policy::{AccessSample, Move, Region, Regions};
use memtide_core::{NodeId, PageSize, TaskId, Time, Vpn};
use serde::{Deserialize, Serialize};

use super::super::runs::Runs;
use super::latencies::TAKEN_MAX;
use super::pages::Pages;
use super::parallelism::{self, Parallelism};
use super::rates::{self, PAGES_MAX, Place, sum_of};
use super::waits;
use super::weight::Weight;

/// Maximum number of pages whose samples are remembered.
const COUNTS_MAX: usize = 1 << 17;

/// Minimum accesses of a remembered sample, in those of a mean one: samples with fewer are thinned.
const LEAST: f64 = 0.5;

/// Minimum samples to measure shares by.
const LATEST_MIN: usize = 100;

/// Sampled accesses of a base page. There are many: numbers are short.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Count {
    pub task: TaskId,
    accesses: f32,
    squares: f32,
    pub page: u64,
}

/// What is known of all pages by samples.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sampled {
    /// By task and page, each once.
    counts: Vec<Count>,
    /// Samples since the last epoch.
    fresh: Vec<Fresh>,
    parallelism: Parallelism,
    /// Nodes of pages, where they differ from their regions', or did once: regions say it by a few pages of
    /// each.
    nodes: Runs<NodeId>,
    /// Epochs from the first sample on, and samples in them. They count less with each epoch.
    epochs: f64,
    samples: f64,
    weight: Weight,
    /// What thinning left over, in the accesses of a remembered page.
    rest: f64,
}

/// A sample since the last epoch. There are many: numbers are short.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fresh {
    task: TaskId,
    /// Negative if it is not known.
    wait_ns: f32,
    pub time: Time,
    page: u64,
    /// Accesses that it counts as.
    pub accesses: f32,
    size: PageSize,
    pub node: NodeId,
}

impl Fresh {
    #[cfg(test)]
    pub fn new(time: Time, node: NodeId, wait_ns: Option<f32>) -> Fresh {
        let wait_ns = wait_ns.unwrap_or(-1.0);
        Fresh { task: TaskId(0), wait_ns, time, page: 0, accesses: 1.0, size: PageSize::Base, node }
    }

    pub fn page(&self) -> (TaskId, u64) {
        (self.task, self.page)
    }

    /// How much longer it took than an access to fast memory does, if it is of slow memory.
    pub fn wait_ns(&self) -> Option<f32> {
        (self.wait_ns >= 0.0).then_some(self.wait_ns)
    }
}

impl Count {
    pub fn new(task: TaskId, page: u64, weight: Weight) -> Count {
        Count { task, accesses: weight.accesses as f32, squares: weight.squares as f32, page }
    }

    fn page(&self) -> (TaskId, u64) {
        (self.task, self.page)
    }

    pub fn number(&self) -> u128 {
        rates::number(self.task, self.page)
    }

    pub fn weight(&self) -> Weight {
        Weight { accesses: self.accesses.into(), squares: self.squares.into() }
    }
}

/// The samples since the last epoch.
#[derive(Debug)]
pub(super) struct Latest<'s> {
    /// All of them, by page.
    samples: &'s [Fresh],
    /// Number and accesses of those in the regions.
    number: usize,
    accesses: f64,
}

impl Latest<'_> {
    /// Number of samples.
    pub fn samples(&self) -> f64 {
        self.number as f64
    }

    /// Share of all accesses that a task's pages had.
    pub fn share(&self, task: TaskId, start: u64, end: u64) -> f64 {
        let own = &self.samples[within(self.samples, task, &(start..end), Fresh::page)];
        accesses_of(own) / self.accesses
    }
}

impl Sampled {
    /// Checks what was saved, on a machine of this many nodes.
    pub fn check(&self, nodes: usize) -> Result<(), String> {
        let is_number = |number: f32| number.is_finite() && number >= 0.0;
        let is_right = |sample: &Fresh| {
            let Fresh { page, node, accesses, wait_ns, .. } = *sample;
            page < PAGES_MAX && node.index() < nodes && is_number(accesses) && wait_ns.is_finite()
        };
        if let Some(sample) = self.fresh.iter().find(|sample| !is_right(sample)) {
            return Err(format!("{sample:?} is no sample"));
        }
        let is_right = |count: &Count| is_number(count.accesses) && is_number(count.squares);
        if let Some(count) = self.counts.iter().find(|count| !is_right(count)) {
            return Err(format!("{count:?} is no count"));
        }
        match self.nodes.iter().find(|(.., node)| node.index() >= nodes) {
            Some((.., node)) => Err(format!("there is no {node}")),
            None => Ok(()),
        }
    }

    /// Weight of the epochs since the first sample; `None` if there are no samples to decide by.
    pub fn epochs(&self) -> Option<f64> {
        (self.weight.accesses > 0.0).then_some(self.epochs)
    }

    /// Adds a sampled access that counts as this many; `idle` is the idle latency of its node. One that is
    /// known to have taken less waited less: its line was on its way. One that its thread waited for beside
    /// others counts as a part of one. `wait_ns` is how much longer it took than one of fast memory.
    pub fn add(&mut self, sample: &AccessSample, weight: f64, idle: Time, wait_ns: Option<f64>) {
        let AccessSample { task, page, size, node, latency, period, thread, time, .. } = *sample;
        if page.0 >= PAGES_MAX {
            return;
        }
        let waited = latency.map_or(1.0, |latency| (latency.as_ns() / idle.as_ns().max(1e-3)).min(1.0));
        let latency_ns = latency.unwrap_or(idle).as_ns().min(TAKEN_MAX * idle.as_ns());
        let taken_ns = f64::from(period) * latency_ns;
        let at_a_time =
            self.parallelism.at(thread, parallelism::Sample { time, page: page.0, period, taken_ns });
        let accesses = (f64::from(period) * weight * waited / at_a_time) as f32;
        let wait_ns = wait_ns.map_or(-1.0, |ns| ns as f32);
        self.fresh.push(Fresh { task, wait_ns, time, page: page.0, accesses, size, node });
    }

    /// Ends the time since the last epoch: corrects its samples by how long slow memory takes at their time,
    /// and sorts them by page.
    pub fn end_samples(&mut self) {
        waits::correct(&mut self.fresh);
        radsort::sort_by_key(&mut self.fresh, |sample| (sample.task.0, sample.page));
        self.parallelism.end_epoch();
    }

    /// Records where a page is.
    pub fn record_move(&mut self, made: &Move) {
        self.set_node(made.task, made.page.0, made.size, made.to);
    }

    fn set_node(&mut self, task: TaskId, page: u64, size: PageSize, node: NodeId) {
        let head = page - page % size.base_pages();
        self.nodes.insert_all(task, Vpn(head), size.base_pages(), node);
    }

    /// The samples since the last epoch, which have ended, of pages in these regions; `None` if there are too
    /// few to measure by.
    pub fn latest(&self, regions: &Regions) -> Option<Latest<'_>> {
        let samples = &self.fresh[..];
        let (mut number, mut accesses, mut left) = (0, 0.0, samples);
        for region in regions.iter() {
            let own = next_within(&mut left, region.task, &range_of(&region));
            number += own.len();
            accesses += accesses_of(own);
        }
        (number >= LATEST_MIN && accesses > 0.0).then_some(Latest { samples, number, accesses })
    }

    /// Ends some epochs, whose samples have ended: earlier ones count `kept` times as much as before.
    pub fn end_epochs(&mut self, epochs: u32, regions: &Regions, kept: f64) {
        if self.fresh.is_empty() && self.samples == 0.0 {
            return;
        }
        let mut fresh = std::mem::take(&mut self.fresh);
        self.epochs = self.epochs * kept + f64::from(epochs);
        self.samples = self.samples * kept + fresh.len() as f64;
        self.weight = self.weight.faded(kept) + weight_of(&fresh);
        self.correct_nodes(regions, &fresh);
        self.merge(&fresh, kept);
        fresh.clear();
        self.fresh = fresh;
    }

    /// Forgets the nodes of pages that are in no region, and adds those of sampled pages that are elsewhere
    /// than their region.
    fn correct_nodes(&mut self, regions: &Regions, fresh: &[Fresh]) {
        let ends: Vec<(TaskId, u64, u64)> =
            regions.iter().map(|region| (region.task, range_of(&region).end, region.start.0)).collect();
        let mut left = &ends[..];
        self.nodes.retain(|task, start, end, _| {
            let ended = left.iter().take_while(|&&(of, region_end, _)| (of, region_end) <= (task, start.0));
            left = &left[ended.count()..];
            left.first().is_some_and(|&(of, _, region_start)| of == task && region_start < end.0)
        });
        let mut moved = Vec::new();
        let (mut left, mut sweep, mut runs) = (fresh, self.nodes.sweep(), Vec::new());
        for region in regions.iter() {
            let (task, range) = (region.task, range_of(&region));
            let own = next_within(&mut left, task, &range);
            if own.is_empty() {
                continue;
            }
            runs.clear();
            sweep.each(task, Vpn(range.start), Vpn(range.end), |start, end, node| {
                runs.push((start, end, node))
            });
            let mut runs = runs.iter().peekable();
            for sample in own.chunk_by(|a, b| a.page == b.page).filter_map(<[Fresh]>::last) {
                while runs.next_if(|&&(_, end, _)| end.0 <= sample.page).is_some() {}
                let run = runs.peek().filter(|(start, ..)| start.0 <= sample.page);
                if run.map_or(region.node, |&&(.., node)| node) != sample.node {
                    moved.push(*sample);
                }
            }
        }
        for Fresh { task, page, size, node, .. } in moved {
            self.set_node(task, page, size, node);
        }
    }

    fn merge(&mut self, fresh: &[Fresh], kept: f64) {
        self.add_fresh(fresh, kept);
        let all = &mut self.counts;
        self.rest = thin(all, self.weight.accesses / self.samples.max(1.0) * LEAST, self.rest);
        if all.len() > COUNTS_MAX {
            let least = sum_of(all).accesses / COUNTS_MAX as f64;
            self.rest = thin(all, least, self.rest);
        }
    }

    /// Adds samples to the counts, which fade: in place, the last page first, as there are many.
    fn add_fresh(&mut self, fresh: &[Fresh], kept: f64) {
        let by_page = || fresh.chunk_by(|a, b| a.page() == b.page());
        let counts = &mut self.counts;
        let faded = |count: Count| Count::new(count.task, count.page, count.weight().faded(kept));
        let mut older = counts.len();
        let mut end = older + by_page().count();
        counts.resize(end, Count::new(TaskId(0), 0, Weight::default()));
        for samples in by_page().rev() {
            let (task, page) = samples[0].page();
            while older > 0 && counts[older - 1].page() > (task, page) {
                (older, end) = (older - 1, end - 1);
                counts[end] = faded(counts[older]);
            }
            let mut weight = weight_of(samples);
            if older > 0 && counts[older - 1].page() == (task, page) {
                older -= 1;
                weight = counts[older].weight().faded(kept) + weight;
            }
            end -= 1;
            counts[end] = Count::new(task, page, weight);
        }
        counts[..older].iter_mut().for_each(|count| *count = faded(*count));
        counts.drain(older..end);
    }

    /// Calls `push` with all pages of the regions and their rates, in order, where huge pages are cut into
    /// parts that are accessed alike.
    pub fn parts(&self, regions: &Regions, push: &mut dyn FnMut(Pages)) {
        rates::each(&self.places(regions), &self.counts, self.epochs, push);
    }

    /// Where the regions' pages are, in order.
    fn places(&self, regions: &Regions) -> Vec<Place> {
        let mut places = Vec::new();
        let mut sweep = self.nodes.sweep();
        for region in regions.iter() {
            let (task, size, range) = (region.task, region.size, range_of(&region));
            let mut push = |start, end, node| {
                if start < end {
                    places.push(Place { task, start, end, size, node });
                }
            };
            let mut at = range.start;
            sweep.each(task, Vpn(range.start), Vpn(range.end), |start, end, node| {
                // A huge page is on one node: a part of it that was elsewhere is out of date.
                let pages = size.base_pages();
                let (start, end) = (start.0.next_multiple_of(pages), end.0 - end.0 % pages);
                if start < end {
                    push(at, start, region.node);
                    push(start, end, node);
                    at = end;
                }
            });
            push(at, range.end, region.node);
        }
        places
    }
}

fn range_of(region: &Region) -> Range<u64> {
    region.start.0..region.start.0 + region.pages * region.size.base_pages()
}

fn weight_of(samples: &[Fresh]) -> Weight {
    samples.iter().map(|sample| Weight::of_sample(sample.accesses.into())).sum()
}

fn accesses_of(samples: &[Fresh]) -> f64 {
    samples.iter().map(|sample| f64::from(sample.accesses)).sum()
}

/// Thins samples of fewer accesses than `least`: each is left with that many, with a probability in
/// proportion to its own (systematic sampling by address), whatever other samples its page has. `rest`, from
/// 0 to 1, is what the last call left over; returns what is left now.
fn thin(counts: &mut Vec<Count>, least: f64, mut rest: f64) -> f64 {
    counts.retain_mut(|count| {
        let Weight { accesses, squares } = count.weight();
        if squares >= least * accesses {
            return accesses > 0.0;
        }
        rest += accesses / least;
        let samples = rest.floor();
        rest -= samples;
        let weight = Weight { accesses: samples * least, squares: samples * least * least };
        *count = Count::new(count.task, count.page, weight);
        samples > 0.0
    });
    rest
}

/// The part of a sorted list that lies in a range of a task's pages.
fn within<T>(all: &[T], task: TaskId, range: &Range<u64>, key: impl Fn(&T) -> (TaskId, u64)) -> Range<usize> {
    let at = |page| all.partition_point(|one| key(one) < (task, page));
    let start = at(range.start);
    start..at(range.end).max(start)
}

/// The part of sorted samples that lies in a range of a task's pages, which begins after the last one; `left`
/// is what comes after it.
fn next_within<'s>(left: &mut &'s [Fresh], task: TaskId, range: &Range<u64>) -> &'s [Fresh] {
    let before = left.iter().take_while(|sample| sample.page() < (task, range.start)).count();
    let later = &left[before..];
    let own = later.iter().take_while(|sample| sample.page() < (task, range.end)).count();
    let (own, later) = later.split_at(own);
    *left = later;
    own
}

#[cfg(test)]
mod tests;

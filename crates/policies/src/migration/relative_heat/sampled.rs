//! Heat of pages by sampled accesses: of every page alone where there are enough samples, else of blocks.

use std::ops::Range;

use memtide_core::policy::{AccessSample, Move, Region, Regions};
use memtide_core::{NodeId, PageSize, TaskId, Time, Vpn};
use serde::{Deserialize, Serialize};

use super::super::runs::Runs;
use super::pages::Pages;
use super::rates::{self, PAGES_MAX, Place};
use super::weight::Weight;

/// Maximum number of pages whose samples are remembered.
const COUNTS_MAX: usize = 1 << 17;

/// Least accesses of a page that are remembered, in those of a sample: of pages with fewer, some stand for all.
const LEAST: f64 = 0.5;

/// By how much that is raised until no more than [`COUNTS_MAX`] pages are left.
const RAISED: f64 = 1.25;

/// Minimum samples of an epoch to tell the share of some pages.
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
    /// Memory for the next epoch's counts.
    #[serde(skip)]
    merged: Vec<Count>,
    /// Samples since the last epoch, in order of arrival.
    fresh: Vec<Fresh>,
    /// Nodes of pages, where they differ from their regions', or did once: regions say it by a few pages of
    /// each.
    nodes: Runs<NodeId>,
    /// Epochs from the first sample on, and samples in them. They count less with each epoch.
    epochs: f64,
    samples: f64,
    weight: Weight,
}

/// A sample since the last epoch.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fresh {
    task: TaskId,
    page: u64,
    accesses: f64,
    size: PageSize,
    node: NodeId,
}

impl Fresh {
    fn page(&self) -> (TaskId, u64) {
        (self.task, self.page)
    }
}

impl Count {
    pub fn new(task: TaskId, page: u64, weight: Weight) -> Count {
        Count { task, accesses: weight.accesses as f32, squares: weight.squares as f32, page }
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
    /// In order of pages.
    samples: &'s [Fresh],
    accesses: f64,
}

impl Latest<'_> {
    /// Number of samples.
    pub fn samples(&self) -> f64 {
        self.samples.len() as f64
    }

    /// Share of all accesses that a task's pages had.
    pub fn share(&self, task: TaskId, start: u64, end: u64) -> f64 {
        let own = &self.samples[within(self.samples, task, &(start..end), Fresh::page)];
        own.iter().map(|sample| sample.accesses).sum::<f64>() / self.accesses
    }
}

impl Sampled {
    /// Weight of the epochs since the first sample; `None` if there are no samples to decide by.
    pub fn epochs(&self) -> Option<f64> {
        (self.weight.accesses > 0.0).then_some(self.epochs)
    }

    /// Adds a sampled access; `idle` is the idle latency of its node. One that is known to have taken less
    /// waited less: its line was on its way.
    pub fn add(&mut self, sample: &AccessSample, idle: Time) {
        let AccessSample { task, page, size, node, latency, period, .. } = *sample;
        if page.0 >= PAGES_MAX {
            return;
        }
        let waited = latency.map_or(1.0, |latency| (latency.as_ns() / idle.as_ns().max(1e-3)).min(1.0));
        let accesses = f64::from(period) * waited;
        self.fresh.push(Fresh { task, page: page.0, accesses, size, node });
    }

    /// Records where a page is.
    pub fn record_move(&mut self, made: &Move) {
        self.set_node(made.task, made.page.0, made.size, made.to);
    }

    fn set_node(&mut self, task: TaskId, page: u64, size: PageSize, node: NodeId) {
        let head = page - page % size.base_pages();
        (head..head.saturating_add(size.base_pages()))
            .for_each(|page| _ = self.nodes.insert(task, Vpn(page), node));
    }

    /// The samples since the last epoch; `None` if there are too few to measure by.
    pub fn latest(&mut self) -> Option<Latest<'_>> {
        self.fresh.sort_by_key(Fresh::page);
        let accesses = self.fresh.iter().map(|sample| sample.accesses).sum();
        let is_enough = self.fresh.len() >= LATEST_MIN && accesses > 0.0;
        is_enough.then_some(Latest { samples: &self.fresh, accesses })
    }

    /// Ends some epochs: earlier samples count `kept` times as much as before.
    pub fn end_epochs(&mut self, epochs: u32, regions: &Regions, kept: f64) {
        if self.fresh.is_empty() && self.samples == 0.0 {
            return;
        }
        let mut fresh = std::mem::take(&mut self.fresh);
        fresh.sort_by_key(Fresh::page);
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
        self.nodes.retain(|task, start, end, _| {
            let next = ends.partition_point(|&(of, region_end, _)| (of, region_end) <= (task, start.0));
            ends.get(next).is_some_and(|&(of, _, region_start)| of == task && region_start < end.0)
        });
        for region in regions.iter() {
            let (task, range) = (region.task, range_of(&region));
            for sample in &fresh[within(fresh, task, &range, Fresh::page)] {
                let known = self.nodes.get(task, Vpn(sample.page)).unwrap_or(region.node);
                if known != sample.node {
                    self.set_node(task, sample.page, sample.size, sample.node);
                }
            }
        }
    }

    fn merge(&mut self, fresh: &[Fresh], kept: f64) {
        let mut all = std::mem::take(&mut self.merged);
        let mut add = |(task, page), weight: Weight| all.push(Count::new(task, page, weight));
        let mut newer = fresh.chunk_by(|a, b| a.page() == b.page()).peekable();
        for older in &self.counts {
            let page = (older.task, older.page);
            while let Some(samples) = newer.next_if(|samples| samples[0].page() < page) {
                add(samples[0].page(), weight_of(samples));
            }
            let more =
                newer.next_if(|samples| samples[0].page() == page).map_or(Weight::default(), weight_of);
            add(page, older.weight().faded(kept) + more);
        }
        newer.for_each(|samples| add(samples[0].page(), weight_of(samples)));
        let mut least = self.weight.accesses / self.samples.max(1.0) * LEAST;
        thin(&mut all, least);
        while all.len() > COUNTS_MAX {
            least *= RAISED;
            thin(&mut all, least);
        }
        self.merged = std::mem::replace(&mut self.counts, all);
        self.merged.clear();
    }

    /// Calls `push` with all pages of the regions and their rates, in order, where huge pages are cut into
    /// parts that are accessed alike.
    pub fn parts(&self, regions: &Regions, push: &mut dyn FnMut(Pages)) {
        rates::each(&self.places(regions), &self.counts, self.epochs, push);
    }

    /// Where the regions' pages are, in order.
    fn places(&self, regions: &Regions) -> Vec<Place> {
        let mut places = Vec::new();
        for region in regions.iter() {
            let (task, size, range) = (region.task, region.size, range_of(&region));
            let mut push = |start, end, node| {
                if start < end {
                    places.push(Place { task, start, end, size, node });
                }
            };
            let mut at = range.start;
            for (start, end, node) in self.nodes.within(task, Vpn(range.start), Vpn(range.end)) {
                // A huge page is on one node: a part of it that was elsewhere is out of date.
                let pages = size.base_pages();
                let (start, end) = (start.0.next_multiple_of(pages), end.0 - end.0 % pages);
                if start < end {
                    push(at, start, region.node);
                    push(start, end, node);
                    at = end;
                }
            }
            push(at, range.end, region.node);
        }
        places
    }
}

fn range_of(region: &Region) -> Range<u64> {
    region.start.0..region.start.0 + region.pages * region.size.base_pages()
}

fn weight_of(samples: &[Fresh]) -> Weight {
    samples.iter().map(|sample| Weight::of_sample(sample.accesses)).sum()
}

/// Leaves pages with this many accesses at least. Others share theirs, by address: of neighbours that together
/// have that many, one has them all, each with the chance of its own accesses.
fn thin(counts: &mut Vec<Count>, least: f64) {
    let mut shared = least / 2.0;
    counts.retain_mut(|count| {
        let own = f64::from(count.accesses);
        if own >= least {
            return true;
        }
        shared += own;
        if shared < least {
            return false;
        }
        shared -= least;
        let Weight { accesses, squares } = count.weight();
        let times = least / accesses;
        *count =
            Count::new(count.task, count.page, Weight { accesses: least, squares: squares * times * times });
        true
    });
}

/// The part of a sorted list that lies in a range of a task's pages.
fn within<T>(all: &[T], task: TaskId, range: &Range<u64>, key: impl Fn(&T) -> (TaskId, u64)) -> Range<usize> {
    let at = |page| all.partition_point(|one| key(one) < (task, page));
    at(range.start)..at(range.end)
}

#[cfg(test)]
mod tests {
    use memtide_core::ThreadId;
    use memtide_core::policy::Frame;
    use proptest::prelude::*;

    use super::*;

    const IDLE: Time = Time::from_us(1);

    fn sample(page: u64, size: PageSize, node: u8) -> AccessSample {
        let (task, thread, page, node) = (TaskId(0), ThreadId(0), Vpn(page), NodeId(node));
        AccessSample {
            time: Time::ZERO,
            task,
            thread,
            page,
            size,
            node,
            latency: Some(IDLE),
            period: 100,
            write: false,
        }
    }

    fn region(start: u64, pages: u64, size: PageSize) -> Region {
        let (task, start, node) = (TaskId(0), Vpn(start), NodeId(1));
        Region { task, start, pages, size, node, reads: 0, writes: 0, age: 0 }
    }

    fn regions(of: &[Region]) -> Regions {
        let mut regions = Regions::default();
        of.iter().for_each(|&region| regions.push(region));
        regions
    }

    fn parts(sampled: &Sampled, regions: &Regions) -> Vec<Pages> {
        let mut all = Vec::new();
        sampled.parts(regions, &mut |pages| all.push(pages));
        all
    }

    fn after(samples: &[AccessSample], regions: &Regions) -> Vec<Pages> {
        let mut sampled = Sampled::default();
        samples.iter().for_each(|sample| sampled.add(sample, IDLE));
        sampled.end_epochs(1, regions, 0.5);
        parts(&sampled, regions)
    }

    /// As the period of sampling is tuned, samples stand for fewer and fewer accesses.
    #[test]
    fn one_heavy_sample_is_not_many() {
        let regions = regions(&[region(0, 1024, PageSize::Base)]);
        let light =
            (0..1024).flat_map(|page| [AccessSample { period: 10, ..sample(page, PageSize::Base, 1) }; 4]);
        let heavy = AccessSample { period: 320, ..sample(512, PageSize::Base, 1) };
        let one: Vec<AccessSample> = light.clone().chain([heavy]).collect();
        assert_eq!(after(&one, &regions).len(), 1, "it came by chance");
        let many = light.chain([sample(512, PageSize::Base, 1); 12]);
        assert!(after(&many.collect::<Vec<_>>(), &regions).len() > 1);
    }

    #[test]
    fn part_is_as_small_as_its_samples_tell() {
        let regions = regions(&[region(0, 1024, PageSize::Base)]);
        let of = |pages: std::ops::Range<u64>, each: usize| {
            pages.flat_map(|page| vec![sample(page, PageSize::Base, 1); each]).collect::<Vec<_>>()
        };
        let bounds = |samples: &[AccessSample]| {
            after(samples, &regions).iter().map(|pages| (pages.start, pages.end)).collect::<Vec<_>>()
        };
        assert_eq!(bounds(&of(0..1024, 1)).len(), 1);
        assert_eq!(bounds(&of(5..6, 1)), [(0, 1024)], "one sample may be chance");
        let one = bounds(&of(5..6, 20));
        assert!(one.contains(&(5, 6)), "{one:?}");
        let hot = after(&[of(0..1024, 1), of(64..128, 9)].concat(), &regions);
        assert!(hot.iter().any(|pages| (pages.start, pages.end) == (64, 128)), "{hot:?}");
        let rate = |page| {
            let of = hot.iter().find(|pages| pages.start <= page && page < pages.end).expect("all pages");
            of.rate.mean
        };
        assert!((rate(100) - 1000.0).abs() < 50.0 && (rate(700) - 100.0).abs() < 10.0, "accesses per epoch");
    }

    proptest! {
        /// Of all pages before any page, what is left has as many accesses, to within what one may have.
        #[test]
        fn pages_with_few_accesses_share_them(
            accesses in prop::collection::vec(0.0..4.0f64, 0..300),
            least in 0.01..3.0f64,
        ) {
            let count = |(page, &accesses)| Count::new(TaskId(0), page, Weight::of_sample(accesses));
            let all: Vec<Count> = (0..).zip(&accesses).map(count).collect();
            let mut left = all.clone();
            thin(&mut left, least);
            let before = |counts: &[Count], page| {
                let before = counts.iter().take_while(|count| count.page < page);
                before.map(|count| count.weight().accesses).sum::<f64>()
            };
            for page in 0..=all.len() as u64 {
                let (own, others) = (before(&left, page), before(&all, page));
                prop_assert!((own - others).abs() <= least / 2.0 + 1e-4, "{}: {}, {}", page, own, others);
            }
            for count in &left {
                let Weight { accesses, squares } = count.weight();
                prop_assert!(accesses >= least * 0.999, "{:?}", count);
                prop_assert!((squares / (accesses * accesses) - 1.0).abs() < 1e-5, "one sample: {:?}", count);
            }
        }

        /// Every page of the regions is in exactly one block, which is made of whole pages on the node that
        /// the last sample or move said.
        #[test]
        fn blocks_are_the_regions_pages(
            sizes in prop::collection::vec((0..3u64, 1..6u64, any::<bool>()), 1..8),
            samples in prop::collection::vec((0..8000u64, 0..2u8, any::<bool>()), 0..200),
            moves in prop::collection::vec((0..8000u64, 0..2u8), 0..40),
        ) {
            let mut start = 0;
            let mut all = Vec::new();
            for (gap, pages, is_huge) in sizes {
                let size = if is_huge { PageSize::Huge } else { PageSize::Base };
                start = (start + gap * 100).next_multiple_of(size.base_pages());
                let pages = if is_huge { pages } else { pages * 70 };
                all.push(region(start, pages, size));
                start += pages * size.base_pages();
            }
            let regions = regions(&all);
            let mut sampled = Sampled::default();
            sampled.add(&sample(0, PageSize::Base, 1), IDLE);
            for (page, node, is_huge) in samples {
                let size = if is_huge { PageSize::Huge } else { PageSize::Base };
                sampled.add(&sample(page, size, node), IDLE);
            }
            sampled.end_epochs(1, &regions, 0.5);
            for (page, node) in moves {
                let (task, page, to) = (TaskId(0), Vpn(page), NodeId(node));
                let (size, from, wish) = (PageSize::Base, NodeId(1 - node), Frame::ANY);
                sampled.record_move(&Move { task, page, size, from, to, wish });
                if let Some(region) = all.iter().find(|region| range_of(region).contains(&page.0))
                    && region.size == PageSize::Base
                {
                    let pages = parts(&sampled, &regions);
                    let of = pages.iter().find(|of| (of.start..of.end).contains(&page.0));
                    prop_assert_eq!(of.expect("all pages").node, to);
                }
            }
            let pages = parts(&sampled, &regions);
            let of_blocks: Vec<u64> = pages.iter().flat_map(|pages| pages.start..pages.end).collect();
            let of_regions: Vec<u64> = all.iter().flat_map(range_of).collect();
            prop_assert_eq!(of_blocks, of_regions);
            for block in &pages {
                prop_assert!(block.rate.mean >= 0.0 && block.rate.mean.is_finite(), "{:?}", block);
            }
            let text = serde_json::to_string(&sampled).unwrap();
            let read: Sampled = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(parts(&read, &regions), pages);
        }
    }
}

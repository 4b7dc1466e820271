//! Heat of pages by sampled accesses: of every page alone where there are enough samples, else of blocks.

use std::ops::Range;

use memtide_core::policy::{AccessSample, Move, Region, Regions};
use memtide_core::{NodeId, PageSize, TaskId, Time, Vpn};
use serde::{Deserialize, Serialize};

use super::super::runs::Runs;
use super::latencies::TAKEN_MAX;
use super::pages::Pages;
use super::parallelism::Parallelism;
use super::rates::{self, PAGES_MAX, Place, sum_of};
use super::waits::Waits;
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
    /// Memory for the next epoch's counts.
    #[serde(skip)]
    merged: Vec<Count>,
    /// Samples since the last epoch, the first ones sorted.
    fresh: Vec<Fresh>,
    sorted: usize,
    parallelism: Parallelism,
    waits: Waits,
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
    page: u64,
    /// Accesses that it counts as.
    pub accesses: f32,
    size: PageSize,
    pub node: NodeId,
}

impl Fresh {
    #[cfg(test)]
    pub fn new(task: TaskId, page: u64, node: NodeId, wait_ns: Option<f32>) -> Fresh {
        let wait_ns = wait_ns.unwrap_or(-1.0);
        Fresh { task, wait_ns, page, accesses: 1.0, size: PageSize::Base, node }
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
        let at_a_time = self.parallelism.at(thread, time, taken_ns);
        let accesses = (f64::from(period) * weight * waited / at_a_time) as f32;
        let wait_ns = wait_ns.map_or(-1.0, |ns| ns as f32);
        self.fresh.push(Fresh { task, wait_ns, page: page.0, accesses, size, node });
    }

    /// Sorts the latest samples: a few of them at a time are in the caches.
    pub fn sort_latest(&mut self) {
        if let Some(latest) = self.fresh.get_mut(self.sorted..) {
            latest.sort_by_key(Fresh::page);
        }
        self.sorted = self.fresh.len();
    }

    /// Ends the time since the last epoch: sorts its samples by page, and corrects them by how long those of
    /// their 2 MiB wait.
    pub fn end_samples(&mut self) {
        self.fresh.sort_by_key(Fresh::page);
        self.waits.correct(&mut self.fresh);
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
        let counts = &self.counts;
        self.waits.end_epoch(|task, pages| {
            !within(counts, task, &pages, |count| (count.task, count.page)).is_empty()
        });
        fresh.clear();
        self.fresh = fresh;
        self.sorted = 0;
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
        let mut all = std::mem::take(&mut self.merged);
        let mut add = |(task, page), weight: Weight| {
            if weight.accesses > 0.0 {
                all.push(Count::new(task, page, weight));
            }
        };
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
        self.rest = thin(&mut all, self.weight.accesses / self.samples.max(1.0) * LEAST, self.rest);
        if all.len() > COUNTS_MAX {
            let least = sum_of(&all).accesses / COUNTS_MAX as f64;
            self.rest = thin(&mut all, least, self.rest);
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
            return true;
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

    fn end_epoch(sampled: &mut Sampled, regions: &Regions, kept: f64) {
        sampled.end_samples();
        sampled.end_epochs(1, regions, kept);
    }

    fn after(samples: &[AccessSample], regions: &Regions) -> Vec<Pages> {
        let mut sampled = Sampled::default();
        samples.iter().for_each(|sample| sampled.add(sample, 1.0, IDLE, None));
        end_epoch(&mut sampled, regions, 0.5);
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

    /// Pages that were sampled once are gone after some half-lives, whatever is sampled since.
    #[test]
    fn earlier_samples_fade() {
        let regions = regions(&[region(0, 4096, PageSize::Base)]);
        let mut sampled = Sampled::default();
        let mut epoch = |pages: &mut dyn Iterator<Item = u64>| {
            pages.for_each(|page| sampled.add(&sample(page, PageSize::Base, 1), 1.0, IDLE, None));
            end_epoch(&mut sampled, &regions, 0.9);
            let early = sampled.counts.iter().filter(|count| count.page < 64);
            (early.clone().count(), early.map(|count| count.weight().accesses).sum::<f64>() / 100.0)
        };
        epoch(&mut (0..64).chain(1000..2000));
        for passed in 1..80 {
            let (pages, samples) = epoch(&mut (1000..2000));
            let expected = 64.0 * libm::pow(0.9, f64::from(passed));
            assert!((samples - expected).abs() < 5.0, "{passed}: {samples}, {expected}");
            assert!(pages as f64 <= 2.0 * samples + 0.01, "{passed}: {pages} pages, {samples}");
        }
        assert_eq!(epoch(&mut (1000..2000)).0, 0);
    }

    #[test]
    fn samples_since_the_last_epoch_are_saved() {
        let regions = regions(&[region(0, 64, PageSize::Base)]);
        let mut sampled = Sampled::default();
        // The thread waits for ten accesses at a time, as shows from the fifth on.
        let add = |sampled: &mut Sampled, at: u64| {
            let time = Time(IDLE.0 * 10 * at);
            sampled.add(&AccessSample { time, ..sample(at % 7, PageSize::Base, 1) }, 1.0, IDLE, Some(9.0));
        };
        (0..100).for_each(|at| add(&mut sampled, at));
        sampled.sort_latest();
        add(&mut sampled, 100);
        let mut read: Sampled = serde_json::from_str(&serde_json::to_string(&sampled).unwrap()).unwrap();
        for sampled in [&mut sampled, &mut read] {
            add(sampled, 101);
            sampled.end_samples();
            sampled.end_epochs(1, &regions, 0.5);
        }
        assert_eq!(parts(&read, &regions), parts(&sampled, &regions));
        let accesses: f64 = parts(&read, &regions).iter().map(Pages::accesses).sum();
        assert!((accesses - (4.0 * 100.0 + 98.0 * 10.0)).abs() < 1.0, "{accesses}");
    }

    /// Pages are chosen in proportion to their accesses, even where these alternate.
    #[test]
    fn thinning_prefers_no_page() {
        let (mut chosen, mut rest) = ([0, 0], 0.5);
        for _ in 0..1000 {
            let weights = [0.3, 0.2].map(Weight::of_sample);
            let mut counts: Vec<Count> =
                (0..21).map(|page| Count::new(TaskId(0), page, weights[page as usize % 2])).collect();
            rest = thin(&mut counts, 1.0, rest);
            counts.iter().for_each(|count| chosen[count.page as usize % 2] += 1);
        }
        let share = f64::from(chosen[0]) / f64::from(chosen[0] + chosen[1]);
        assert!((share - 3.3 / 5.3).abs() < 0.05, "{chosen:?}");
    }

    #[test]
    fn number_of_remembered_pages_is_limited() {
        let pages = 3 * COUNTS_MAX as u64;
        let regions = regions(&[region(0, pages, PageSize::Base)]);
        for period in [100, 0] {
            let mut sampled = Sampled::default();
            for page in 0..pages {
                let period = if page == 7 { 50 * period } else { period };
                sampled.add(&AccessSample { period, ..sample(page, PageSize::Base, 1) }, 1.0, IDLE, None);
            }
            end_epoch(&mut sampled, &regions, 0.5);
            assert!(sampled.counts.len() <= COUNTS_MAX + 1, "{}", sampled.counts.len());
            let sum = sum_of(&sampled.counts).accesses;
            assert!(
                (sum / (f64::from(period) * (pages + 49) as f64 + 1e-9) - 1.0).abs() < 1e-3 || period == 0
            );
        }
    }

    proptest! {
        /// Of all pages before any page, what is left has as many accesses, to within what one may have.
        #[test]
        fn thinning_keeps_sums(
            accesses in prop::collection::vec((0.001..4.0f64, 1..30u32), 0..300),
            least in 0.01..3.0f64,
            rest in 0.0..1.0f64,
        ) {
            let count = |(page, &(accesses, samples)): (u64, &(f64, u32))| {
                let squares = accesses * accesses / f64::from(samples);
                Count::new(TaskId(0), page, Weight { accesses, squares })
            };
            let all: Vec<Count> = (0..).zip(&accesses).map(count).collect();
            let mut left = all.clone();
            let end = thin(&mut left, least, rest);
            prop_assert!((-1e-9..1.0 + 1e-9).contains(&end), "{}", end);
            let before = |counts: &[Count], page| {
                let before = counts.iter().take_while(|count| count.page < page);
                before.map(|count| count.weight().accesses).sum::<f64>()
            };
            for page in 0..=all.len() as u64 {
                let (own, others) = (before(&left, page), before(&all, page));
                prop_assert!((own - others).abs() <= least + 1e-4, "{}: {}, {}", page, own, others);
            }
            for count in &left {
                let first = all[count.page as usize];
                let [now, first] = [count, &first].map(Count::weight);
                let each = now.squares / now.accesses;
                prop_assert!(each >= least * 0.999, "{:?}", count);
                prop_assert!(now == first || now.samples() < first.samples() + 1.001, "{:?}", count);
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
            sampled.add(&sample(0, PageSize::Base, 1), 1.0, IDLE, None);
            for (page, node, is_huge) in samples {
                let size = if is_huge { PageSize::Huge } else { PageSize::Base };
                sampled.add(&sample(page, size, node), 1.0, IDLE, None);
            }
            end_epoch(&mut sampled, &regions, 0.5);
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

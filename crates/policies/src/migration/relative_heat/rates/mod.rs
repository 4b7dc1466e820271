//! Rates of pages by their samples: between what the samples say of each page and what they say of all.
//!
//! Of many pages that are accessed alike, some have more samples than others by chance. So the pages are
//! halved by address, again and again, and a half's share of the accesses is taken to lie between its share
//! of the pages and its share of the samples. It is nearer to the latter the more samples there are, and the
//! more other halves of its size differ beyond chance: linear credibility (Bühlmann, ASTIN Bulletin 4, 1967).
//!
//! ```text
//! samples   | 6   .   .   2  |.  .  .  .|
//! rates     | 2   2   2   2  |0  0  0  0|    8 and 0 samples of four pages each, all believed
//!           |2.5 2.5|1.5 1.5 |0  0  0  0|    6 and 2 of two pages each, half believed
//! ```

mod block;
mod shares;

use std::borrow::Cow;
use std::ops::Range;

use memtide_core::{NodeId, PageSize, TaskId};

use self::block::Block;
use self::shares::{Shares, Spreads, Variances, is_few};
use super::pages::{Pages, Rate};
use super::sampled::Count;
use super::weight::Weight;

/// Binary digits of a page number, and levels of halves of all tasks' pages.
const PAGE_BITS: u32 = 52;
const LEVELS: usize = PAGE_BITS as usize + 32 + 1;

/// Number of addressable base pages, more than any machine has.
pub(super) const PAGES_MAX: u64 = 1 << PAGE_BITS;

/// Sampled pages in 2 MiB from which on it is faster to look at all its pages.
const DENSE: usize = 16;

/// Sampled pages up to which a search is slower than to look at each.
const LINEAR: usize = 8;

/// Sampled pages from one sum of all before to the next.
const STEP: usize = 64;

/// Samples of neighbouring pages that together say how much halves of a size differ.
const NEIGHBOURS_SAMPLES: f64 = 32_768.0;

/// Adjacent pages of one size on one node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Place {
    pub task: TaskId,
    /// First base page, and the one after the last.
    pub start: u64,
    pub end: u64,
    pub size: PageSize,
    pub node: NodeId,
}

/// A task's page as a number.
pub(super) fn number(task: TaskId, page: u64) -> u128 {
    u128::from(task.0) << PAGE_BITS | u128::from(page)
}

impl Place {
    fn start(&self) -> u128 {
        number(self.task, self.start)
    }

    fn end(&self) -> u128 {
        number(self.task, self.end)
    }
}

/// All pages, and their samples.
#[derive(Debug)]
struct Tree<'p> {
    places: &'p [Place],
    /// Number of base pages before each place, and of all.
    pages_before: Vec<u64>,
    /// Sampled pages, in order; all are in places.
    counts: Cow<'p, [Count]>,
    /// What the samples of all pages before each [`STEP`]th stand for.
    sums: Vec<Weight>,
    /// Sampled pages in 2 MiB from which on it is a [`Block`].
    dense: usize,
    /// The one that is looked at.
    block: Block,
}

/// An aligned block of numbers, and the pages in it.
#[derive(Clone, Debug)]
struct Part {
    start: u128,
    /// Binary logarithm of its length.
    level: u32,
    places: Range<usize>,
    counts: Range<usize>,
    pages: u64,
    weight: Weight,
}

impl Part {
    /// Whether its samples do not say which of its pages they are of.
    fn is_whole(&self) -> bool {
        self.level == 0 || is_few(self.weight)
    }

    fn has_all_pages(&self) -> bool {
        self.level < PAGE_BITS && self.pages == 1 << self.level
    }

    /// Whether it is 2 MiB of pages.
    fn is_block(&self) -> bool {
        self.pages == Block::PAGES as u64 && self.has_all_pages()
    }

    fn shares(&self, first: &Part) -> Shares {
        Shares::of(self.weight, first.weight, first.pages as f64 / self.pages as f64)
    }
}

/// Calls `push` with the places' parts and their rates in accesses per epoch, in order; samples are of this
/// many epochs.
pub(super) fn each(places: &[Place], counts: &[Count], epochs: f64, push: &mut dyn FnMut(Pages)) {
    Tree::new(places, counts).each(epochs, push);
}

impl Tree<'_> {
    fn new<'p>(places: &'p [Place], counts: &'p [Count]) -> Tree<'p> {
        let mut pages_before = Vec::with_capacity(places.len() + 1);
        pages_before.push(0);
        let (mut pages, mut left) = (0, counts);
        let mut runs = Vec::new();
        for place in places {
            pages += place.end - place.start;
            pages_before.push(pages);
            left = &left[left.partition_point(|count| count.number() < place.start())..];
            let (within, after) = left.split_at(left.partition_point(|count| count.number() < place.end()));
            runs.push(within);
            left = after;
        }
        let are_all = runs.iter().map(|run| run.len()).sum::<usize>() == counts.len();
        let counts = if are_all { Cow::Borrowed(counts) } else { Cow::Owned(runs.concat()) };
        let steps = counts.chunks(STEP).scan(Weight::default(), |sum, step| {
            *sum = *sum + sum_of(step);
            Some(*sum)
        });
        let sums = std::iter::once(Weight::default()).chain(steps).collect();
        Tree { places, pages_before, counts, sums, dense: DENSE, block: Block::new() }
    }

    fn each(&mut self, epochs: f64, push: &mut dyn FnMut(Pages)) {
        let all = self.part(0, LEVELS as u32 - 1, 0..self.places.len(), 0..self.counts.len());
        let rate = all.weight.accesses / (all.pages as f64 * epochs);
        self.divide(&all, rate, None, push);
    }

    fn is_dense(&self, part: &Part) -> bool {
        part.counts.len() >= self.dense && part.is_block()
    }

    /// The part of these places and sampled pages that lies in a block.
    fn part(&self, start: u128, level: u32, places: Range<usize>, counts: Range<usize>) -> Part {
        let pages = self.pages(start, start + (1 << level), &places);
        let weight = self.weight(&counts);
        Part { start, level, places, counts, pages, weight }
    }

    /// What these sampled pages' samples stand for.
    fn weight(&self, counts: &Range<usize>) -> Weight {
        if counts.len() <= STEP {
            return sum_of(&self.counts[counts.clone()]);
        }
        let [first, last] = [counts.start.div_ceil(STEP), counts.end / STEP];
        let around =
            [counts.start..first * STEP, last * STEP..counts.end].map(|part| sum_of(&self.counts[part]));
        let [before, after] = around;
        before + (self.sums[last] - self.sums[first]) + after
    }

    /// Number of base pages of these places between two numbers.
    fn pages(&self, start: u128, end: u128, places: &Range<usize>) -> u64 {
        let [first, ..] = &self.places[places.clone()] else { return 0 };
        let before = start.saturating_sub(first.start()) as u64;
        let after = self.places[places.end - 1].end().saturating_sub(end) as u64;
        self.pages_before[places.end] - self.pages_before[places.start] - before - after
    }

    fn halves(&self, part: &Part) -> [Part; 2] {
        let level = part.level - 1;
        let middle = part.start + (1 << level);
        let counts = &self.counts[part.counts.clone()];
        let is_left = |count: &Count| count.number() < middle;
        let of_left = match counts.len() {
            0..=LINEAR => counts.iter().take_while(|count| is_left(count)).count(),
            _ => counts.partition_point(is_left),
        };
        let right = part.counts.start + of_left;
        let [left, right] = [part.counts.start..right, right..part.counts.end];
        if part.places.len() == 1 && part.has_all_pages() {
            let half = |start, counts: Range<usize>| {
                let weight = self.weight(&counts);
                Part { start, level, places: part.places.clone(), counts, pages: 1 << level, weight }
            };
            return [half(part.start, left), half(middle, right)];
        }
        let places = &self.places[part.places.clone()];
        let of_left = part.places.start + places.partition_point(|place| place.start() < middle);
        let of_right = part.places.start + places.partition_point(|place| place.end() <= middle);
        [
            self.part(part.start, level, part.places.start..of_left, left),
            self.part(middle, level, of_right..part.places.end, right),
        ]
    }

    /// Calls `push` with the parts of a part whose pages have this rate in the mean. How much halves differ,
    /// neighbours say together; many samples say it of a single block.
    fn divide(&mut self, part: &Part, rate: f64, known: Option<&Variances>, push: &mut dyn FnMut(Pages)) {
        if part.pages == 0 {
            return;
        }
        let Some(known) = known else {
            let has_many = part.weight.samples() > NEIGHBOURS_SAMPLES;
            let own = if has_many { None } else { Some(&self.variances(part)) };
            return self.divide_by(part, rate, own, push);
        };
        self.divide_by(part, rate, Some(known), push);
    }

    fn divide_by(&mut self, part: &Part, rate: f64, known: Option<&Variances>, push: &mut dyn FnMut(Pages)) {
        if part.is_whole() || known.is_some_and(|known| part.level < known.lowest) {
            let rate = Rate::by_samples(rate, !part.counts.is_empty());
            let numbers = part.start..part.start + (1 << part.level);
            return push_places(&self.places[part.places.clone()], numbers, rate, push);
        }
        if let Some(known) = known.filter(|_| self.is_dense(part)) {
            return self.divide_dense(part, rate, known, push);
        }
        let halves = self.halves(part);
        let shares = part.shares(&halves[0]);
        let [left, right] = &halves;
        let of_left = match (left.pages, right.pages) {
            (0, _) | (_, 0) => shares.pages,
            _ => shares
                .believed(known.map_or(0.0, |known| known.of(part.level, part.pages as f64, part.weight))),
        };
        self.divide(left, rate * of_left / shares.pages, known, push);
        self.divide(right, rate * (1.0 - of_left) / (1.0 - shares.pages), known, push);
    }

    fn divide_dense(&mut self, part: &Part, rate: f64, known: &Variances, push: &mut dyn FnMut(Pages)) {
        self.fill(part);
        self.block.divide(rate, known, &mut |pages, rate, is_seen| {
            let [start, end] = [pages.start, pages.end].map(|page| part.start + page as u128);
            push_places(&self.places[part.places.clone()], start..end, Rate::by_samples(rate, is_seen), push);
        });
    }

    /// The samples of each page of a dense part.
    fn fill(&mut self, part: &Part) {
        let page = |count: &Count| (count.number() - part.start) as usize;
        let counts = self.counts[part.counts.clone()].iter();
        self.block.set(counts.map(|count| (page(count), count.weight())));
    }

    /// How much halves differ in a part. Not inlined: it takes much stack, and its callers are recursive.
    #[inline(never)]
    fn variances(&mut self, part: &Part) -> Variances {
        let mut spreads = Spreads::new(part.weight.accesses / part.pages as f64);
        self.spread(part, &mut spreads);
        spreads.variances()
    }

    fn spread(&mut self, part: &Part, spreads: &mut Spreads) {
        if part.is_whole() {
            return;
        }
        if self.is_dense(part) {
            self.fill(part);
            return self.block.spread(spreads);
        }
        let halves = self.halves(part);
        if halves.iter().all(|half| half.pages > 0) {
            spreads.add(part.level, part.pages as f64, &part.shares(&halves[0]));
        }
        halves.iter().for_each(|half| self.spread(half, spreads));
    }
}

/// What these pages' samples stand for.
pub(super) fn sum_of(counts: &[Count]) -> Weight {
    counts.iter().map(Count::weight).sum()
}

/// Calls `push` with the pages of these places between two numbers.
fn push_places(places: &[Place], numbers: Range<u128>, rate: Rate, push: &mut dyn FnMut(Pages)) {
    for place in places {
        let start = place.start + numbers.start.saturating_sub(place.start()) as u64;
        let end =
            place.end - place.end().saturating_sub(numbers.end).min((place.end - place.start).into()) as u64;
        if start < end {
            push(Pages::of(&Place { start, end, ..*place }, rate));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand_core::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::super::RATIO_MIN;
    use super::*;

    fn place(task: u32, start: u64, end: u64) -> Place {
        Place { task: TaskId(task), start, end, size: PageSize::Base, node: NodeId(0) }
    }

    /// Counts of samples of one access each, of pages with these rates, as many samples as there are.
    fn counts(rates: &[f64], samples: usize) -> Vec<Count> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let before: Vec<f64> = rates
            .iter()
            .scan(0.0, |sum, rate| {
                *sum += rate;
                Some(*sum)
            })
            .collect();
        let mut of = vec![0.0; rates.len()];
        for _ in 0..samples {
            let at = (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64 * before[before.len() - 1];
            of[before.partition_point(|&sum| sum <= at)] += 1.0;
        }
        let count = |(page, accesses): (usize, f64)| {
            Count::new(TaskId(0), page as u64, Weight { accesses, squares: accesses })
        };
        of.into_iter().enumerate().filter(|&(_, accesses)| accesses > 0.0).map(count).collect()
    }

    fn of(places: &[Place], counts: &[Count]) -> Vec<Pages> {
        let mut all = Vec::new();
        each(places, counts, 1.0, &mut |pages| all.push(pages));
        all
    }

    fn by_page(parts: &[Pages]) -> Vec<f64> {
        parts.iter().flat_map(|of| (of.start..of.end).map(|_| of.rate.mean)).collect()
    }

    #[test]
    fn blocks_with_many_samples_are_divided_as_others_are() {
        let rates: Vec<f64> = (0..1 << 13).map(|page| f64::from(page % 64 * (page / 512 % 3) + 1)).collect();
        let places = [place(0, 0, 700), place(0, 700, 5000), place(0, 5100, 1 << 13)];
        let counts = counts(&rates, 1 << 14);
        let mut dense = Tree::new(&places, &counts);
        let parts = |tree: &mut Tree<'_>| {
            let mut all = Vec::new();
            tree.each(2.0, &mut |pages| all.push(pages));
            by_page(&all)
        };
        let found = parts(&mut dense);
        let others = parts(&mut Tree { dense: usize::MAX, ..dense });
        assert_eq!(found.len(), others.len());
        for (page, (a, b)) in found.iter().zip(&others).enumerate() {
            assert!((a - b).abs() <= 1e-9 * b, "page {page}: {a}, {b}");
        }
        assert!(found.iter().any(|rate| *rate > 2.0 * found[0]));
    }

    #[test]
    fn pages_that_are_accessed_alike_have_nearly_one_rate() {
        for samples in [100, 3000, 100_000] {
            let found = of(&[place(0, 0, 1 << 15)], &counts(&vec![1.0; 1 << 15], samples));
            let mean = samples as f64 / f64::from(1 << 15);
            let far = found.iter().map(|of| (of.rate.mean / mean - 1.0).abs()).fold(0.0, f64::max);
            assert!(far < RATIO_MIN.sqrt() - 1.0, "{samples} samples: {far}");
        }
    }

    /// Independent rates of mean and variance 1 are known best as Gamma's posterior means: its variance is
    /// 1 / (1 + samples per page).
    #[test]
    fn rates_are_as_near_as_independent_ones_can_be_known() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(2);
        let mut exponential = || -libm::log((random.next_u64() >> 11) as f64 / (1u64 << 53) as f64);
        let rates: Vec<f64> = (0..1 << 15).map(|_| exponential()).collect();
        for each in [1.0, 2.0, 8.0] {
            let samples = (each * rates.len() as f64) as usize;
            let found = by_page(&of(&[place(0, 0, 1 << 15)], &counts(&rates, samples)));
            let error =
                rates.iter().zip(&found).map(|(rate, found)| (found / each - rate).powi(2)).sum::<f64>();
            let best = 1.0 / (1.0 + each);
            let error = error / rates.len() as f64;
            assert!(error < 1.15 * best, "{each} samples a page: {error}, at best {best}");
        }
    }

    /// Every fifth piece of 64 pages is hot, and has four of five accesses.
    #[test]
    fn hot_pieces_are_found_by_less_than_one_sample_a_page() {
        let is_hot = |page: usize| page / 64 % 5 == 3;
        let rates: Vec<f64> = (0..1 << 15).map(|page| if is_hot(page) { 16.0 } else { 1.0 }).collect();
        let found = by_page(&of(&[place(0, 0, 1 << 15)], &counts(&rates, 1 << 14)));
        let right = found.iter().enumerate().filter(|&(page, &rate)| (rate > 0.5) == is_hot(page)).count();
        assert!(right * 100 > 98 * found.len(), "{right} of {}", found.len());
    }

    /// Cold pages beside hot pieces are alike, however uneven the hot pieces are.
    #[test]
    fn cold_pages_beside_hot_pieces_seem_alike() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        let is_hot = |page: usize| page / 64 % 5 == 3;
        let hot = |random: &mut Xoshiro256PlusPlus| f64::from(random.next_u32() % 50 + 1);
        let rates: Vec<f64> =
            (0..1 << 16).map(|page| if is_hot(page) { hot(&mut random) } else { 0.3 }).collect();
        let found = by_page(&of(&[place(0, 0, 1 << 16)], &counts(&rates, 1 << 16)));
        let per_page = f64::from(1 << 16) / rates.iter().sum::<f64>();
        let cold = found.iter().enumerate().filter(|&(page, _)| !is_hot(page));
        let high = cold.clone().filter(|(_, rate)| **rate > 3.0 * 0.3 * per_page).count();
        assert!(high * 200 < cold.count(), "{high}");
    }

    proptest! {
        /// Every page has one rate, and together they have all accesses that were sampled in them.
        #[test]
        fn accesses_are_those_of_the_samples(
            gaps in prop::collection::vec((0..2u32, 0..300u64, 1..600u64), 1..12),
            samples in prop::collection::vec((0..4u32, 0..5000u64, 0..3u8), 0..200),
        ) {
            let (mut task, mut start) = (0, 0);
            let mut places = Vec::new();
            for (next_task, gap, pages) in gaps {
                (task, start) = (task + next_task, if next_task > 0 { 0 } else { start });
                places.push(place(task, start + gap, start + gap + pages));
                start += gap + pages;
            }
            let mut counts: Vec<Count> = samples
                .iter()
                .map(|&(task, page, heavy)| {
                    let weight = Weight::of_sample(f64::from(heavy) * 10.0 + 0.1);
                    Count::new(TaskId(task), page, weight)
                })
                .collect();
            counts.sort_by_key(Count::number);
            counts.dedup_by_key(|count| count.number());
            let found = of(&places, &counts);
            let of_found: Vec<_> =
                found.iter().flat_map(|of| (of.start..of.end).map(|page| (of.task, page))).collect();
            let all: Vec<_> =
                places.iter().flat_map(|of| (of.start..of.end).map(|page| (of.task, page))).collect();
            prop_assert_eq!(&of_found, &all);
            let accesses: f64 = found.iter().map(Pages::accesses).sum();
            let within = counts.iter().filter(|count| all.binary_search(&(count.task, count.page)).is_ok());
            let sampled: f64 = within.map(|count| count.weight().accesses).sum();
            prop_assert!((accesses - sampled).abs() <= 1e-9 * sampled, "{accesses}, {sampled}");
            prop_assert!(found.iter().all(|of| of.rate.mean >= 0.0));
        }
    }
}

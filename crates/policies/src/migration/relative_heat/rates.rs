//! Rates of pages by their samples: between what the samples say of each page and what they say of all.
//!
//! Of many pages that are accessed alike, some have more samples than others by chance. So the pages are
//! halved by address, again and again, and a half's share of the accesses is taken to lie between its share
//! of the pages and its share of the samples. It is nearer to the latter the more samples there are, and the
//! more other halves of its size differ beyond chance: linear credibility (Bühlmann, ASTIN Bulletin 4, 1967).
//!
//! ```text
//! samples    8 |7 . . 1 . . . .|        halves of 4 pages differ: 7 + 1 and 0 samples
//! rates      1 |2 2 2 2|0 0 0 0|        believed, if as many differ so as here
//!              |3 3|1 1|0 0 0 0|        half believed: 4 and 0 are seen of 2 and 2
//! ```

use std::ops::Range;

use memtide_core::{NodeId, PageSize, TaskId};

use super::sampled::Count;
use super::weight::Weight;

/// Binary digits of a page number, and of a task and a page number.
const PAGE_BITS: u32 = 52;
const LEVELS: usize = PAGE_BITS as usize + 32 + 1;

/// Number of addressable base pages, more than any machine has.
pub(super) const PAGES_MAX: u64 = 1 << PAGE_BITS;

/// Samples up to which pages are not divided: one sample does not say which of them is accessed.
const FEW_SAMPLES: f64 = 1.5;

/// Samples of neighbouring pages that together say how much halves of a size differ.
const NEIGHBOURS_SAMPLES: f64 = 32_768.0;

/// Standard deviations of chance beyond which halves of many blocks differ, and those of a single one.
const DEVIATIONS: f64 = 2.0;
const DEVIATIONS_OF_ONE: f64 = 4.0;

/// Halves of which one has less than this share of the pages do not say how much others differ: one sample
/// in so few pages looks like many.
const SHARE_MIN: f64 = 0.125;

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

/// A sampled page, and the samples of all pages before it.
#[derive(Clone, Copy, Debug)]
struct Spot {
    task: TaskId,
    page: u64,
    before: Weight,
}

/// All pages, and their samples.
#[derive(Debug)]
struct Tree<'p> {
    places: &'p [Place],
    /// Number of base pages before each place, and of all.
    pages_before: Vec<u64>,
    /// One more than there are sampled pages.
    spots: Vec<Spot>,
}

/// An aligned block of numbers, and the pages in it.
#[derive(Clone, Debug)]
struct Part {
    start: u128,
    /// Binary logarithm of its length.
    level: u32,
    places: Range<usize>,
    spots: Range<usize>,
    pages: u64,
    weight: Weight,
}

impl Part {
    /// Whether its samples do not say which of its pages they are of.
    fn is_whole(&self) -> bool {
        self.level == 0 || self.weight.samples() <= FEW_SAMPLES
    }
}

/// How much halves of some blocks differ in their accesses.
#[derive(Clone, Copy, Debug, Default)]
struct Spread {
    /// Squares of the differences of the halves' accesses, without what chance adds; what they would be if one
    /// half had all of them; and their variance by chance.
    squares: f64,
    most: f64,
    noise: f64,
}

/// The first half's share of a block's pages, and of its accesses.
#[derive(Clone, Copy, Debug)]
struct Shares {
    all: Weight,
    pages: f64,
    accesses: f64,
    /// Samples of the half whose pages are accessed more.
    hotter_samples: f64,
}

impl Shares {
    fn of(part: &Part, [first, second]: &[Part; 2]) -> Shares {
        let pages = first.pages as f64 / part.pages as f64;
        let accesses = first.weight.accesses / part.weight.accesses;
        let hotter = if accesses > pages { first } else { second };
        Shares { all: part.weight, pages, accesses, hotter_samples: hotter.weight.samples() }
    }

    /// Square of the difference of the halves' accesses, and its mean by chance.
    fn square(&self) -> f64 {
        let away = (self.accesses - self.pages) * self.all.accesses;
        away * away / (self.pages * (1.0 - self.pages))
    }

    /// That square if one half had all accesses, without what chance adds.
    fn most(&self) -> f64 {
        self.all.accesses * self.all.accesses - self.all.squares
    }

    /// Squared coefficient of variation of the halves' accesses, as far as this block alone shows it. A few
    /// samples in very few pages look like more than chance.
    fn variance(&self) -> f64 {
        const SQUARE: f64 = DEVIATIONS_OF_ONE * DEVIATIONS_OF_ONE;
        let is_shown = self.hotter_samples >= SQUARE;
        if is_shown { share(self.square() - SQUARE * self.all.squares, self.most()) } else { 0.0 }
    }

    /// The first half's share of the accesses, if the halves of such blocks have this squared coefficient of
    /// variation.
    fn believed(&self, variance: f64) -> f64 {
        let believed = variance / (variance + (1.0 - variance) / self.all.samples());
        (self.pages + believed * (self.accesses - self.pages)).clamp(0.0, 1.0)
    }
}

/// How much of a whole this is: from 0 to 1.
fn share(part: f64, whole: f64) -> f64 {
    if part > 0.0 && whole > 0.0 { (part / whole).min(1.0) } else { 0.0 }
}

impl Spread {
    fn add(&mut self, shares: &Shares) {
        let chance = shares.all.squares;
        self.squares += shares.square() - chance;
        self.most += shares.most();
        self.noise += 2.0 * chance * chance * (1.0 - 1.0 / shares.all.samples());
    }

    /// Squared coefficient of variation of the halves' accesses, as far as it is beyond chance.
    fn variance(&self) -> f64 {
        share(self.squares - DEVIATIONS * self.noise.max(0.0).sqrt(), self.most)
    }
}

/// How much the halves of neighbouring blocks differ, by level.
struct Variances {
    by_level: [f64; LEVELS],
    /// Lowest level at which they differ.
    lowest: u32,
}

/// Pages of a place that are taken to be accessed alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rated {
    pub place: Place,
    /// Accesses of a base page.
    pub rate: f64,
    /// Whether a sample found them, or some of the pages that are taken to be like them, accessed.
    pub is_seen: bool,
}

/// The places' parts with their rates, in order.
pub(super) fn of(places: &[Place], counts: &[Count]) -> Vec<Rated> {
    let tree = Tree::new(places, counts);
    let mut rates = Vec::with_capacity(places.len());
    let all = tree.part(0, LEVELS as u32 - 1, 0..places.len(), 0..tree.spots.len() - 1);
    let rate = all.weight.accesses / all.pages as f64;
    tree.divide(&all, rate, None, &mut rates);
    rates
}

impl Tree<'_> {
    fn new<'p>(places: &'p [Place], counts: &[Count]) -> Tree<'p> {
        let mut pages_before = Vec::with_capacity(places.len() + 1);
        let mut spots = Vec::with_capacity(counts.len() + 1);
        let (mut pages, mut before, mut left) = (0, Weight::default(), counts);
        for place in places {
            pages_before.push(pages);
            pages += place.end - place.start;
            left = &left[left.partition_point(|count| count.number() < place.start())..];
            let (within, after) = left.split_at(left.partition_point(|count| count.number() < place.end()));
            for &Count { task, page, weight } in within {
                spots.push(Spot { task, page, before });
                before = before + weight;
            }
            left = after;
        }
        pages_before.push(pages);
        spots.push(Spot { task: TaskId(u32::MAX), page: u64::MAX, before });
        Tree { places, pages_before, spots }
    }

    /// The part of these places and sampled pages that lies in a block.
    fn part(&self, start: u128, level: u32, places: Range<usize>, spots: Range<usize>) -> Part {
        let pages = self.pages(start, start + (1 << level), &places);
        let weight = self.spots[spots.end].before - self.spots[spots.start].before;
        Part { start, level, places, spots, pages, weight }
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
        let places = &self.places[part.places.clone()];
        let of_left = part.places.start + places.partition_point(|place| place.start() < middle);
        let of_right = part.places.start + places.partition_point(|place| place.end() <= middle);
        let spots = &self.spots[part.spots.clone()];
        let spot = part.spots.start + spots.partition_point(|spot| number(spot.task, spot.page) < middle);
        [
            self.part(part.start, level, part.places.start..of_left, part.spots.start..spot),
            self.part(middle, level, of_right..part.places.end, spot..part.spots.end),
        ]
    }

    /// Appends the parts of a part whose pages have this rate in the mean. How much halves differ, neighbours
    /// say together; many samples say it of a single block.
    fn divide(&self, part: &Part, rate: f64, known: Option<&Variances>, rates: &mut Vec<Rated>) {
        if part.pages == 0 {
            return;
        }
        let has_many = part.weight.samples() > NEIGHBOURS_SAMPLES;
        if known.is_none() && !has_many {
            return self.divide(part, rate, Some(&self.variances(part)), rates);
        }
        if part.is_whole() || known.is_some_and(|known| part.level < known.lowest) {
            return self.push(part, rate, rates);
        }
        let halves = self.halves(part);
        let shares = Shares::of(part, &halves);
        let [left, right] = &halves;
        let mut of_left = shares.pages;
        if left.pages > 0 && right.pages > 0 {
            let of_others = known.map_or(0.0, |known| known.by_level[part.level as usize]);
            of_left = shares.believed(of_others.max(shares.variance()));
        }
        self.divide(left, rate * of_left / shares.pages, known, rates);
        self.divide(right, rate * (1.0 - of_left) / (1.0 - shares.pages), known, rates);
    }

    fn push(&self, part: &Part, rate: f64, rates: &mut Vec<Rated>) {
        let end = part.start + (1 << part.level);
        for place in &self.places[part.places.clone()] {
            let start = place.start + part.start.saturating_sub(place.start()) as u64;
            let end = place.end - place.end().saturating_sub(end) as u64;
            let is_seen = !part.spots.is_empty();
            rates.push(Rated { place: Place { start, end, ..*place }, rate, is_seen });
        }
    }

    /// How much halves differ in a part.
    fn variances(&self, part: &Part) -> Variances {
        let mut spreads = [Spread::default(); LEVELS];
        let lowest_of_one = self.spread(part, &mut spreads);
        let by_level = spreads.map(|spread| spread.variance());
        let lowest = by_level.iter().position(|&variance| variance > 0.0).unwrap_or(LEVELS);
        Variances { by_level, lowest: lowest_of_one.min(lowest as u32) }
    }

    /// Adds a part's blocks. Returns the lowest level of those that alone show that their halves differ.
    fn spread(&self, part: &Part, spreads: &mut [Spread; LEVELS]) -> u32 {
        if part.is_whole() {
            return u32::MAX;
        }
        let halves = self.halves(part);
        let mut lowest = halves.iter().map(|half| self.spread(half, spreads)).fold(u32::MAX, u32::min);
        if halves.iter().all(|half| half.pages > 0) {
            let shares = Shares::of(part, &halves);
            if (SHARE_MIN..=1.0 - SHARE_MIN).contains(&shares.pages) {
                spreads[part.level as usize].add(&shares);
            }
            if shares.variance() > 0.0 {
                lowest = lowest.min(part.level);
            }
        }
        lowest
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand_core::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::super::RATIO_MIN_SAMPLED;
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
        let count = |(page, accesses): (usize, f64)| Count {
            task: TaskId(0),
            page: page as u64,
            weight: Weight { accesses, squares: accesses },
        };
        of.into_iter().enumerate().filter(|&(_, accesses)| accesses > 0.0).map(count).collect()
    }

    fn by_page(rates: &[Rated]) -> Vec<f64> {
        rates.iter().flat_map(|of| (of.place.start..of.place.end).map(|_| of.rate)).collect()
    }

    #[test]
    fn pages_that_are_accessed_alike_have_nearly_one_rate() {
        for samples in [100, 3000, 100_000] {
            let found = of(&[place(0, 0, 1 << 15)], &counts(&vec![1.0; 1 << 15], samples));
            let mean = samples as f64 / f64::from(1 << 15);
            let far = found.iter().map(|of| (of.rate / mean - 1.0).abs()).fold(0.0, f64::max);
            assert!(far < RATIO_MIN_SAMPLED - 1.0, "{samples} samples: {far}");
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
            let error = rates.iter().zip(&found).map(|(rate, found)| (found / each - rate).powi(2)).sum::<f64>();
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
                    Count { task: TaskId(task), page, weight }
                })
                .collect();
            counts.sort_by_key(Count::number);
            counts.dedup_by_key(|count| count.number());
            let found = of(&places, &counts);
            let pages = |place: &Place| (place.start..place.end).map(|page| (place.task, page)).collect::<Vec<_>>();
            let of_found: Vec<_> = found.iter().flat_map(|of| pages(&of.place)).collect();
            let all: Vec<_> = places.iter().flat_map(pages).collect();
            prop_assert_eq!(&of_found, &all);
            let accesses: f64 = found.iter().map(|of| of.rate * (of.place.end - of.place.start) as f64).sum();
            let within = counts.iter().filter(|count| all.binary_search(&(count.task, count.page)).is_ok());
            let sampled: f64 = within.map(|count| count.weight.accesses).sum();
            prop_assert!((accesses - sampled).abs() <= 1e-9 * sampled, "{accesses}, {sampled}");
            prop_assert!(found.iter().all(|of| of.rate >= 0.0));
        }
    }
}

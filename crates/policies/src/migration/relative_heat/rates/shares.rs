//! How much two halves of a block of pages differ in their accesses, and how much of that is chance.

use super::super::weight::Weight;
use super::LEVELS;

/// Samples up to which pages are not divided: one sample does not say which of them is accessed.
const FEW_SAMPLES: f64 = 1.5;

/// Standard deviations of chance beyond which halves of many blocks differ, and those of a single one.
const DEVIATIONS: f64 = 2.0;
const DEVIATIONS_OF_ONE: f64 = 4.0;

/// Halves of which one has less than this share of the pages do not say how much others differ: one sample
/// in so few pages looks like many.
const SHARE_MIN: f64 = 0.125;

/// Whether samples are too few to say which of the pages they are of.
pub(super) fn is_few(samples: Weight) -> bool {
    samples.accesses * samples.accesses <= FEW_SAMPLES * samples.squares
}

/// A block of pages in two halves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shares {
    all: Weight,
    first: Weight,
    /// The first half's share of the pages.
    pub pages: f64,
}

impl Shares {
    /// Of a block with these samples, of which the first half has this share of the pages.
    #[inline]
    pub fn of(all: Weight, first: Weight, pages: f64) -> Shares {
        Shares { all, first, pages }
    }

    /// Accesses of the first half beyond its share of the pages.
    fn beyond(&self) -> f64 {
        self.first.accesses - self.pages * self.all.accesses
    }

    /// Square of the difference of the halves' accesses; its mean by chance is that of the samples.
    fn square(&self) -> f64 {
        self.beyond() * self.beyond() / (self.pages * (1.0 - self.pages))
    }

    /// That square if one half had all accesses, without what chance adds.
    fn most(&self) -> f64 {
        self.all.accesses * self.all.accesses - self.all.squares
    }

    /// Squared coefficient of variation of the halves' accesses, as far as this block alone shows it. A few
    /// samples in very few pages look like more than chance.
    #[inline]
    fn variance(&self) -> f64 {
        const SQUARE: f64 = DEVIATIONS_OF_ONE * DEVIATIONS_OF_ONE;
        let square = self.square() - SQUARE * self.all.squares;
        let hotter = || if self.beyond() > 0.0 { self.first } else { self.all - self.first };
        if square > 0.0 && hotter().samples() >= SQUARE { share(square, self.most()) } else { 0.0 }
    }

    /// The first half's share of the accesses, if the halves of such blocks have this squared coefficient of
    /// variation at least.
    #[inline]
    pub fn believed(&self, of_others: f64) -> f64 {
        let variance = self.variance().max(of_others);
        let signal = variance * self.all.accesses * self.all.accesses;
        let believed = signal / (signal + (1.0 - variance) * self.all.squares);
        (self.pages + believed * self.beyond() / self.all.accesses).clamp(0.0, 1.0)
    }
}

/// How much of a whole this is: from 0 to 1.
fn share(part: f64, whole: f64) -> f64 {
    if part > 0.0 && whole > 0.0 { (part / whole).min(1.0) } else { 0.0 }
}

/// How much halves of blocks of one size differ in their accesses.
#[derive(Clone, Copy, Debug, Default)]
struct Spread {
    /// Squares of the differences of the halves' accesses, without what chance adds; what they would be if
    /// one half had all of them; and their variance by chance.
    squares: f64,
    most: f64,
    noise: f64,
}

impl Spread {
    fn add(&mut self, shares: &Shares) {
        let (chance, most) = (shares.all.squares, shares.most());
        self.squares += shares.square() - chance;
        self.most += most;
        self.noise += 2.0 * chance * chance * most / (shares.all.accesses * shares.all.accesses);
    }

    /// Squared coefficient of variation of the halves' accesses, as far as it is beyond chance.
    fn variance(&self) -> f64 {
        share(self.squares - DEVIATIONS * self.noise.max(0.0).sqrt(), self.most)
    }
}

/// Borders of the classes of blocks by how often their pages are accessed, beside the mean. Cold blocks
/// beside hot ones are often alike all over.
const BORDERS: [f64; 5] = [0.125, 0.25, 0.5, 1.0, 2.0];
const CLASSES: usize = BORDERS.len() + 1;

/// Accesses of a page in the mean, by which blocks are in classes.
#[derive(Clone, Copy, Debug)]
struct Mean(f64);

impl Mean {
    #[inline]
    fn class(self, accesses: f64, pages: f64) -> usize {
        let mean = self.0 * pages;
        BORDERS.iter().map(|border| usize::from(accesses >= border * mean)).sum()
    }
}

/// How much halves of neighbouring blocks differ, by level, the binary logarithm of the blocks' pages, and by
/// class.
#[derive(Clone, Debug)]
pub(super) struct Spreads {
    mean: Mean,
    by_level: [[Spread; CLASSES]; LEVELS],
    /// Lowest level of a block that alone shows that its halves differ.
    lowest: u32,
}

impl Spreads {
    /// Of blocks of pages that have this many accesses in the mean.
    pub fn new(mean: f64) -> Spreads {
        let by_level = [[Spread::default(); CLASSES]; LEVELS];
        Spreads { mean: Mean(mean), by_level, lowest: LEVELS as u32 }
    }

    /// Adds a block of this many pages, of whose halves both have some.
    #[inline]
    pub fn add(&mut self, level: u32, pages: f64, shares: &Shares) {
        if (SHARE_MIN..=1.0 - SHARE_MIN).contains(&shares.pages) {
            let class = self.mean.class(shares.all.accesses, pages);
            self.by_level[level as usize][class].add(shares);
        }
        if level < self.lowest && shares.variance() > 0.0 {
            self.lowest = level;
        }
    }

    /// Squared coefficients of variation, as far as they are beyond chance.
    pub fn variances(&self) -> Variances {
        let by_level = self.by_level.map(|classes| classes.map(|spread| spread.variance()));
        let lowest = by_level.iter().position(|classes| classes.iter().any(|&variance| variance > 0.0));
        let lowest = lowest.map_or(self.lowest, |lowest| self.lowest.min(lowest as u32));
        Variances { mean: self.mean, by_level, lowest }
    }
}

/// Squared coefficients of variation of the accesses of blocks' halves, by level and class.
#[derive(Clone, Debug)]
pub(super) struct Variances {
    mean: Mean,
    by_level: [[f64; CLASSES]; LEVELS],
    /// Lowest level at which halves differ.
    pub lowest: u32,
}

impl Variances {
    /// Of a block of this many pages that was sampled so.
    #[inline]
    pub fn of(&self, level: u32, pages: f64, samples: Weight) -> f64 {
        self.by_level[level as usize][self.mean.class(samples.accesses, pages)]
    }
}

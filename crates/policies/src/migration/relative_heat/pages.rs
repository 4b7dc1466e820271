//! Pages that may move, and how often they are accessed as far as is known.

use memtide_core::{NodeId, PageSize, TaskId};

use super::rates::Place;

/// Adjacent pages of one size on one node that are accessed alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pages {
    pub task: TaskId,
    /// First base page, and the one after the last.
    pub start: u64,
    pub end: u64,
    pub size: PageSize,
    pub node: NodeId,
    pub rate: Rate,
}

/// Accesses of a base page per epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rate {
    pub mean: f64,
    /// Bounds of what it may be, as far as chance allows.
    pub at_least: f64,
    pub at_most: f64,
}

impl Pages {
    pub fn of(place: &Place, rate: Rate) -> Pages {
        let Place { task, start, end, size, node } = *place;
        Pages { task, start, end, size, node, rate }
    }

    /// Number of base pages.
    pub fn base_pages(&self) -> u64 {
        self.end - self.start
    }

    /// Accesses per epoch.
    pub fn accesses(&self) -> f64 {
        self.rate.mean * self.base_pages() as f64
    }

    /// Number of its base pages that have no more accesses per epoch than this.
    pub fn pages_with(&self, accesses: f64) -> u64 {
        ((accesses.max(0.0) / self.rate.mean) as u64).min(self.base_pages())
    }

    /// Takes this many base pages from its front; `None` if that is none.
    pub fn take(&mut self, base_pages: u64) -> Option<Pages> {
        let front = Pages { end: self.start + base_pages, ..*self };
        self.start += base_pages;
        (base_pages > 0).then_some(front)
    }
}

impl Rate {
    /// One in which chance is already reckoned with. No sample may mean no access.
    pub fn by_samples(mean: f64, is_seen: bool) -> Rate {
        Rate { mean, at_least: if is_seen { mean } else { 0.0 }, at_most: mean }
    }

    /// Whether it is higher than another, and not by chance.
    pub fn is_higher(&self, other: &Rate) -> bool {
        self.at_least > other.at_most
    }
}

/// All of these pages, where parts of huge pages are joined.
pub(super) fn whole(parts: &[Pages]) -> Vec<Pages> {
    const HUGE_PAGES: u64 = PageSize::Huge.base_pages();
    let head = |part: &Pages| (part.task, part.start - part.start % HUGE_PAGES);
    let is_part = |part: &Pages| part.size == PageSize::Huge && part.base_pages() < HUGE_PAGES;
    let of_one = |a: &Pages, b: &Pages| is_part(a) && is_part(b) && head(a) == head(b);
    let join = |parts: &[Pages]| {
        let (first, last) = (&parts[0], &parts[parts.len() - 1]);
        let accesses: f64 = parts.iter().map(Pages::accesses).sum();
        let is_seen = parts.iter().any(|part| part.rate.at_least > 0.0);
        let rate = match parts.len() {
            1 => first.rate,
            _ => Rate::by_samples(accesses / HUGE_PAGES as f64, is_seen),
        };
        Pages { end: last.end, rate, ..*first }
    };
    parts.chunk_by(of_one).map(join).collect()
}

/// Pages in order of their rates. Keys are sorted in place of the pages, which are many and large.
#[derive(Debug, Default)]
pub(super) struct ByRate(Vec<u64>);

impl ByRate {
    /// Of those for which `is_wanted`.
    pub fn of(all: &[Pages], is_wanted: impl Fn(&Pages) -> bool) -> ByRate {
        let wanted = (0..).zip(all).filter(|(_, pages)| is_wanted(pages));
        // Rates are not negative: the bits of greater ones are greater.
        let key =
            |(at, pages): (u32, &Pages)| u64::from(!(pages.rate.mean as f32).to_bits()) << 32 | u64::from(at);
        ByRate(wanted.map(key).collect())
    }

    /// At most this many of the hottest, by decreasing rate.
    pub fn hottest(mut self, most: usize, all: &[Pages]) -> Vec<Pages> {
        if self.0.len() > most {
            self.0.select_nth_unstable(most);
            self.0.truncate(most);
        }
        self.sorted(all)
    }

    /// At most this many of the coolest, by decreasing rate.
    pub fn coolest(mut self, most: usize, all: &[Pages]) -> Vec<Pages> {
        if self.0.len() > most {
            let others = self.0.len() - most;
            self.0.select_nth_unstable(others);
            self.0.drain(..others);
        }
        self.sorted(all)
    }

    fn sorted(mut self, all: &[Pages]) -> Vec<Pages> {
        self.0.sort_unstable();
        self.0.iter().map(|&key| all[key as u32 as usize]).collect()
    }
}

/// Number of base pages, and accesses per epoch, of the pages on a node.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Total {
    pub base_pages: u64,
    pub accesses: f64,
}

/// By node.
pub(super) fn totals(pages: &[Pages], nodes: usize) -> Vec<Total> {
    let mut totals = vec![Total::default(); nodes];
    for pages in pages {
        let total = &mut totals[pages.node.index()];
        total.base_pages += pages.base_pages();
        total.accesses += pages.accesses();
    }
    totals
}

/// Standard deviations from the mean to a bound, so that the bounds of two equally uncertain rates meet where
/// they differ by `deviations` standard deviations of the difference.
pub(super) fn to_bound(deviations: f64) -> f64 {
    deviations * std::f64::consts::FRAC_1_SQRT_2
}

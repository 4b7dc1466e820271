//! Pages that may move, and how often they are accessed as far as is known.

use std::cmp::Ordering;

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

    /// By decreasing rate.
    pub fn hottest_first(a: &Pages, b: &Pages) -> Ordering {
        b.rate.mean.total_cmp(&a.rate.mean).then((a.task, a.start).cmp(&(b.task, b.start)))
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

    /// This many times as high.
    pub fn scaled(self, factor: f64) -> Rate {
        let Rate { mean, at_least, at_most } = self;
        Rate { mean: mean * factor, at_least: at_least * factor, at_most: at_most * factor }
    }

    /// Whether it is higher than another, and not by chance.
    pub fn is_higher(&self, other: &Rate) -> bool {
        self.at_least > other.at_most
    }
}

/// Standard deviations from the mean to a bound, so that the bounds of two equally uncertain rates meet where
/// they differ by `deviations` standard deviations of the difference.
pub(super) fn to_bound(deviations: f64) -> f64 {
    deviations * std::f64::consts::FRAC_1_SQRT_2
}

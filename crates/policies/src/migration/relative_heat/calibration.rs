//! How far the rates of the hottest and coolest pages hold, measured: the samples that they have later, beside
//! those that they were expected to have.
//!
//! Of many pages that are accessed alike, the hottest and the coolest by samples are so by chance, and move
//! first. What is believed of all pages together cannot tell them from pages that really differ.

use memtide_core::TaskId;
use serde::{Deserialize, Serialize};

use super::candidates::Candidates;
use super::pages::Pages;
use super::sampled::Latest;

/// Classes by the binary logarithm of a page's rate over the mean rate, and the lowest one.
const CLASSES: usize = 20;
const LOWEST: i32 = -12;

/// Samples as expected that a class is taken to have had before any.
const PRIOR: f64 = 4.0;

/// Weight of earlier samples, by decision.
const KEPT: f64 = 0.9;

/// Samples of the pages with similar rates.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Class {
    expected: f64,
    found: f64,
}

/// Some pages, and their expected share of all accesses.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    task: TaskId,
    /// First base page, and the one after the last.
    start: u64,
    end: u64,
    share: f64,
    class: usize,
}

/// How far the rates of some candidates hold.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Calibration {
    classes: [Class; CLASSES],
    expected: Vec<Expected>,
}

/// How far the rates of all candidates hold.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Calibrations {
    victims: Calibration,
    hot: Calibration,
    cool_parts: Calibration,
    hot_parts: Calibration,
}

/// All pages.
#[derive(Clone, Copy, Debug)]
struct All {
    accesses: f64,
    /// Accesses per epoch of a base page.
    mean: f64,
}

impl All {
    /// `None` if there were no accesses.
    fn of(candidates: &Candidates) -> Option<All> {
        let base_pages: u64 = candidates.totals.iter().map(|total| total.base_pages).sum();
        let accesses = candidates.accesses;
        (accesses > 0.0).then(|| All { accesses, mean: accesses / base_pages.max(1) as f64 })
    }

    fn class(self, pages: &Pages) -> usize {
        let times = pages.rate.mean / self.mean;
        let class = if times > 0.0 { libm::ilogb(times).saturating_sub(LOWEST) } else { 0 };
        class.clamp(0, CLASSES as i32 - 1) as usize
    }
}

impl Calibrations {
    /// Compares what the candidates of the last decision were expected to have with the samples since then.
    pub fn measure(&mut self, latest: &Latest<'_>) {
        let Calibrations { victims, hot, cool_parts, hot_parts } = self;
        let share = |of: &Expected| latest.share(of.task, of.start, of.end);
        let compare = |of: &mut Calibration| of.compare(latest.samples(), share);
        [victims, hot, cool_parts, hot_parts].into_iter().for_each(compare);
    }

    /// Replaces the rates of the hottest pages by what such pages have had, if that is less, and those of the
    /// coolest, if that is more. Only the `most` coolest are measured.
    pub fn correct(&mut self, candidates: &mut Candidates, most: usize) {
        let Some(all) = All::of(candidates) else { return };
        let Candidates { victims, hot, cool_parts, hot_parts, .. } = candidates;
        self.hot.lower(hot, all);
        self.hot_parts.lower(hot_parts, all);
        self.victims.raise(victims, most, all);
        self.cool_parts.raise(cool_parts, most, all);
    }
}

impl Calibration {
    /// Compares what was expected with the shares of this many samples that were found.
    fn compare(&mut self, samples: f64, share: impl Fn(&Expected) -> f64) {
        for class in &mut self.classes {
            *class = Class { expected: class.expected * KEPT, found: class.found * KEPT };
        }
        for of in &self.expected {
            let class = &mut self.classes[of.class];
            class.expected += of.share * samples;
            class.found += share(of) * samples;
        }
    }

    fn lower(&mut self, hottest: &mut [Pages], all: All) {
        self.expect(hottest.iter().filter(|pages| pages.rate.at_least > 0.0), all);
        self.correct(hottest, all, |factor| factor.min(1.0));
    }

    fn raise(&mut self, coolest: &mut [Pages], most: usize, all: All) {
        self.expect(coolest[coolest.len().saturating_sub(most)..].iter(), all);
        self.correct(coolest, all, |factor| factor.max(1.0));
    }

    fn expect<'p>(&mut self, pages: impl Iterator<Item = &'p Pages>, all: All) {
        let expected = |pages: &Pages| {
            let Pages { task, start, end, .. } = *pages;
            Expected { task, start, end, share: pages.accesses() / all.accesses, class: all.class(pages) }
        };
        self.expected.clear();
        self.expected.extend(pages.map(expected));
    }

    fn correct(&self, pages: &mut [Pages], all: All, limit: impl Fn(f64) -> f64) {
        let factors = self.classes.map(|class| limit((class.found + PRIOR) / (class.expected + PRIOR)));
        if factors.iter().all(|&factor| factor == 1.0) {
            return;
        }
        for pages in pages.iter_mut() {
            pages.rate = pages.rate.times(factors[all.class(pages)]);
        }
        pages.sort_by(Pages::hottest_first);
    }
}

#[cfg(test)]
mod tests {
    use memtide_core::{NodeId, PageSize};

    use super::super::pages::Rate;
    use super::*;

    fn pages(start: u64, mean: f64) -> Pages {
        let (task, size, node) = (TaskId(0), PageSize::Base, NodeId(0));
        Pages { task, start, end: start + 10, size, node, rate: Rate::by_samples(mean, true) }
    }

    const ALL: All = All { accesses: 1000.0, mean: 1.0 };

    /// Rates after these shares of the accesses were found for runs of pages in some decisions.
    fn after(mut runs: Vec<Pages>, shares: &[f64], correct: fn(&mut Calibration, &mut [Pages])) -> Vec<f64> {
        let mut calibration = Calibration::default();
        for _ in 0..20 {
            correct(&mut calibration, &mut runs.clone());
            calibration.compare(1000.0, |of| shares[of.start as usize / 10]);
        }
        correct(&mut calibration, &mut runs);
        runs.iter().map(|pages| pages.rate.mean).collect()
    }

    #[test]
    fn rates_follow_what_pages_that_seem_alike_have_later() {
        let (lower, raise): (fn(&mut Calibration, &mut [Pages]), fn(&mut Calibration, &mut [Pages])) =
            (|of, pages| of.lower(pages, ALL), |of, pages| of.raise(pages, 2, ALL));
        let hot = vec![pages(0, 20.0), pages(10, 5.0), pages(20, 4.5)];
        // The first has what it was expected to have, the others a third.
        let found = after(hot.clone(), &[0.2, 0.01, 0.021], lower);
        assert_eq!(found[0], 20.0);
        assert!((found[1] - 5.0 * 0.031 / 0.095).abs() < 0.05, "{found:?}");
        assert!((found[2] - 4.5 * 0.031 / 0.095).abs() < 0.05, "{found:?}");
        assert_eq!(after(hot, &[0.4, 0.1, 0.1], lower), [20.0, 5.0, 4.5], "more than expected");
        let cool = vec![pages(0, 8.0), pages(10, 0.5), pages(20, 0.1)];
        let found = after(cool.clone(), &[0.3, 0.02, 0.01], raise);
        assert_eq!(found[0], 8.0, "it is not among the coolest");
        assert!((found[1] - 2.0).abs() < 0.3 && (found[2] - 1.0).abs() < 0.4, "{found:?}");
        assert_eq!(after(cool, &[0.0, 0.0, 0.0], raise), [8.0, 0.5, 0.1], "less than expected");
    }

    #[test]
    fn rates_stay_in_order() {
        let hot = vec![pages(0, 4.0), pages(10, 3.9)];
        let found = after(hot, &[0.001, 0.039], |of, pages| of.lower(pages, ALL));
        assert_eq!(found[0], 3.9, "{found:?}");
        assert!(found[1] < 0.5, "{found:?}");
    }
}

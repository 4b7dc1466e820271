//! Calibration of the rates of candidates: the accesses that they were expected to have are compared with
//! those that later samples find.
//!
//! Of many pages that are accessed alike, the hottest and the coolest by samples are so by chance, and are
//! candidates for this reason. What is believed of all pages together cannot tell them from pages that really
//! differ. So rates of hot candidates are lowered, and those of cool ones raised, by what others of similar
//! rates turned out to have.
//!
//! ```text
//! hot candidates of  16 times the mean rate: 600 samples expected, 590 found    rates stay
//!                   1/4 of the mean rate:     90 samples expected,  30 found    rates fall to a third
//! ```

use memtide_core::TaskId;
use serde::{Deserialize, Serialize};

use super::candidates::{Candidates, Total};
use super::pages::Pages;
use super::sampled::Latest;

/// Classes by the binary logarithm of a page's rate over the mean rate, and the lowest one.
const CLASSES: usize = 20;
const LOWEST: i32 = -12;

/// Samples, found as expected, that a class is taken to have had before.
const PRIOR: f64 = 4.0;

/// Weight of earlier samples, by decision.
const KEPT: f64 = 0.9;

/// Maximum number of candidates of a kind that are compared.
const COMPARED_MAX: usize = 8192;

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
    class: u8,
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

/// Of all pages that may move.
#[derive(Clone, Copy, Debug)]
struct Overall {
    /// Accesses per epoch.
    accesses: f64,
    /// The same of a base page in the mean.
    mean: f64,
}

impl Overall {
    /// `None` if there are no accesses.
    fn of(candidates: &Candidates) -> Option<Overall> {
        let sum = |(pages, accesses), total: &Total| (pages + total.base_pages, accesses + total.accesses);
        let (base_pages, accesses) = candidates.totals.iter().fold((0, 0.0), sum);
        let is_any = base_pages > 0 && accesses > 0.0;
        is_any.then(|| Overall { accesses, mean: accesses / base_pages as f64 })
    }

    fn class(self, pages: &Pages) -> u8 {
        let ratio = pages.rate.mean / self.mean;
        let class = if ratio > 0.0 { libm::ilogb(ratio).saturating_sub(LOWEST) } else { 0 };
        class.clamp(0, CLASSES as i32 - 1) as u8
    }
}

impl Calibrations {
    /// Compares what the candidates of the last decision were expected to have with the samples since then.
    pub fn measure(&mut self, latest: &Latest<'_>) {
        let Calibrations { victims, hot, cool_parts, hot_parts } = self;
        let share = |of: &Expected| latest.share(of.task, of.start, of.end);
        for calibration in [victims, hot, cool_parts, hot_parts] {
            calibration.measure(latest.samples(), share);
        }
    }

    /// Corrects the rates of candidates, and keeps the uncorrected ones to be compared. Parts' rates may then
    /// differ from those of their huge pages.
    pub fn correct(&mut self, candidates: &mut Candidates) {
        let Some(overall) = Overall::of(candidates) else { return };
        let Candidates { victims, hot, cool_parts, hot_parts, .. } = candidates;
        self.hot.lower(hot, overall);
        self.hot_parts.lower(hot_parts, overall);
        self.victims.raise(victims, overall);
        self.cool_parts.raise(cool_parts, overall);
    }
}

impl Calibration {
    /// Compares what was expected with the shares of this many samples that were found.
    fn measure(&mut self, samples: f64, share: impl Fn(&Expected) -> f64) {
        for class in &mut self.classes {
            *class = Class { expected: class.expected * KEPT, found: class.found * KEPT };
        }
        for expected in self.expected.drain(..) {
            if let Some(class) = self.classes.get_mut(usize::from(expected.class)) {
                class.expected += expected.share * samples;
                class.found += share(&expected) * samples;
            }
        }
    }

    /// Of the hottest pages, by decreasing rate. Those without a sample are never promoted.
    fn lower(&mut self, hottest: &mut [Pages], overall: Overall) {
        let compared = hottest.iter().take(COMPARED_MAX);
        self.expect(compared.filter(|pages| pages.rate.at_least > 0.0), overall);
        self.apply(hottest, overall, |factor| factor.min(1.0));
    }

    /// Of the coolest pages, by decreasing rate.
    fn raise(&mut self, coolest: &mut [Pages], overall: Overall) {
        self.expect(coolest.iter().rev().take(COMPARED_MAX), overall);
        self.apply(coolest, overall, |factor| factor.max(1.0));
    }

    fn expect<'p>(&mut self, pages: impl Iterator<Item = &'p Pages>, overall: Overall) {
        let expected = |pages: &Pages| {
            let Pages { task, start, end, .. } = *pages;
            let share = pages.accesses() / overall.accesses;
            Expected { task, start, end, share, class: overall.class(pages) }
        };
        self.expected.clear();
        self.expected.extend(pages.map(expected));
        // In the order of the samples, in which they are looked up.
        self.expected.sort_unstable_by_key(|of| (of.task, of.start));
    }

    fn apply(&self, pages: &mut [Pages], overall: Overall, limit: impl Fn(f64) -> f64) {
        let factors = self.classes.map(|class| limit((class.found + PRIOR) / (class.expected + PRIOR)));
        if factors.iter().all(|&factor| factor == 1.0) {
            return;
        }
        for pages in pages.iter_mut() {
            pages.rate = pages.rate.scaled(factors[usize::from(overall.class(pages))]);
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

    const OVERALL: Overall = Overall { accesses: 1000.0, mean: 1.0 };

    type Correct = fn(&mut Calibration, &mut [Pages]);

    /// Rates after these shares of the accesses were found for runs of pages in some decisions.
    fn after(mut runs: Vec<Pages>, shares: &[f64], correct: Correct) -> Vec<f64> {
        let mut calibration = Calibration::default();
        for _ in 0..20 {
            correct(&mut calibration, &mut runs.clone());
            calibration.measure(1000.0, |of| shares[of.start as usize / 10]);
        }
        correct(&mut calibration, &mut runs);
        runs.iter().map(|pages| pages.rate.mean).collect()
    }

    #[test]
    fn rates_follow_what_pages_that_seem_alike_have_later() {
        let lower: Correct = |of, pages| of.lower(pages, OVERALL);
        let raise: Correct = |of, pages| of.raise(pages, OVERALL);
        let hot = vec![pages(0, 20.0), pages(10, 5.0), pages(20, 4.5)];
        // The first has what it was expected to have, the others a third.
        let found = after(hot.clone(), &[0.2, 0.01, 0.021], lower);
        assert_eq!(found[0], 20.0);
        assert!((found[1] - 5.0 * 0.031 / 0.095).abs() < 0.05, "{found:?}");
        assert!((found[2] - 4.5 * 0.031 / 0.095).abs() < 0.05, "{found:?}");
        assert_eq!(after(hot, &[0.4, 0.1, 0.1], lower), [20.0, 5.0, 4.5], "more than expected");
        let cool = vec![pages(0, 8.0), pages(10, 0.5), pages(20, 0.1)];
        let found = after(cool.clone(), &[0.08, 0.02, 0.01], raise);
        assert_eq!(found[0], 8.0);
        assert!((found[1] - 2.0).abs() < 0.3 && (found[2] - 1.0).abs() < 0.4, "{found:?}");
        assert_eq!(after(cool, &[0.0, 0.0, 0.0], raise), [8.0, 0.5, 0.1], "less than expected");
    }

    #[test]
    fn saved_state_of_another_kind_is_no_panic() {
        let mut calibration = Calibration::default();
        calibration.expected.push(Expected { task: TaskId(0), start: 9, end: 3, share: 0.1, class: 99 });
        calibration.measure(100.0, |_| 0.1);
        assert_eq!(after(vec![pages(0, 1.0)], &[0.01], |of, pages| of.lower(pages, OVERALL)), [1.0]);
    }

    #[test]
    fn rates_stay_in_order() {
        let hot = vec![pages(0, 4.0), pages(10, 3.9)];
        let found = after(hot, &[0.001, 0.039], |of, pages| of.lower(pages, OVERALL));
        assert_eq!(found[0], 3.9, "{found:?}");
        assert!(found[1] < 0.5, "{found:?}");
    }
}

//! What moves bring, measured: the share of all accesses that moved pages were to have, and have.

use std::collections::VecDeque;

use memtide_core::TaskId;
use serde::{Deserialize, Serialize};

use super::pages::Pages;

/// Decisions from a move to its measurement: until the first one, pages are on their way.
const EPOCHS: u64 = 4;

/// Share of the accesses that promotions are believed to bring before they are measured: as if that much had
/// been promised and kept.
const PRIOR: f64 = 0.05;

/// Base pages that are taken to have been demoted before, and had what they were to have.
const PRIOR_PAGES: f64 = 512.0;

/// Weight of earlier moves, by decision: after 100 decisions an eighth of it is left, and moves are tried
/// again.
const KEPT: f64 = 0.98;

/// The share of an epoch's accesses that pages had, `None` if it had too few.
pub(super) trait ShareOf: Fn(&[(TaskId, u64, u64)]) -> Option<f64> {}

impl<F: Fn(&[(TaskId, u64, u64)]) -> Option<f64>> ShareOf for F {}

/// Pages that a decision moves.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Moved {
    epoch: u64,
    /// First base page of each run, and the one after the last.
    pages: Vec<(TaskId, u64, u64)>,
    /// Share of all accesses that they had.
    share: f64,
}

/// Moves that are not measured yet.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Open {
    epoch: u64,
    moved: VecDeque<Moved>,
}

impl Open {
    /// Records pages; `accesses` are those of all pages.
    fn record(&mut self, &Pages { task, start, end, rate, .. }: &Pages, accesses: f64) {
        if self.moved.back().is_none_or(|last| last.epoch != self.epoch) {
            self.moved.push_back(Moved { epoch: self.epoch, ..Moved::default() });
        }
        if let Some(last) = self.moved.back_mut() {
            last.pages.push((task, start, end));
            last.share += rate.mean * (end - start) as f64 / accesses;
        }
    }

    /// Ends an epoch; returns pages whose moves are to be measured, and the share that they have now.
    fn end_epoch(&mut self, share_of: impl ShareOf) -> impl Iterator<Item = (Moved, f64)> {
        self.epoch += 1;
        let due = self.moved.partition_point(|moved| moved.epoch + EPOCHS <= self.epoch);
        self.moved.drain(..due).filter_map(move |moved| share_of(&moved.pages).map(|share| (moved, share)))
    }
}

/// How far promotions keep what they promise.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Trust {
    open: Open,
    promised: f64,
    kept: f64,
}

impl Trust {
    /// Share of what promotions promise that they keep, at most 1.
    pub fn share(&self) -> f64 {
        ((self.kept + PRIOR) / (self.promised + PRIOR)).min(1.0)
    }

    /// Records promoted pages, by their share of all accesses.
    pub fn promise(&mut self, pages: &Pages, accesses: f64) {
        self.open.record(pages, accesses);
    }

    /// Ends an epoch.
    pub fn end_epoch(&mut self, share_of: impl ShareOf) {
        (self.promised, self.kept) = (self.promised * KEPT, self.kept * KEPT);
        for (Moved { share: promised, .. }, share) in self.open.end_epoch(share_of) {
            self.promised += promised;
            self.kept += share.min(promised);
        }
    }
}

/// What demoted pages have on slow memory beyond what they seemed to have on fast memory: prefetching hides
/// more accesses there.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Regret {
    open: Open,
    base_pages: f64,
    /// Shares of all accesses.
    beyond: f64,
}

impl Regret {
    /// Share of all accesses that a demoted base page has beyond what it seemed to have, at least 0.
    pub fn share(&self) -> f64 {
        (self.beyond / (self.base_pages + PRIOR_PAGES)).max(0.0)
    }

    /// Records demoted pages, by their share of all accesses.
    pub fn record(&mut self, pages: &Pages, accesses: f64) {
        self.open.record(pages, accesses);
    }

    /// Ends an epoch.
    pub fn end_epoch(&mut self, share_of: impl ShareOf) {
        (self.base_pages, self.beyond) = (self.base_pages * KEPT, self.beyond * KEPT);
        for (Moved { pages, share: expected, .. }, share) in self.open.end_epoch(share_of) {
            self.base_pages += pages.iter().map(|&(_, start, end)| (end - start) as f64).sum::<f64>();
            self.beyond += share - expected;
        }
    }
}

#[cfg(test)]
mod tests {
    use memtide_core::{NodeId, PageSize};

    use super::super::pages::Rate;
    use super::*;

    /// A page with a tenth of 10 accesses.
    fn page(start: u64) -> Pages {
        let (task, size, node) = (TaskId(0), PageSize::Base, NodeId(0));
        Pages { task, start, end: start + 1, size, node, rate: Rate::by_samples(1.0, true) }
    }

    fn sum(pages: &[(TaskId, u64, u64)], shares: impl Fn(u64) -> f64) -> Option<f64> {
        Some(pages.iter().map(|&(_, start, _)| shares(start)).sum())
    }

    fn after(shares: impl Fn(u64) -> f64, epochs: u64) -> Trust {
        let mut trust = Trust::default();
        for epoch in 0..epochs {
            trust.promise(&page(epoch), 10.0);
            trust.end_epoch(|pages| sum(pages, &shares));
        }
        trust
    }

    #[test]
    fn promotions_that_bring_nothing_lose_trust_and_are_tried_again_later() {
        assert_eq!(Trust::default().share(), 1.0);
        assert_eq!(after(|_| 0.2, 50).share(), 1.0, "more than promised");
        let mut trust = after(|_| 0.0, 50);
        assert!(trust.share() < 0.03, "{}", trust.share());
        assert!((after(|_| 0.05, 50).share() - 0.5).abs() < 0.02);
        (0..400).for_each(|_| trust.end_epoch(|_| None));
        assert!(trust.share() > 0.9, "{}", trust.share());
    }

    #[test]
    fn demoted_pages_with_more_than_they_seemed_to_have_are_regretted_for_some_time() {
        let after = |share: f64| {
            let mut regret = Regret::default();
            for epoch in 0..600 {
                for at in 0..20 {
                    regret.record(&page(epoch * 20 + at), 10_000.0);
                }
                regret.end_epoch(|pages| sum(pages, |_| share));
            }
            regret
        };
        assert_eq!((Regret::default().share(), after(0.0).share()), (0.0, 0.0));
        assert!(after(0.0001).share() < 1e-12, "as expected");
        let mut regret = after(0.0005);
        let share = regret.share();
        assert!((0.0002..0.0004).contains(&share), "{share}");
        (0..200).for_each(|_| regret.end_epoch(|_| None));
        assert!(regret.share() < 0.1 * share, "{}", regret.share());
    }
}

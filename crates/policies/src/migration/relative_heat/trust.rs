//! What promotions bring, measured: the share of all accesses that promoted pages were to have, and have.

use std::collections::VecDeque;

use memtide_core::TaskId;
use serde::{Deserialize, Serialize};

/// Epochs from a promotion to its measurement: in the first, pages are still on their way.
const EPOCHS: u64 = 4;

/// Share of the accesses that promotions are believed to bring before they are measured: as if that much had
/// been promised and kept.
const PRIOR: f64 = 0.05;

/// Weight of earlier promotions, by epoch: after 100 epochs an eighth of it is left, and promotions are tried
/// again.
const KEPT: f64 = 0.98;

/// An epoch's promotions.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Promise {
    epoch: u64,
    /// First base page of each run, and the one after the last.
    pages: Vec<(TaskId, u64, u64)>,
    /// Share of all accesses that they had.
    share: f64,
}

/// How far promotions keep what they promise.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Trust {
    epoch: u64,
    open: VecDeque<Promise>,
    promised: f64,
    kept: f64,
}

impl Trust {
    /// Share of what promotions promise that they keep, at most 1.
    pub fn share(&self) -> f64 {
        ((self.kept + PRIOR) / (self.promised + PRIOR)).min(1.0)
    }

    /// Records a promotion, of pages that have this share of all accesses.
    pub fn promise(&mut self, task: TaskId, start: u64, end: u64, share: f64) {
        if self.open.back().is_none_or(|last| last.epoch != self.epoch) {
            self.open.push_back(Promise { epoch: self.epoch, ..Promise::default() });
        }
        if let Some(last) = self.open.back_mut() {
            last.pages.push((task, start, end));
            last.share += share;
        }
    }

    /// Ends an epoch; `share_of` returns the share of its accesses that pages had, `None` if it had too few.
    pub fn end_epoch(&mut self, share_of: impl Fn(&[(TaskId, u64, u64)]) -> Option<f64>) {
        self.epoch += 1;
        (self.promised, self.kept) = (self.promised * KEPT, self.kept * KEPT);
        let due = self.open.partition_point(|promise| promise.epoch + EPOCHS <= self.epoch);
        for Promise { pages, share: promised, .. } in self.open.drain(..due) {
            if let Some(share) = share_of(&pages) {
                self.promised += promised;
                self.kept += share.min(promised);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(shares: impl Fn(u64) -> f64, epochs: u64) -> Trust {
        let mut trust = Trust::default();
        for epoch in 0..epochs {
            trust.promise(TaskId(0), epoch, epoch + 1, 0.1);
            trust.end_epoch(|pages| Some(pages.iter().map(|&(_, start, _)| shares(start)).sum()));
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
}

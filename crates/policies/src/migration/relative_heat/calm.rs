//! Rests between decisions by samples while next to nothing moves: decisions take processor time, too.

use serde::{Deserialize, Serialize};

/// Most epochs from one decision to the next.
const EPOCHS_MAX: u32 = 4;

/// Part of the fastest tier's pages; a plan that moves fewer is a calm one.
const CALM: u64 = 1000;

/// When the next decision is due.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Calm {
    /// Epochs from the last decision to the next.
    interval: u32,
    /// Epochs since the last decision.
    passed: u32,
}

impl Default for Calm {
    fn default() -> Calm {
        Calm { interval: 1, passed: 0 }
    }
}

impl Calm {
    /// Ends an epoch; returns the epochs since the last decision if the next one is due. One that is made
    /// `by_regions`, whose accesses are those of the last epoch alone, is due each epoch.
    pub fn end_epoch(&mut self, by_regions: bool) -> Option<u32> {
        self.passed += 1;
        let is_due = by_regions || self.passed >= self.interval;
        is_due.then(|| std::mem::take(&mut self.passed))
    }

    /// Records a decision to move this many of the fastest tier's pages.
    pub fn decided(&mut self, moved: u64, pages: u64) {
        let is_calm = moved.saturating_mul(CALM) < pages;
        self.interval = if is_calm { (self.interval * 2).min(EPOCHS_MAX) } else { 1 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_become_rare_while_nothing_moves_and_frequent_at_once() {
        let mut calm = Calm::default();
        let mut decided = Vec::new();
        for epoch in 0..30 {
            if let Some(passed) = calm.end_epoch(false) {
                decided.push((epoch, passed));
                let moved = if epoch == 11 { 100 } else { 5 };
                calm.decided(moved, 10_000);
            }
        }
        let expected = [(0, 1), (2, 2), (6, 4), (10, 4), (14, 4), (18, 4), (22, 4), (26, 4)];
        assert_eq!(decided, expected);
        calm.decided(100, 10_000);
        assert_eq!((calm.end_epoch(false), calm.end_epoch(true)), (Some(4), Some(1)));
        assert_eq!((calm.end_epoch(true), calm.end_epoch(true)), (Some(1), Some(1)));
    }
}

//! Rests between decisions by samples: they take processor time, too. Rests last while next to nothing moves,
//! and until the budget has made up for what decisions took beyond a part of what their plans save. That may
//! take long, unless more accesses than before go to slow memory.

use serde::{Deserialize, Serialize};

/// Most epochs from one decision to the next.
const EPOCHS_MAX: u32 = 4;

/// Most epochs for which a decision that took more than the budget is made up for; and while the share of
/// accesses that go to slow memory is larger than it was by `WORSE`, and by more than chance.
const REST_MAX: u32 = 32;
const REST_MAX_IF_WORSE: u32 = 8;
const WORSE: f64 = 0.05;

/// Most standard deviations between shares of slow memory that are taken for chance; the deviation of a share
/// of n samples is at most 1 / (2 sqrt n).
const DEVIATIONS: f64 = 4.0;

/// Share of the waiting that a plan saves which its decision may take beyond the budget.
const SAVED_SHARE: f64 = 0.5;

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
    /// Processor time in ns that the policy took beyond its budget; below 0: what is left of it.
    debt_ns: f64,
    /// Samples, the accesses that they stand for, and those of slow memory: of an epoch, and half as much of
    /// each one before it.
    samples: f64,
    accesses: f64,
    slow: f64,
    /// Least share of slow memory since the last decision.
    slow_share: f64,
}

impl Default for Calm {
    fn default() -> Calm {
        Calm { interval: 1, passed: 0, debt_ns: 0.0, samples: 0.0, accesses: 0.0, slow: 0.0, slow_share: 1.0 }
    }
}

impl Calm {
    /// Ends an epoch, of which the policy took `spent_ns` of `budget_ns`; returns the epochs since the last
    /// decision if the next one is due. One that is made `by_regions`, whose accesses are those of the last
    /// epoch alone, is due each epoch.
    pub fn end_epoch(&mut self, by_regions: bool, spent_ns: f64, budget_ns: f64) -> Option<u32> {
        self.passed += 1;
        self.debt_ns = (self.debt_ns + spent_ns - budget_ns).max(-budget_ns);
        let rest_max = if self.end_samples() { REST_MAX_IF_WORSE } else { REST_MAX };
        let is_made_up_for = self.debt_ns <= 0.0 || self.passed >= rest_max;
        let is_due = by_regions || (self.passed >= self.interval && is_made_up_for);
        is_due.then(|| {
            self.slow_share = 1.0;
            std::mem::take(&mut self.passed)
        })
    }

    /// Adds accesses of a node on the fastest tier, or of a slower one.
    pub fn add(&mut self, is_fast: bool, accesses: f64) {
        self.samples += 1.0;
        self.accesses += accesses;
        if !is_fast {
            self.slow += accesses;
        }
    }

    /// Ends an epoch's samples; returns whether more accesses than before go to slow memory.
    fn end_samples(&mut self) -> bool {
        if self.samples < 1.0 {
            return false;
        }
        let share = self.slow / self.accesses;
        self.slow_share = self.slow_share.min(share);
        let is_worse = share > self.slow_share + WORSE.max(DEVIATIONS / (2.0 * self.samples.sqrt()));
        for sum in [&mut self.samples, &mut self.accesses, &mut self.slow] {
            *sum /= 2.0;
        }
        is_worse
    }

    /// Records a decision to move this many of the fastest tier's pages, which saves waiting.
    pub fn decided(&mut self, moved: u64, pages: u64, saved_ns: f64) {
        self.debt_ns -= SAVED_SHARE * saved_ns.max(0.0);
        let is_calm = moved.saturating_mul(CALM) < pages;
        self.interval = if is_calm { (self.interval * 2).min(EPOCHS_MAX) } else { 1 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: (f64, f64) = (0.0, 1.0);

    fn end_epoch(calm: &mut Calm, by_regions: bool, (spent_ns, budget_ns): (f64, f64)) -> Option<u32> {
        calm.end_epoch(by_regions, spent_ns, budget_ns)
    }

    #[test]
    fn decisions_become_rare_while_nothing_moves_and_frequent_at_once() {
        let mut calm = Calm::default();
        let mut decided = Vec::new();
        for epoch in 0..30 {
            if let Some(passed) = end_epoch(&mut calm, false, FREE) {
                decided.push((epoch, passed));
                let moved = if epoch == 11 { 100 } else { 5 };
                calm.decided(moved, 10_000, 0.0);
            }
        }
        let expected = [(0, 1), (2, 2), (6, 4), (10, 4), (14, 4), (18, 4), (22, 4), (26, 4)];
        assert_eq!(decided, expected);
        calm.decided(100, 10_000, 0.0);
        assert_eq!((end_epoch(&mut calm, false, FREE), end_epoch(&mut calm, true, FREE)), (Some(4), Some(1)));
        assert_eq!((end_epoch(&mut calm, true, FREE), end_epoch(&mut calm, true, FREE)), (Some(1), Some(1)));
    }

    #[test]
    fn decisions_keep_to_the_budget() {
        // Each decision takes this many epochs' budget, and an epoch's events a tenth of one.
        for (cost, every) in [(0.5, 1), (2.0, 2), (5.0, 5), (1000.0, 32)] {
            let mut calm = Calm::default();
            let (mut last, mut spent) = (0, 0.1);
            let mut intervals = Vec::new();
            for epoch in 1..200 {
                let is_due = end_epoch(&mut calm, false, (spent, 1.0)).is_some();
                spent = 0.1;
                if is_due {
                    intervals.push(epoch - last);
                    (last, spent) = (epoch, spent + cost);
                    calm.decided(1000, 1000, 0.0);
                }
            }
            let later = &intervals[3..];
            assert!(
                later.iter().all(|&passed| (every..=every + 1).contains(&passed)),
                "{cost}: {intervals:?}"
            );
            assert!(end_epoch(&mut calm, true, (1000.0, 1.0)).is_some(), "by regions");
        }
    }

    #[test]
    fn rest_is_short_once_more_accesses_go_to_slow_memory() {
        // Of each ten samples, these many are of slow memory, first and later.
        for (samples, slow, expected) in
            [(1000, (3, 3), 32), (1000, (3, 5), 8), (1000, (3, 1), 32), (20, (3, 5), 32), (0, (3, 5), 32)]
        {
            let mut calm = Calm::default();
            let mut decided = Vec::new();
            for epoch in 0..60 {
                let slow = if epoch < 3 { slow.0 } else { slow.1 };
                (0..samples).for_each(|sample| calm.add(sample % 10 >= slow, 64.0));
                let spent = if epoch == 1 { 1e6 } else { 0.0 };
                if end_epoch(&mut calm, false, (spent, 1.0)).is_some() {
                    decided.push(epoch);
                    calm.decided(1000, 1000, 0.0);
                }
            }
            assert_eq!(decided[..2], [0, expected], "{samples} samples: {slow:?}");
        }
    }

    #[test]
    fn decisions_whose_plans_save_more_need_no_rest() {
        for (saved_ns, expected) in [(19.0, Some(1)), (10.0, None), (-1.0, None)] {
            let mut calm = Calm::default();
            assert_eq!(end_epoch(&mut calm, false, FREE), Some(1));
            calm.decided(1000, 1000, saved_ns);
            assert_eq!(end_epoch(&mut calm, false, (10.0, 1.0)), expected, "{saved_ns}");
        }
    }
}

//! Which pages Linux promotes: the hot ones, so many that promotion stays within its rate.
//!
//! ```text
//! hint-fault latency < threshold ──▶ candidate ──▶ fewer than the rate since the window began: promoted
//!         ▲                             │
//!         └── once a period: candidates above 110 % of the rate: a step less, below 90 %: a step more
//! ```
//!
//! Linux keeps this state for each target node (`struct pglist_data`, `nbp_*`).

use memtide_core::Time;
use serde::{Deserialize, Serialize};

/// Steps from zero to twice the reference threshold (`NUMA_MIGRATION_ADJUST_STEPS`).
const STEPS: u64 = 16;

/// Constants of promotion to a node, in the host's time and pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The threshold to start with, and half the largest one.
    pub reference: Time,
    /// Window of the rate limit, and its base pages.
    pub window: Time,
    pub window_pages: u64,
    /// Time between two adjustments of the threshold, and the base pages that the rate allows in it.
    pub period: Time,
    pub period_pages: u64,
}

/// Candidates for promotion to a node, in base pages, and the resulting threshold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Candidates {
    /// `None`: the reference.
    threshold: Option<Time>,
    pages: u64,
    window_start: Time,
    pages_at_window: u64,
    period_start: Time,
    pages_at_period: u64,
}

impl Candidates {
    /// The current threshold.
    pub(super) fn threshold(&self, limits: &Limits) -> Time {
        self.threshold.unwrap_or(limits.reference)
    }

    /// Starts again with the reference threshold: the node has enough free memory.
    pub(super) fn reset_threshold(&mut self) {
        self.threshold = None;
    }

    /// Whether to promote a page that was accessed this long after it was unmapped.
    pub(super) fn admits(&mut self, limits: &Limits, now: Time, latency: Time, pages: u64) -> bool {
        self.adjust(limits, now);
        latency < self.threshold(limits) && self.within_rate(limits, now, pages)
    }

    /// `numa_promotion_adjust_threshold` of Linux 6.12's kernel/sched/fair.c.
    fn adjust(&mut self, limits: &Limits, now: Time) {
        if now.since(self.period_start) <= limits.period {
            return;
        }
        let found = u128::from(self.pages.saturating_sub(self.pages_at_period)) * 10;
        let expected = u128::from(limits.period_pages);
        let step = Time(limits.reference.0 * 2 / STEPS);
        let threshold = self.threshold(limits);
        self.threshold = Some(if found > expected * 11 {
            threshold.since(step).max(step)
        } else if found < expected * 9 {
            (threshold + step).min(limits.reference * 2)
        } else {
            threshold
        });
        (self.period_start, self.pages_at_period) = (now, self.pages);
    }

    /// `numa_promotion_rate_limit` of Linux 6.12's kernel/sched/fair.c: the candidate that opens a window is
    /// counted to the one before.
    fn within_rate(&mut self, limits: &Limits, now: Time, pages: u64) -> bool {
        self.pages = self.pages.saturating_add(pages);
        if now.since(self.window_start) > limits.window {
            (self.window_start, self.pages_at_window) = (now, self.pages);
        }
        self.pages.saturating_sub(self.pages_at_window) < limits.window_pages
    }
}

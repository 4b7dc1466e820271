//! Work that is repeated as often as a share of a core allows.
//!
//! After work that took `t`, the next one is due `t / share` later, so that the work takes at most the share:
//!
//! ```text
//! |t|        t / share        |t|   t / share   |t|
//! ```

use std::time::Duration;

/// Longest rest after work, so that what became wrong meanwhile is seen at last.
const REST_MAX: Duration = Duration::from_secs(60);

/// Keeps work to a share of a core.
#[derive(Debug, Default)]
pub struct CpuBudget {
    /// The share; `None`: any.
    share: Option<f64>,
    /// When the next work is due.
    due: Duration,
}

impl CpuBudget {
    /// Keeps to this share of a core, above 0.
    pub fn share(share: f64) -> CpuBudget {
        CpuBudget { share: Some(share), ..CpuBudget::default() }
    }

    /// Whether work is due.
    pub fn is_due(&self, now: Duration) -> bool {
        now >= self.due
    }

    /// Counts processor time that work takes now.
    pub fn spend(&mut self, now: Duration, time: Duration) {
        if let Some(share) = self.share {
            let rest = (time.as_secs_f64() / share).min(REST_MAX.as_secs_f64());
            self.due = now.saturating_add(Duration::from_secs_f64(rest));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_at_most_its_share_of_a_core() {
        let mut budget = CpuBudget::share(0.01);
        let mut spent = Duration::ZERO;
        for ms in (0..10_000).map(|step| step * 10) {
            let now = Duration::from_millis(ms);
            if budget.is_due(now) {
                let cost = Duration::from_micros(300 + ms % 700);
                budget.spend(now, cost);
                spent += cost;
            }
        }
        let share = spent.as_secs_f64() / 100.0;
        assert!((0.008..=0.0101).contains(&share), "{share}");
    }

    #[test]
    fn rest_has_a_limit_at_any_time() {
        for now in [Duration::ZERO, Duration::from_secs(1 << 40), Duration::MAX] {
            let mut budget = CpuBudget::share(0.001);
            budget.spend(now, Duration::from_secs(100));
            assert!(now == Duration::MAX || !budget.is_due(now), "{now:?}");
            assert!(budget.is_due(now.saturating_add(REST_MAX)), "{now:?}");
        }
    }

    #[test]
    fn work_without_a_budget_is_always_due() {
        let mut budget = CpuBudget::default();
        budget.spend(Duration::ZERO, Duration::from_secs(1));
        assert!(budget.is_due(Duration::ZERO));
    }
}

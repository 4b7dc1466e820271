//! Work that is repeated as often as a share of a core allows.

use std::time::Duration;

use memtide_core::Time;

/// Keeps work to a share of a core.
#[derive(Debug, Default)]
pub struct Pace {
    /// The share; `None`: any.
    share: Option<f64>,
    /// When the work so far is made up for.
    due: Time,
}

impl Pace {
    /// Keeps to this share of a core, above 0.
    pub fn share(share: f64) -> Pace {
        Pace { share: Some(share), ..Pace::default() }
    }

    /// Whether work may have to wait.
    pub fn is_limited(&self) -> bool {
        self.share.is_some()
    }

    /// Whether work that can wait may be done now: what was spent before is made up for.
    pub fn is_due(&self, now: Time) -> bool {
        now >= self.due
    }

    /// Counts processor time that work takes now.
    pub fn spend(&mut self, now: Time, time: Duration) {
        if let Some(share) = self.share {
            self.due = self.due.max(now) + Time::from_ns(time.as_nanos() as f64 / share);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_its_share_of_a_core() {
        let mut pace = Pace::share(0.01);
        let mut spent = Duration::ZERO;
        for ms in (0..10_000).map(|step| step * 10) {
            let now = Time::from_ms(ms);
            if pace.is_due(now) {
                let cost = Duration::from_micros(300 + ms % 700);
                pace.spend(now, cost);
                spent += cost;
            }
        }
        let share = spent.as_secs_f64() / 100.0;
        assert!((0.008..=0.0101).contains(&share), "{share}");
    }

    #[test]
    fn work_without_a_budget_is_always_due() {
        let mut pace = Pace::default();
        pace.spend(Time::ZERO, Duration::from_secs(1));
        assert!(pace.is_due(Time::ZERO));
    }
}

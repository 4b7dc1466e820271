//! The daemon's times of samples that another clock timed.

use memtide_core::Time;

/// A clock that began before the daemon's, perhaps longer ago than a [`Time`] counts, and goes as fast.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clock {
    /// How far the daemon's is behind it, in ns, as far as is known.
    behind: u64,
}

impl Clock {
    /// Learns that it showed this time, in ns, no later than the daemon's shows `now`.
    pub fn see(&mut self, ns: Option<u64>, now: Time) {
        if let Some(ns) = ns {
            self.behind = self.behind.max(ns.saturating_sub(now.as_ns() as u64));
        }
    }

    /// The daemon's time when it showed this one, in ns.
    pub fn own(&self, ns: u64) -> Time {
        Time::from_ns(ns.saturating_sub(self.behind) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_not_in_the_future_and_keep_their_distances() {
        const YEAR: u64 = 31_557_600_000_000_000;
        for begun in [0, YEAR, 100 * YEAR] {
            let mut clock = Clock::default();
            for (ns, now) in [(5_000_000_000_u64, 400), (5_600_000_000, 900), (6_000_000_000, 1400)] {
                clock.see(Some(begun + ns), Time::from_ms(now));
                assert!(clock.own(begun + ns) <= Time::from_ms(now));
            }
            clock.see(None, Time::ZERO);
            let own = |ns| clock.own(begun + ns);
            assert_eq!(own(5_700_000_000), Time::from_ms(1000), "as of the reading that took least time");
            assert_eq!(own(5_800_000_000).since(own(5_700_000_000)), Time::from_ms(100));
        }
    }
}

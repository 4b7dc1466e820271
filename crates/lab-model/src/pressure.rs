//! A node's recent utilisation, from which its latency under load follows.
//!
//! ```text
//!    used time by bucket of 20 us                       at
//!  ..|####|####|####|####|####|####|####|####|####|####|    |    |    |    |  |
//!    '------------------ 200 us -----------------------'----- 100 us -----'
//! ```
//!
//! Virtual CPUs run in slices, one after the other: a CPU that is ahead of the others meets none of their
//! requests of the same time. So utilisation is measured over an interval that all of them have left.

use memtide_core::Time;

use crate::buckets::FRACTION;

/// Length of a bucket in ps.
const BUCKET_PS: u64 = 20_000_000;

/// Buckets before the present one that are left out: longer than virtual CPUs are apart, about 80 us.
const LAG: u64 = 5;

/// Buckets measured.
const WINDOW: u64 = 10;

/// Buckets kept.
const KEPT: usize = 32;

/// Time used by bucket.
#[derive(Clone, Debug)]
pub struct Pressure {
    /// Bucket number of each slot, and its used time in 2^-16 ps.
    ring: [(u64, u64); KEPT],
    /// The bucket of the last question, and the answer.
    last: (u64, f64),
}

impl Pressure {
    /// Of an idle node.
    pub fn new() -> Pressure {
        Pressure { ring: [(0, 0); KEPT], last: (0, 0.0) }
    }

    /// Counts `service` (2^-16 ps) as used at `at`.
    #[inline]
    pub fn count(&mut self, at: Time, service: u64) {
        let number = at.0 / BUCKET_PS;
        let slot = &mut self.ring[number as usize % KEPT];
        if slot.0 < number {
            *slot = (number, 0);
        }
        if slot.0 == number {
            slot.1 += service;
        }
    }

    /// Share of time used, 0 to 1, in the 200 us that ended 100 us before `at`'s bucket.
    #[inline]
    pub fn load(&mut self, at: Time) -> f64 {
        let number = at.0 / BUCKET_PS;
        if self.last.0 != number {
            self.last = (number, self.measure(number));
        }
        self.last.1
    }

    fn measure(&self, present: u64) -> f64 {
        let end = present.saturating_sub(LAG);
        let used: u64 = (end.saturating_sub(WINDOW)..end).map(|number| self.used(number)).sum();
        (used as f64 / (WINDOW * (BUCKET_PS << FRACTION)) as f64).min(1.0)
    }

    fn used(&self, number: u64) -> u64 {
        let (held, used) = self.ring[number as usize % KEPT];
        if held == number { used } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: u64 = 1000 << FRACTION;

    /// Counts a line of 1 ns every 4 ns between two times in us.
    fn count(pressure: &mut Pressure, from: u64, to: u64) {
        (from * 250..to * 250).for_each(|n| pressure.count(Time(n * 4000), LINE));
    }

    #[test]
    fn load_is_share_of_used_time() {
        let mut pressure = Pressure::new();
        count(&mut pressure, 0, 1000);
        assert_eq!(pressure.load(Time::from_us(1000)), 0.25);
        assert_eq!(pressure.load(Time::from_us(1120)), 0.225, "one bucket of ten later than the last line");
        assert_eq!(pressure.load(Time::from_us(1300)), 0.0);
    }

    #[test]
    fn requests_of_cpu_behind_count() {
        let mut pressure = Pressure::new();
        count(&mut pressure, 920, 1000);
        count(&mut pressure, 0, 920);
        assert_eq!(pressure.load(Time::from_us(1000)), 0.25);
        count(&mut pressure, 0, 10);
        assert_eq!(pressure.load(Time::from_us(1020)), 0.25, "too late to count");
    }
}

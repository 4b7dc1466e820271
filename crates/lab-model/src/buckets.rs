//! A server's time, divided into buckets.
//!
//! ```text
//!            0.5 us   full     full     half
//!          |........|########|########|####....|........|
//!                     ^ at              ^ begins here: the first time left from `at` on
//! ```
//!
//! A server that handles one line at a time, such as a node's bus or a direction of a link, has a queue. But
//! virtual CPUs run in slices, one after the other, so requests arrive out of order: in a queue, a request of
//! a later slice would wait for the whole slice before it, although both are concurrent. So each bucket of
//! 0.5 us only counts its used time, and a request takes its service time from the first buckets with time
//! left, starting with its own.
//!
//! Invariants: a bucket serves no more than its length; no request starts before its time; the rest of a
//! full bucket continues in the next ones. Order inside a bucket is lost: a request waits up to 0.5 us too
//! short or too long. Buckets more than 2 ms before the newest are dropped; slices are far shorter.

use memtide_core::Time;

/// Length of a bucket in ps: short compared to a time slice of a virtual CPU, long compared to a line.
const BUCKET_PS: u64 = 500_000;

/// The same in the unit of service times.
const BUCKET: u64 = BUCKET_PS << FRACTION;

/// Number of buckets kept: 2 ms.
const BUCKETS: usize = 4096;

/// Fractional bits of a picosecond.
pub const FRACTION: u32 = 16;

/// A server that handles one line at a time, such as a memory node's bus or a direction of a link.
#[derive(Clone, Debug)]
pub struct Buckets {
    /// Bucket number of each slot, and its used time in 2^-16 ps.
    ring: Box<[(u64, u64)]>,
    /// Buckets from the first to before the second were found full.
    full: (u64, u64),
}

impl Buckets {
    /// An idle server.
    pub fn new() -> Buckets {
        Buckets { ring: vec![(0, 0); BUCKETS].into(), full: (0, 0) }
    }

    /// Service time of a line at a rate, in the unit of [`Buckets::take`].
    pub fn service(mbps: f64) -> u64 {
        let ps = memtide_core::LINE_BYTES as f64 * 1e6 / mbps;
        (libm::round(ps * f64::from(1u32 << FRACTION)) as u64).max(1)
    }

    /// Takes `service` (2^-16 ps) from the first bucket with time left; returns the start time, `at` or
    /// later.
    #[inline]
    pub fn take(&mut self, at: Time, service: u64) -> Time {
        let (number, begin) = self.find(at);
        self.add(number, service);
        begin
    }

    /// Start time of a request with negligible service time, `at` or later.
    #[inline]
    pub fn next_free(&mut self, at: Time) -> Time {
        self.find(at).1
    }

    /// The first bucket with time left, from that of `at` on, and the start time of a request in it.
    #[inline]
    fn find(&mut self, at: Time) -> (u64, Time) {
        let wanted = at.0 / BUCKET_PS;
        let first = if (self.full.0..self.full.1).contains(&wanted) { self.full.1 } else { wanted };
        let mut number = first;
        while self.used(number) >= BUCKET {
            number += 1;
        }
        if number > first {
            self.full = (first.min(self.full_start(wanted)), number);
        }
        let begin = Time(number * BUCKET_PS + (self.used(number) >> FRACTION));
        (number, if number == wanted { at } else { begin })
    }

    /// Takes time from a bucket, and the rest from the next ones.
    #[inline]
    fn add(&mut self, number: u64, service: u64) {
        let mut left = service;
        let mut number = number;
        while left > 0 {
            let used = self.used_mut(number);
            let part = left.min(BUCKET.saturating_sub(*used));
            *used += part;
            left -= part;
            number += 1;
        }
    }

    fn full_start(&self, wanted: u64) -> u64 {
        if (self.full.0..=self.full.1).contains(&wanted) { self.full.0 } else { wanted }
    }

    fn used_mut(&mut self, number: u64) -> &mut u64 {
        let place = &mut self.ring[number as usize % BUCKETS];
        if place.0 != number {
            *place = (number, 0);
        }
        &mut place.1
    }

    fn used(&self, number: u64) -> u64 {
        let place = self.ring[number as usize % BUCKETS];
        if place.0 == number { place.1 } else { 0 }
    }
}

impl Default for Buckets {
    fn default() -> Self {
        Buckets::new()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 64 GB/s: a line takes 1 ns, a bucket holds 500.
    const MBPS: f64 = 64_000.0;

    #[test]
    fn idle_server_starts_at_once_and_busy_server_keeps_rate() {
        let mut server = Buckets::new();
        let line = Buckets::service(MBPS);
        assert_eq!(server.take(Time(7_777), line), Time(7_777));
        let last = (1..5000).map(|_| server.take(Time(7_777), line)).max();
        assert_eq!(last, Some(Time(4_999_000)));
    }

    #[test]
    fn later_slice_does_not_delay_earlier_one() {
        let mut server = Buckets::new();
        let line = Buckets::service(MBPS);
        for at in 0..1000 {
            server.take(Time(20_000_000 + at * 1000), line);
        }
        assert_eq!(server.take(Time(3_000_000), line), Time(3_000_000));
    }

    /// 2^48 ps are 281 s.
    #[test]
    fn rate_holds_after_minutes() {
        for start in [Time::ZERO, Time(300_000_000_000_000), Time(1_000_000_000_000_000_000)] {
            let mut server = Buckets::new();
            let line = Buckets::service(MBPS);
            let last = (0..5000).map(|_| server.take(start, line)).max().expect("a line");
            assert_eq!(last.since(start), Time(4_999_000), "from {start}");
        }
    }

    #[test]
    fn service_time_may_exceed_bucket() {
        let mut server = Buckets::new();
        let line = Buckets::service(8.0);
        let begins: Vec<f64> = (0..5).map(|_| server.take(Time::ZERO, line).as_ns()).collect();
        assert_eq!(begins, [0.0, 8000.0, 16_000.0, 24_000.0, 32_000.0]);
    }

    proptest! {
        #[test]
        fn no_request_is_early_and_no_interval_is_oversubscribed(
            times in proptest::collection::vec((0u64..5_000_000, 1u64..400), 1..60),
        ) {
            let mut server = Buckets::new();
            let line = Buckets::service(MBPS);
            let mut begins = Vec::new();
            for (at, lines) in times {
                for _ in 0..lines {
                    let begin = server.take(Time(at), line);
                    prop_assert!(begin.0 >= at);
                    begins.push(begin.0 / 500_000);
                }
            }
            begins.sort_unstable();
            prop_assert!(begins.chunk_by(|a, b| a == b).all(|bucket| bucket.len() <= 500));
        }
    }
}

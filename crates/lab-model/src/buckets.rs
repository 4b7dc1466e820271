//! A server's time, shared out in buckets: a queue whose requests come in any order of time.
//!
//! Virtual CPUs run one after another, in slices of some 20 us, so that requests of one slice come after those of another but are
//! of the same simulated time. A queue ("the server is free from t on") would make the second slice wait for all of the first.
//! Here time is cut into buckets of 500 ns, and a request takes its service time from the first bucket with some left, from its
//! own on:
//!
//! ```text
//! time used   full  full  full  70 %   0 %   0 %        take(at, service): begins where the 70 % end,
//!           |#####|#####|#####|###..|.....|.....|       and is waited for from `at` until there
//!                ^at          ^first with time left
//!           `-- full: (first, end) --'                  skipped in one step by the next request
//! ```
//!
//! Invariants: no bucket has more than its length taken by [`Buckets::take`]; a place of the ring is of the bucket whose number it
//! has, and any other number in it means an empty bucket; all buckets of `full` are full.
//!
//! Why so: within a bucket requests do not meet, so that waits are exact to a bucket's length, which is short beside a slice;
//! and what matters, that no more is served than the bandwidth allows, holds in each bucket whatever the order.

use memtide_core::Time;

/// Length of a bucket: short beside a time slice of a virtual CPU, long beside a line.
const BUCKET: u64 = 500_000 << FRACTION;

/// Buckets that are remembered: 2 ms.
const BUCKETS: usize = 4096;

/// Buckets over which utilisation is measured: 5 us.
const WINDOW: u64 = 10;

/// Bits of a picosecond's fraction.
const FRACTION: u32 = 16;

/// Something that serves one line at a time, such as a memory node's bus or a direction of a link.
///
/// Requests come in any order of time, since virtual CPUs run in slices: a queue would let a slice that is simulated later
/// wait for all of the one before. So time is divided into buckets, and a request takes its service time from the first
/// bucket that has some left, from its own on.
#[derive(Clone, Debug)]
pub struct Buckets {
    /// Number of the bucket in each place, and the time used of it, in 2^-16 ps.
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

    /// Takes `service` (2^-16 ps) from the first bucket that has some left; says when it begins, at `at` or later.
    #[inline]
    pub fn take(&mut self, at: Time, service: u64) -> Time {
        let (number, begin) = self.find(at);
        self.add(number, service);
        begin
    }

    /// When something that needs hardly any time begins, at `at` or later.
    #[inline]
    pub fn next_free(&mut self, at: Time) -> Time {
        self.find(at).1
    }

    /// The first bucket that has time left, from that of `at` on, and when what takes some of it begins.
    #[inline]
    fn find(&mut self, at: Time) -> (u64, Time) {
        let wanted = (at.0 << FRACTION) / BUCKET;
        let first = if (self.full.0..self.full.1).contains(&wanted) { self.full.1 } else { wanted };
        let mut number = first;
        while self.used(number) >= BUCKET {
            number += 1;
        }
        debug_assert!(number - wanted < BUCKETS as u64, "a wait longer than what is remembered");
        if number > first {
            self.full = (first.min(self.full_start(wanted)), number);
        }
        let begin = Time((number * BUCKET + self.used(number)) >> FRACTION);
        (number, if number == wanted { at } else { begin })
    }

    /// Counts time as taken at `at`, however much was before: for a measure of load that nobody waits for.
    #[inline]
    pub fn count(&mut self, at: Time, service: u64) {
        let number = (at.0 << FRACTION) / BUCKET;
        *self.used_mut(number) += service;
    }

    /// Takes time from a bucket, and what it has not from the next ones.
    #[inline]
    fn add(&mut self, number: u64, service: u64) {
        let mut left = service;
        let mut number = number;
        debug_assert!(self.used(number) < BUCKET || service == 0, "a bucket with no time left");
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

    /// Share of the 5 us up to `at` that was taken, 0 to 1. The present bucket counts as far as it has come.
    #[inline]
    pub fn load(&self, at: Time) -> f64 {
        let now = (at.0 << FRACTION) / BUCKET;
        let into = (at.0 << FRACTION) % BUCKET;
        let before: u64 = (1..=WINDOW.min(now)).map(|back| self.used(now - back)).sum();
        let present = self.used(now).min(into);
        ((before + present) as f64 / (WINDOW * BUCKET + into) as f64).min(1.0)
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
    fn an_idle_server_begins_at_once_and_a_busy_one_keeps_its_rate() {
        let mut server = Buckets::new();
        let line = Buckets::service(MBPS);
        assert_eq!(server.take(Time(7_777), line), Time(7_777));
        let last = (1..5000).map(|_| server.take(Time(7_777), line)).max();
        assert_eq!(last, Some(Time(4_999_000)));
    }

    #[test]
    fn a_later_slice_does_not_hold_an_earlier_one_up() {
        let mut server = Buckets::new();
        let line = Buckets::service(MBPS);
        for at in 0..1000 {
            server.take(Time(20_000_000 + at * 1000), line);
        }
        assert_eq!(server.take(Time(3_000_000), line), Time(3_000_000));
    }

    #[test]
    fn load_is_the_share_of_time_taken() {
        let mut server = Buckets::new();
        let line = Buckets::service(MBPS);
        for n in 0..20_000 {
            server.take(Time(n * 4000), line);
        }
        let load = server.load(Time(80_000_000));
        assert!((load - 0.25).abs() < 0.01, "{load}");
        assert_eq!(server.load(Time(200_000_000)), 0.0);
    }

    #[test]
    fn a_line_may_take_longer_than_a_bucket() {
        let mut server = Buckets::new();
        let line = Buckets::service(8.0);
        let begins: Vec<f64> = (0..5).map(|_| server.take(Time::ZERO, line).as_ns()).collect();
        assert_eq!(begins, [0.0, 8000.0, 16_000.0, 24_000.0, 32_000.0]);
    }

    proptest! {
        #[test]
        fn no_request_is_early_and_no_stretch_serves_more_than_it_can(
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

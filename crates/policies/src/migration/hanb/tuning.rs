//! Equations 6 to 8, and the length of the queue (hinuma sections III-C and III-D).

use memtide_core::Time;
use memtide_core::policy::{LlcCounts, View};
use serde::{Deserialize, Serialize};

/// The sampling interval stays within 1/N and N times the configured one.
const INTERVAL_RANGE: u64 = 8;

/// Parts of a relative change.
const MILLION: i128 = 1_000_000;

/// Length of the queue, L = X / (100 t_p) * N with t_p in microseconds: at most all `pages`, at least one.
pub(super) fn queue_length(penalty_percent: u32, page_ns: u32, pages: u64) -> usize {
    let length = u128::from(penalty_percent) * 10 * u128::from(pages) / u128::from(page_ns.max(1));
    length.clamp(1, u128::from(pages.max(1))) as usize
}

/// The sampling interval: equation 6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Interval {
    now: Time,
    /// Counts at the end of the last interval.
    counts: Option<LlcCounts>,
    /// Miss rate of the last interval, in parts per million.
    rate: Option<u64>,
}

impl Interval {
    pub(super) fn new(first: Time) -> Interval {
        Interval { now: first, counts: None, rate: None }
    }

    /// The length of the last interval.
    pub(super) fn length(&self) -> Time {
        self.now
    }

    /// The next interval. The configured one bounds it, as equation 6 gives zero or less once the miss rate
    /// has doubled. An interval without accesses changes nothing.
    pub(super) fn next(&mut self, counts: Option<LlcCounts>, configured: Time) -> Time {
        let before = std::mem::replace(&mut self.counts, counts);
        let Some(rate) = counts.zip(before).and_then(|(now, before)| miss_rate(now, before)) else {
            return self.now;
        };
        if let Some(last) = self.rate.replace(rate).filter(|last| *last > 0) {
            // 1 - (rate - last) / last
            let factor = 2 * MILLION - MILLION * i128::from(rate) / i128::from(last);
            let next = i128::from(self.now.0) * factor / MILLION;
            let least = i128::from((configured.0 / INTERVAL_RANGE).max(1));
            let most = i128::from(configured.0.saturating_mul(INTERVAL_RANGE));
            self.now = Time(next.clamp(least, most) as u64);
        }
        self.now
    }

    /// Whether a saved interval is possible.
    pub(super) fn is_within(&self, configured: Time) -> bool {
        let (least, most) =
            ((configured.0 / INTERVAL_RANGE).max(1), configured.0.saturating_mul(INTERVAL_RANGE));
        (least..=most).contains(&self.now.0) && self.rate.is_none_or(|rate| i128::from(rate) <= MILLION)
    }
}

/// Misses per million accesses between two counts.
fn miss_rate(now: LlcCounts, before: LlcCounts) -> Option<u64> {
    let (accesses, misses) =
        (now.accesses.checked_sub(before.accesses)?, now.misses.checked_sub(before.misses)?);
    let rate = u128::from(misses) * MILLION as u128 / u128::from((accesses > 0).then_some(accesses)?);
    Some(rate.min(MILLION as u128) as u64)
}

/// Cold pages that go down for each hot page that goes up, N: equations 7 and 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ratio {
    pub n: u32,
    /// Time and bytes of all nodes at the end of the last interval.
    counted: Option<(Time, u64)>,
    /// Bandwidth of the last interval, in bytes per second.
    bandwidth: Option<u64>,
}

impl Ratio {
    /// Symmetric.
    pub(super) fn new() -> Ratio {
        Ratio { n: 1, counted: None, bandwidth: None }
    }

    /// The next N, from 1 to `most`. A change of bandwidth below `settle_percent` is none: N settles.
    pub(super) fn next(&mut self, view: &View, settle_percent: u32, most: u32) -> u32 {
        let traffic = view.nodes.iter().filter_map(|node| node.traffic);
        let bytes =
            traffic.fold(0u64, |all, of| all.saturating_add(of.read_bytes).saturating_add(of.written_bytes));
        let before = self.counted.replace((view.time, bytes));
        let Some(bandwidth) =
            before.and_then(|(time, before)| per_second(bytes.checked_sub(before)?, view.time.since(time)))
        else {
            return self.n;
        };
        if let Some(last) = self.bandwidth.replace(bandwidth).filter(|last| *last > 0) {
            self.n = step(self.n, last, bandwidth, settle_percent).clamp(1, most);
        }
        self.n
    }
}

fn per_second(bytes: u64, time: Time) -> Option<u64> {
    let rate = u128::from(bytes) * 1_000_000_000_000 / u128::from((time.0 > 0).then_some(time.0)?);
    u64::try_from(rate).ok()
}

/// N + ceil(dB N), unless the bandwidth's change dB is small.
fn step(n: u32, last: u64, bandwidth: u64, settle_percent: u32) -> u32 {
    let change = i128::from(bandwidth) - i128::from(last);
    if change.abs() * 100 < i128::from(settle_percent) * i128::from(last) {
        return n;
    }
    let product = change * i128::from(n);
    let (floor, rest) = (product.div_euclid(last.into()), product.rem_euclid(last.into()));
    let next = i128::from(n) + floor + i128::from(rest > 0);
    next.clamp(0, i128::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use memtide_core::NodeId;
    use memtide_core::policy::Traffic;

    use super::*;
    use crate::testing::node_view;

    #[test]
    fn queue_covers_half_the_pages_by_default() {
        assert_eq!(queue_length(5, 100, 1000), 500);
        assert_eq!(queue_length(1, 100, 1000), 100);
        assert_eq!(queue_length(5, 200, 1000), 250, "twice the time per page: half the pages");
        assert_eq!(queue_length(50, 100, 1000), 1000, "never more than there are");
        assert_eq!((queue_length(1, 100_000, 10), queue_length(5, 100, 0)), (1, 1));
    }

    /// Intervals in ms after each miss rate in per cent, from 80 ms on.
    fn intervals(rates: &[u64]) -> Vec<u64> {
        let configured = Time::from_ms(80);
        let mut interval = Interval::new(configured);
        let mut counts = LlcCounts::default();
        interval.next(Some(counts), configured);
        let next = |rate: &u64| {
            counts = LlcCounts { accesses: counts.accesses + 1000, misses: counts.misses + rate * 10 };
            let next = interval.next(Some(counts), configured);
            assert!(interval.is_within(configured));
            next.0 / 1_000_000_000
        };
        rates.iter().map(next).collect()
    }

    #[test]
    fn interval_grows_as_the_miss_rate_falls_and_shrinks_as_it_rises() {
        assert_eq!(intervals(&[40, 40, 20, 30]), [80, 80, 120, 60]);
    }

    #[test]
    fn interval_is_clamped_where_equation_6_reaches_zero() {
        assert_eq!(intervals(&[10, 20]), [80, 10], "twice the rate: factor 0");
        assert_eq!(intervals(&[10, 90, 90]), [80, 10, 10], "factor -7");
        assert_eq!(intervals(&[90, 9, 9, 1, 1, 0]), [80, 152, 152, 287, 287, 574]);
        assert_eq!(intervals(&[90, 1, 1, 90, 1, 1, 1])[1..], [159, 159, 10, 19, 19, 19]);
        assert_eq!(intervals(&[0, 50, 50]), [80, 80, 80], "nothing to compare with 0");
    }

    #[test]
    fn interval_without_counts_or_accesses_stays() {
        let configured = Time::from_ms(80);
        let mut interval = Interval::new(configured);
        let idle = LlcCounts { accesses: 7, misses: 3 };
        for counts in [None, Some(idle), Some(idle), None] {
            assert_eq!(interval.next(counts, configured), configured);
        }
    }

    #[test]
    fn equation_8_steps() {
        assert_eq!(step(1, 100, 110, 5), 2, "any rise is a step up");
        assert_eq!(step(4, 100, 150, 5), 6);
        assert_eq!(step(4, 100, 160, 5), 7, "2.4 rounds up");
        assert_eq!(step(4, 100, 50, 5), 2);
        assert_eq!(step(4, 100, 60, 5), 3, "-1.6 rounds up to -1");
        assert_eq!(step(4, 100, 80, 5), 4, "-0.8 rounds up to 0");
        for bandwidth in 1..=95 {
            assert_eq!(step(1, 100, bandwidth, 5), 1, "a fall by less than all never shrinks 1");
        }
        assert_eq!(step(1, 100, 0, 5), 0, "which the ratio clamps");
        assert_eq!((step(8, 100, 104, 5), step(8, 100, 96, 5)), (8, 8), "settled");
    }

    #[test]
    fn ratio_follows_bandwidth_within_its_bounds() {
        let mut ratio = Ratio::new();
        let (mut time, mut bytes) = (Time::ZERO, 0);
        let mut next = |bandwidth: u64| {
            (time, bytes) = (time + Time::from_ms(1000), bytes + bandwidth);
            let mut node = node_view(NodeId(0), 10, 5);
            node.traffic = Some(Traffic { read_bytes: bytes / 4, written_bytes: bytes - bytes / 4 });
            ratio.next(&View { time, nodes: vec![node], ..View::default() }, 5, 4)
        };
        let steps: Vec<u32> = [100, 100, 150, 150, 300, 150, 150, 1, 0, 0, 100].map(&mut next).into();
        assert_eq!(steps, [1, 1, 2, 2, 4, 2, 2, 1, 1, 1, 1]);
    }
}

//! One direction of a link.

use std::collections::VecDeque;
use std::ops::Range;

use memtide_core::Time;

use crate::slices::OtherSlices;

/// Lines per slot.
const SLOT_LINES: u8 = 4;

/// How far before the latest line a line may still be inserted.
const HORIZON: Time = Time::from_us(8);

/// Carries one line after another.
///
/// Lines are not announced in time order: a read's data is announced as soon as its end is certain, and a
/// core that runs ahead announces its writes early. So time is divided into slots of a few lines, and a line
/// takes the first slot with space, from its own time on.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    line_time: Time,
    /// Number of the first slot of `used`.
    first: u64,
    /// Lines in each slot.
    used: VecDeque<u8>,
    /// Slots known to be full, which need no search.
    full: Range<u64>,
    latest: Time,
    others: OtherSlices<()>,
    pub lines: u64,
}

impl Lane {
    /// An idle lane that slices of a machine share.
    pub fn new(line_time: Time, slices: u16) -> Lane {
        Lane {
            line_time: line_time.max(Time(1)),
            first: 0,
            used: VecDeque::new(),
            full: 0..0,
            latest: Time::ZERO,
            others: OtherSlices::new(slices),
            lines: 0,
        }
    }

    /// Departure time of a line that is ready at `at`.
    pub fn carry(&mut self, at: Time) -> Time {
        self.lines += 1;
        if !self.others.is_none() {
            let mut others = std::mem::replace(&mut self.others, OtherSlices::new(1));
            others.take_due(at, |_, at, ()| {
                self.place(at);
            });
            others.record(at, ());
            self.others = others;
        }
        self.place(at)
    }

    /// Departure time of a line of any slice.
    fn place(&mut self, at: Time) -> Time {
        if at > self.latest {
            self.latest = at;
            self.forget_before(self.slot_of(Time(at.0.saturating_sub(HORIZON.0))));
        }
        let slot = self.first_with_space(self.slot_of(at).max(self.first));
        let index = (slot - self.first) as usize;
        let start = Time(slot * self.slot_time()) + self.line_time * u64::from(self.used[index]);
        self.used[index] += 1;
        at.max(start)
    }

    fn slot_time(&self) -> u64 {
        self.line_time.0 * u64::from(SLOT_LINES)
    }

    fn slot_of(&self, at: Time) -> u64 {
        at.0 / self.slot_time()
    }

    fn forget_before(&mut self, slot: u64) {
        if slot > self.first {
            let old = (slot - self.first).min(self.used.len() as u64) as usize;
            self.used.drain(..old);
            self.first = slot;
        }
    }

    fn first_with_space(&mut self, wanted: u64) -> u64 {
        let known = self.full.contains(&wanted);
        let mut slot = if known { self.full.end } else { wanted };
        loop {
            let index = (slot - self.first) as usize;
            if index >= self.used.len() {
                self.used.resize(index + 1, 0);
            }
            if self.used[index] < SLOT_LINES {
                break;
            }
            slot += 1;
        }
        if known {
            self.full.end = slot;
        } else if slot - wanted > self.full.end - self.full.start {
            self.full = wanted..slot;
        }
        slot
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LINE: Time = Time(1000);

    #[test]
    fn simultaneous_lines_are_serialised() {
        let mut lane = Lane::new(LINE, 1);
        let starts: Vec<u64> = (0..1000).map(|_| lane.carry(Time::ZERO).0).collect();
        assert_eq!(starts, (0..1000).map(|line| line * LINE.0).collect::<Vec<u64>>());
    }

    #[test]
    fn early_announcement_keeps_slots_for_earlier_lines() {
        let mut lane = Lane::new(LINE, 1);
        assert_eq!(lane.carry(Time(500_000)), Time(500_000));
        assert_eq!(lane.carry(Time(100_000)), Time(100_000));
    }

    /// Mean wait in ps on a lane that slices share equally and load to 80 % with Poisson processes.
    fn mean_wait_ps(slices: u16) -> f64 {
        const LINES: u32 = 100_000;
        let mut lane = Lane::new(LINE, slices);
        let mean_gap_ps = LINE.0 as f64 / 0.8 * f64::from(slices);
        let (mut state, mut at_ps, mut waited_ps) = (1u64, 0.0, 0);
        for _ in 0..LINES {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let unit = (state >> 11) as f64 / (1u64 << 53) as f64;
            at_ps -= mean_gap_ps * libm::log(1.0 - unit);
            let at = at_ps as u64;
            waited_ps += lane.carry(Time(at)).0 - at;
        }
        waited_ps as f64 / f64::from(LINES)
    }

    #[test]
    fn lines_wait_as_long_on_a_shared_lane_as_on_a_whole_one() {
        let [whole, half, sixteenth] = [1, 2, 16].map(mean_wait_ps);
        assert!(whole > 0.5 * LINE.0 as f64, "{whole}");
        for shared in [half, sixteenth] {
            assert!((shared / whole - 1.0).abs() < 0.1, "{shared}, whole lane {whole}");
        }
    }

    proptest! {
        #[test]
        fn link_never_exceeds_bandwidth_in_any_order(
            times in proptest::collection::vec((0u64..2_000_000, 1u8..20), 1..300),
        ) {
            let mut lane = Lane::new(LINE, 1);
            let mut starts = Vec::new();
            for (at, lines) in times {
                for _ in 0..lines {
                    let start = lane.carry(Time(at));
                    prop_assert!(start.0 >= at);
                    starts.push(start.0);
                }
            }
            starts.sort_unstable();
            let slack = 2 * usize::from(SLOT_LINES);
            for (n, start) in starts.iter().enumerate() {
                let later = starts.get(n + 100).copied().unwrap_or(u64::MAX);
                prop_assert!(later - start >= (100 - slack as u64) * LINE.0);
            }
        }

        #[test]
        fn busy_link_direction_has_no_gaps(
            times in proptest::collection::vec(0u64..4000, 500..1000),
        ) {
            let mut lane = Lane::new(LINE, 1);
            let last = times.iter().map(|&at| lane.carry(Time(at)).0).max();
            prop_assert!(last <= Some((times.len() as u64 + 2 * u64::from(SLOT_LINES)) * LINE.0));
        }
    }
}

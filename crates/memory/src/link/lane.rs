//! One direction of a link.

use std::collections::VecDeque;

use memtide_core::Time;

use crate::slices::OtherSlices;

/// Lines per slot.
const SLOT_LINES: u32 = 4;

/// How far before the latest line a line may still be inserted.
const HORIZON: Time = Time::from_us(8);

/// Slots after which those before the horizon are forgotten.
const FORGET_SLOTS: u64 = 4096;

/// A slot: the number of its lines, or of a full one [`SLOT_LINES`] and the number of full slots known to
/// follow it.
#[derive(Clone, Copy, Debug, Default)]
struct Slot(u32);

impl Slot {
    fn full(skip: usize) -> Slot {
        Slot(SLOT_LINES + skip as u32 - 1)
    }

    /// Slots to skip to the next that may have space; `None` if this one has.
    fn skip(&self) -> Option<usize> {
        (self.0 + 1).checked_sub(SLOT_LINES).filter(|&skip| skip > 0).map(|skip| skip as usize)
    }
}

/// Carries one line after another.
///
/// Lines are not announced in time order: a read's data is announced as soon as its end is certain, and a
/// core that runs ahead announces its writes early. So time is divided into slots of a few lines, and a line
/// takes the first slot with space, from its own time on.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    line_time: Time,
    /// Number of the first slot of `slots`.
    first: u64,
    slots: VecDeque<Slot>,
    latest: Time,
    /// When the last line departs.
    ends: Time,
    others: OtherSlices<()>,
    pub lines: u64,
}

impl Lane {
    /// An idle lane that slices of a machine share.
    pub fn new(line_time: Time, slices: u16) -> Lane {
        Lane {
            line_time: line_time.max(Time(1)),
            first: 0,
            slots: VecDeque::new(),
            latest: Time::ZERO,
            ends: Time::ZERO,
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
        self.latest = self.latest.max(at);
        let earliest = Time(self.latest.0.saturating_sub(HORIZON.0));
        let wanted = self.slot_of(at.max(earliest));
        if wanted - self.first > FORGET_SLOTS {
            self.forget_before(self.slot_of(earliest));
        }
        let slot = self.first_with_space(wanted);
        let index = (slot - self.first) as usize;
        let start = Time(slot * self.slot_time()) + self.line_time * u64::from(self.slots[index].0);
        self.slots[index].0 += 1;
        let departure = at.max(start);
        self.ends = self.ends.max(departure);
        departure
    }

    /// When no more than this many lines wait for their departure, of those known so far.
    pub fn has_at_most(&self, waiting: u32) -> Time {
        Time(self.ends.0.saturating_sub(self.line_time.0 * u64::from(waiting)))
    }

    fn slot_time(&self) -> u64 {
        self.line_time.0 * u64::from(SLOT_LINES)
    }

    fn slot_of(&self, at: Time) -> u64 {
        at.0 / self.slot_time()
    }

    fn forget_before(&mut self, slot: u64) {
        if slot > self.first {
            let old = (slot - self.first).min(self.slots.len() as u64) as usize;
            self.slots.drain(..old);
            self.first = slot;
        }
    }

    /// Full slots on the way learn how far it is, so that later searches pass them in one step.
    fn first_with_space(&mut self, wanted: u64) -> u64 {
        let start = (wanted - self.first) as usize;
        let mut found = start;
        while let Some(skip) = self.slots.get(found).and_then(Slot::skip) {
            found += skip;
        }
        if found >= self.slots.len() {
            self.slots.resize(found + 1, Slot::default());
        }
        let mut passed = start;
        while passed < found {
            let skip = self.slots[passed].skip().expect("a full slot");
            self.slots[passed] = Slot::full(found - passed);
            passed += skip;
        }
        self.first + found as u64
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
    fn lane_tells_when_few_lines_wait() {
        let mut lane = Lane::new(LINE, 1);
        assert_eq!(lane.has_at_most(3), Time::ZERO);
        (0..10).for_each(|_| _ = lane.carry(Time::ZERO));
        // The last of them departs after 9 lines' time.
        assert_eq!([0, 3, 20].map(|lines| lane.has_at_most(lines)), [Time(9000), Time(6000), Time::ZERO]);
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
        fn line_takes_the_first_slot_with_space(
            times in proptest::collection::vec(0u64..400_000, 1..1500),
        ) {
            let mut lane = Lane::new(LINE, 1);
            let mut lines = [0u64; 1000];
            for at in times {
                let slot_time = LINE.0 * u64::from(SLOT_LINES);
                let slots = (at / slot_time) as usize..;
                let has_space = |slot: &usize| lines[*slot] < u64::from(SLOT_LINES);
                let slot = slots.into_iter().find(has_space).expect("space");
                let start = slot as u64 * slot_time + lines[slot] * LINE.0;
                lines[slot] += 1;
                prop_assert_eq!(lane.carry(Time(at)).0, start.max(at));
            }
        }

        #[test]
        fn lines_before_the_horizon_take_its_first_slot_with_space(
            times in proptest::collection::vec(0u64..200_000_000, 1..300),
        ) {
            let slot_time = LINE.0 * u64::from(SLOT_LINES);
            let mut lane = Lane::new(LINE, 1);
            let mut lines = vec![0u64; 60_000];
            let mut latest = 0;
            for at in times {
                latest = latest.max(at);
                let wanted = at.max(latest.saturating_sub(HORIZON.0)) / slot_time;
                let has_space = |slot: &usize| lines[*slot] < u64::from(SLOT_LINES);
                let slot = (wanted as usize..).find(has_space).expect("space");
                let start = slot as u64 * slot_time + lines[slot] * LINE.0;
                lines[slot] += 1;
                prop_assert_eq!(lane.carry(Time(at)).0, start.max(at));
            }
        }

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
            let slack = 2 * SLOT_LINES as usize;
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

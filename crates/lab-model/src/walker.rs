//! A virtual CPU's page walker.
//!
//! Walks of accesses in program order begin in another one: the address of one may be known only once an
//! earlier miss has ended, that of the next at once. So the walker keeps its walks to come, and a walk takes
//! the first gap from its begin on that is long enough.
//!
//! Invariant: walks are in order of time, do not overlap, and end after the CPU's time when last looked at.

use std::collections::VecDeque;

use memtide_core::Time;

/// One walk at a time.
#[derive(Clone, Debug, Default)]
pub(super) struct Walker {
    /// Begin and end of each walk.
    walks: VecDeque<(Time, Time)>,
}

impl Walker {
    /// Makes a walk that begins at `from` or later, which is not before the CPU's time `now`; returns when it
    /// ends.
    pub fn walk(&mut self, now: Time, from: Time, takes: Time) -> Time {
        while self.walks.front().is_some_and(|&(_, end)| end <= now) {
            self.walks.pop_front();
        }
        let mut begin = from;
        let mut place = 0;
        for &(other, end) in &self.walks {
            if begin + takes <= other {
                break;
            }
            begin = begin.max(end);
            place += 1;
        }
        self.walks.insert(place, (begin, begin + takes));
        begin + takes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn later_walk_does_not_delay_earlier_one() {
        let mut walker = Walker::default();
        let mut walk = |from, takes| walker.walk(Time(0), Time(from), Time(takes));
        assert_eq!(walk(1000, 30), Time(1030));
        assert_eq!(walk(0, 30), Time(30), "before it");
        assert_eq!(walk(0, 30), Time(60), "one at a time");
        assert_eq!(walk(980, 30), Time(1060), "the gap is too short");
        assert_eq!(walk(970, 30), Time(1000), "and here just long enough");
    }

    proptest! {
        #[test]
        fn walks_never_overlap_and_none_begins_early(
            walks in proptest::collection::vec((0u64..50, 0u64..2000, 1u64..60), 1..100),
        ) {
            let mut walker = Walker::default();
            let (mut now, mut made) = (0, Vec::new());
            for (step, ahead, takes) in walks {
                now += step;
                let end = walker.walk(Time(now), Time(now + ahead), Time(takes)).0;
                prop_assert!(end >= now + ahead + takes);
                made.push((end - takes, end));
            }
            made.sort_unstable();
            prop_assert!(made.windows(2).all(|pair| pair[0].1 <= pair[1].0));
        }
    }
}

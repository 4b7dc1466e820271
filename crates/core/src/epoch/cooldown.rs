//! Cooldown: pages that moved recently do not move again, which prevents ping-pong.

use std::collections::BTreeMap;

use crate::ids::{NodeId, TaskId};
use crate::policy::Move;
use crate::units::{PageSize, Time};

/// Maximum number of times that a wait doubles.
const DOUBLINGS_MAX: u32 = 6;

/// Maximum number of tracked runs of pages; beyond it, the half that may move soonest is dropped.
const RUNS_MAX: usize = 1 << 17;

/// Pages that move one after the other, with equal histories, are one run if the first moved at most this
/// share of the cooldown ago. Their wait starts with the first page's move.
const SAME_MOVE_SHARE: u64 = 16;

/// The last move of each page, by runs of adjacent pages.
#[derive(Clone, Debug)]
pub(super) struct Cooldown {
    time: Time,
    /// By first page. Runs do not overlap.
    runs: BTreeMap<(TaskId, u64), Run>,
}

/// Adjacent pages with one history.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Run {
    /// The page after the last.
    end: u64,
    at: Time,
    from: NodeId,
    /// The same as `from` if the host does not allow a move.
    to: NodeId,
    returns: u32,
}

impl Cooldown {
    pub fn new(time: Time) -> Cooldown {
        Cooldown { time, runs: BTreeMap::new() }
    }

    /// Sets the wait from now on.
    pub fn set_time(&mut self, time: Time) {
        self.time = time;
    }

    fn until(&self, run: &Run) -> Time {
        run.at + Time(self.time.0 << run.returns.min(DOUBLINGS_MAX))
    }

    /// The run with the last first page before `page`.
    fn before(&self, task: TaskId, page: u64) -> Option<(u64, Run)> {
        self.runs.range((task, 0)..(task, page)).next_back().map(|(&(_, start), &run)| (start, run))
    }

    /// Whether a page may move, given the last move of any part of it.
    pub fn allows(&self, now: Time, wanted: &Move) -> bool {
        let (start, end) = extent(wanted);
        let waits = |run: &Run| run.to != wanted.to && now < self.until(run);
        let before = self.before(wanted.task, start).filter(|(_, run)| run.end > start);
        let within = self.runs.range((wanted.task, start)..(wanted.task, end));
        !before.is_some_and(|(_, run)| waits(&run)) && !within.into_iter().any(|(_, run)| waits(run))
    }

    /// Records that a page may not move. The pages after it probably may not, either: as many wait with it as
    /// are known to before it, at most 2 MiB.
    pub fn record_refused(&mut self, now: Time, wanted: &Move) {
        if self.time == Time::ZERO {
            return;
        }
        let &Move { task, from, .. } = wanted;
        let (start, end) = extent(wanted);
        let adjacent = self.before(task, start).filter(|(_, run)| run.end == start && run.from == run.to);
        let known = adjacent.map_or(0, |(first, run)| run.end - first);
        let mut reach = end.max(start + known.min(PageSize::Huge.base_pages()));
        if let Some((&(_, next), _)) = self.runs.range((task, end)..(task, reach)).next() {
            reach = next;
        }
        self.cut(task, start, end);
        self.insert(task, start, Run { end: reach, at: now, from, to: from, returns: DOUBLINGS_MAX });
    }

    /// Records a move.
    pub fn record_move(&mut self, now: Time, made: &Move) {
        if self.time == Time::ZERO {
            return;
        }
        let &Move { task, from, to, .. } = made;
        let (start, end) = extent(made);
        let returns_after = |run: Run| run.returns + u32::from(run.from == to && run.to != to);
        let returns = self.cut(task, start, end).into_iter().map(returns_after).max().unwrap_or(0);
        self.insert(task, start, Run { end, at: now, from, to, returns });
    }

    /// Adds a run of pages that have none, to the one before it if both are one move.
    fn insert(&mut self, task: TaskId, start: u64, new: Run) {
        if let Some((first, before)) = self.before(task, start)
            && before == (Run { end: start, at: before.at, ..new })
            && new.at.since(before.at).0 <= self.time.0 / SAME_MOVE_SHARE
        {
            self.runs.insert((task, first), Run { end: new.end, ..before });
            return;
        }
        if self.runs.len() >= RUNS_MAX {
            self.drop_half();
        }
        self.runs.insert((task, start), new);
    }

    /// Removes pages from all runs, and returns the runs that they were in.
    fn cut(&mut self, task: TaskId, start: u64, end: u64) -> Vec<Run> {
        let mut cut = Vec::new();
        if let Some((first, run)) = self.before(task, start).filter(|(_, run)| run.end > start) {
            self.runs.insert((task, first), Run { end: start, ..run });
            cut.push(run);
        }
        while let Some((&key, &run)) = self.runs.range((task, start)..(task, end)).next() {
            self.runs.remove(&key);
            cut.push(run);
        }
        if let Some(last) = cut.last().filter(|run| run.end > end) {
            self.runs.insert((task, end), *last);
        }
        cut
    }

    fn drop_half(&mut self) {
        let mut waits: Vec<_> = self.runs.iter().map(|(&key, run)| (self.until(run), key)).collect();
        let half = waits.len() / 2;
        waits.select_nth_unstable(half);
        for (_, key) in &waits[..half] {
            self.runs.remove(key);
        }
    }
}

/// First base page of a moved page, and the one after its last.
fn extent(wanted: &Move) -> (u64, u64) {
    let start = wanted.head().0;
    (start, start + wanted.size.base_pages())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::policy::Frame;
    use crate::units::{PageSize, Vpn};

    fn to(node: u8, page: u64) -> Move {
        let (task, page, size) = (TaskId(1), Vpn(page), PageSize::Base);
        Move { task, page, size, from: NodeId(1 - node), to: NodeId(node), wish: Frame::ANY }
    }

    fn huge_to(node: u8, page: u64) -> Move {
        Move { size: PageSize::Huge, ..to(node, page) }
    }

    #[test]
    fn moved_page_cools_down_longer_each_time() {
        let mut cooldown = Cooldown::new(Time::from_ms(10));
        let mut now = Time::ZERO;
        cooldown.record_move(now, &to(0, 5));
        assert!(cooldown.allows(now, &to(0, 5)), "the same way");
        assert!(cooldown.allows(now, &to(1, 4)) && cooldown.allows(now, &to(1, 6)), "its neighbours");
        for (node, wait_ms) in [(1, 10), (0, 20), (1, 40), (0, 80), (1, 160), (0, 320), (1, 640), (0, 640)] {
            let end = now + Time::from_ms(wait_ms);
            assert!(
                !cooldown.allows(end - Time(1), &to(node, 5)) && cooldown.allows(end, &to(node, 5)),
                "{wait_ms}"
            );
            now = end;
            cooldown.record_move(now, &to(node, 5));
        }
    }

    #[test]
    fn pages_of_one_move_are_one_run() {
        let mut cooldown = Cooldown::new(Time::from_ms(16));
        (0..1000).for_each(|page| cooldown.record_move(Time(page), &to(0, page)));
        assert_eq!(cooldown.runs.len(), 1);
        cooldown.record_move(Time::from_ms(2), &to(0, 1000));
        assert_eq!(cooldown.runs.len(), 2, "later");
        cooldown.record_move(Time::from_ms(2), &to(1, 500));
        assert_eq!(cooldown.runs.len(), 4, "back: a part of the run has another history");
    }

    #[test]
    fn huge_page_waits_for_all_of_its_pages() {
        let mut cooldown = Cooldown::new(Time::from_ms(10));
        cooldown.record_move(Time::ZERO, &to(0, 1023));
        assert!(
            !cooldown.allows(Time::ZERO, &huge_to(1, 512)) && cooldown.allows(Time::ZERO, &huge_to(1, 0))
        );
        cooldown.record_move(Time::from_ms(10), &huge_to(1, 512));
        assert!(
            !cooldown.allows(Time::from_ms(29), &to(0, 600))
                && cooldown.allows(Time::from_ms(30), &to(0, 600))
        );
    }

    #[test]
    fn refused_pages_back_off_in_growing_runs() {
        let mut cooldown = Cooldown::new(Time::from_ms(10));
        let tried = (0..4096).filter(|&page| {
            let may = cooldown.allows(Time::ZERO, &to(0, page));
            if may {
                cooldown.record_refused(Time::ZERO, &to(0, page));
            }
            may
        });
        assert_eq!(tried.count(), 17, "1, 1, 2, 4 to 256 pages, then 512 at a time");
        assert!(!cooldown.allows(Time::from_ms(639), &to(0, 6)));
        assert!(cooldown.allows(Time::from_ms(640), &to(0, 6)));
    }

    #[test]
    fn zero_cooldown_delays_nothing() {
        let mut cooldown = Cooldown::new(Time::ZERO);
        cooldown.record_move(Time::ZERO, &to(0, 5));
        assert!(cooldown.allows(Time::ZERO, &to(1, 5)) && cooldown.runs.is_empty());
    }

    #[test]
    fn memory_is_bounded() {
        let mut cooldown = Cooldown::new(Time::from_ms(10));
        let pages = RUNS_MAX as u64 + 1;
        (0..pages).for_each(|page| cooldown.record_move(Time(page), &to(0, 2 * page)));
        assert_eq!(cooldown.runs.len(), RUNS_MAX / 2 + 1);
        assert!(
            cooldown.allows(Time(pages), &to(1, 0)) && !cooldown.allows(Time(pages), &to(1, 2 * pages - 2))
        );
    }

    proptest! {
        /// The same as a history of each page by itself, but for the sixteenth of a wait by which a run may
        /// be older than its pages.
        #[test]
        fn runs_are_pages_with_one_history(
            moves in proptest::collection::vec((0..40u64, 0..2u8, 0..20_000u64), 1..80),
        ) {
            let time = Time::from_us(160);
            let mut cooldown = Cooldown::new(time);
            let mut pages = [None::<(Time, u8, u32)>; 40];
            let mut now = Time::ZERO;
            for (page, node, later_ns) in moves {
                now += Time::from_ns(later_ns as f64);
                let (wanted, known) = (to(node, page), &mut pages[page as usize]);
                let wait = known.filter(|&(_, to, _)| to != node).map(|(at, _, returns)| {
                    at + Time(time.0 << returns.min(DOUBLINGS_MAX))
                });
                let slack = Time(time.0 / SAME_MOVE_SHARE);
                match wait {
                    Some(until) if now + slack < until => prop_assert!(!cooldown.allows(now, &wanted)),
                    Some(until) if now < until => {}
                    _ => prop_assert!(cooldown.allows(now, &wanted)),
                }
                // Every move goes from the other node, so that each is a return of the one before it.
                let returns = known.map_or(0, |(_, to, returns)| returns + u32::from(to != node));
                *known = Some((now, node, returns));
                cooldown.record_move(now, &wanted);
                let mut pairs = cooldown.runs.iter().zip(cooldown.runs.iter().skip(1));
                prop_assert!(pairs.all(|((_, run), ((_, next), _))| run.end <= *next));
            }
        }
    }
}

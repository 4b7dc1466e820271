//! The multi-level queue: the pages that missed the TLB last, with their counts (hinuma section III-C).
//!
//! A page's level is the logarithm of its count. Each level is a clock: a pseudo-LRU list whose pages
//! remember the round of their last miss instead of moving at each access.
//!
//! ```text
//!  level 2   4 to 7 misses   oldest ▶ . . . . ◀ newest   a miss counts, and sets the page's round
//!  level 1   2 or 3          oldest ▶ . . . ◀ newest
//!  level 0   below 2         oldest ▶ . . ◀ newest     for a new page, a full queue takes the oldest here:
//!               ▲                     ▲                  missed in this round: back to the end of its level
//!               └ victims             └ new pages        else: evicted
//! ```
//!
//! A page that is missed again in a round begins the next one. If the first miss after each marking counts, a
//! round is the time between two markings. Pages that miss first are the hottest, so that a new page never
//! replaces one of its own round: it stays out.
//!
//! Invariant: at most `capacity` pages, each in one level. An access is a look-up; sorting is up to the
//! caller, once an epoch.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use memtide_core::policy::{Page, TlbMiss};
use memtide_core::{NodeId, TaskId, Vpn};
use serde::{Deserialize, Serialize};

/// A TLB miss in the counts of the queue, which have a fraction so that halving loses nothing at first.
pub(super) const MISS: u32 = 256;

/// Levels; the last one has all pages of 128 misses and more.
const LEVELS: usize = 8;

/// A page by its task and its first base page.
pub(super) type Key = (TaskId, Vpn);

/// A page of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    pub page: Page,
    pub node: NodeId,
    /// TLB misses in units of 1 / [`MISS`], halved at each [`Queue::age`].
    pub misses: u32,
    /// Round of its last miss, and how many pages were missed in it before.
    round: u64,
    rank: u32,
    level: u8,
}

impl Entry {
    /// A page without misses, which is in no queue.
    pub(super) fn idle(page: Page, node: NodeId) -> Entry {
        Entry { page, node, misses: 0, round: 0, rank: 0, level: 0 }
    }
}

/// The queue, which begins without room: [`Queue::set_capacity`].
#[derive(Debug, Default)]
pub(super) struct Queue {
    capacity: usize,
    round: u64,
    /// Misses counted in this round.
    counted: u32,
    /// Whether all pages of the lowest level were missed in this round.
    is_fresh: bool,
    entries: BTreeMap<Key, Entry>,
    levels: [VecDeque<Key>; LEVELS],
}

/// Saved state of a queue: its pages by level, oldest first.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Saved {
    capacity: usize,
    round: u64,
    counted: u32,
    entries: Vec<Entry>,
}

impl Queue {
    /// Number of pages.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn contains(&self, key: Key) -> bool {
        self.entries.contains_key(&key)
    }

    /// Sets the maximum number of pages, L; drops those with the fewest misses beyond it.
    pub(super) fn set_capacity(&mut self, capacity: usize) {
        self.capacity = capacity;
        let excess = self.entries.len().saturating_sub(capacity);
        if excess > 0 {
            for entry in &self.sorted()[..excess] {
                self.entries.remove(&(entry.page.task, entry.page.page));
            }
            self.levels.iter_mut().for_each(|level| level.retain(|key| self.entries.contains_key(key)));
        }
    }

    /// Counts a miss. A new page takes the place of one that was not missed in this round, if there is one.
    pub(super) fn count(&mut self, miss: &TlbMiss) {
        let TlbMiss { task, page, size, node, .. } = *miss;
        let key = (task, page);
        if let Some(entry) = self.entries.get_mut(&key) {
            if entry.round == self.round {
                self.round += 1;
                self.counted = 0;
                self.is_fresh = false;
            }
            entry.misses = entry.misses.saturating_add(MISS);
            (entry.page.size, entry.node) = (size, node);
            (entry.round, entry.rank) = (self.round, self.counted);
        } else if self.entries.len() < self.capacity || self.evict() {
            let page = Page { task, page, size };
            let (round, rank) = (self.round, self.counted);
            self.entries.insert(key, Entry { page, node, misses: MISS, round, rank, level: 0 });
            self.levels[0].push_back(key);
        }
        self.counted = self.counted.saturating_add(1);
    }

    /// Removes the oldest page of the lowest level that was not missed in this round, if there is one. Pages
    /// that are passed over go to the end of the level of their count.
    fn evict(&mut self) -> bool {
        let passes = if self.is_fresh { 0 } else { self.levels[0].len() };
        for _ in 0..passes {
            let Some(key) = self.levels[0].pop_front() else { break };
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            entry.level = level_of(entry.misses);
            if entry.level == 0 && entry.round != self.round {
                self.entries.remove(&key);
                return true;
            }
            self.levels[usize::from(entry.level)].push_back(key);
        }
        self.is_fresh = true;
        false
    }

    /// Removes a page.
    pub(super) fn remove(&mut self, key: Key) {
        if let Some(entry) = self.entries.remove(&key) {
            self.levels[usize::from(entry.level)].retain(|listed| *listed != key);
        }
    }

    /// Removes the pages of ended tasks.
    pub(super) fn retain_tasks(&mut self, lives: impl Fn(TaskId) -> bool) {
        self.entries.retain(|(task, _), _| lives(*task));
        for level in &mut self.levels {
            level.retain(|(task, _)| lives(*task));
        }
    }

    /// Records that a page is on another node.
    pub(super) fn set_node(&mut self, key: Key, node: NodeId) {
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.node = node;
        }
    }

    /// Its pages in ascending order of misses; of equal ones, those missed earlier in their round come later.
    pub(super) fn sorted(&self) -> Vec<Entry> {
        let mut sorted: Vec<Entry> = self.entries.values().copied().collect();
        sorted.sort_by_key(|entry| (entry.misses, Reverse(entry.rank), entry.page));
        sorted
    }

    /// Halves all counts, so that old misses count less than new ones, and moves pages to their levels.
    pub(super) fn age(&mut self) {
        self.is_fresh = false;
        for key in std::mem::take(&mut self.levels).into_iter().flatten() {
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            entry.misses /= 2;
            entry.level = level_of(entry.misses);
            self.levels[usize::from(entry.level)].push_back(key);
        }
    }

    pub(super) fn saved(&self) -> Saved {
        let entries = self.levels.iter().flatten().map(|key| self.entries[key]);
        Saved {
            capacity: self.capacity,
            round: self.round,
            counted: self.counted,
            entries: entries.collect(),
        }
    }

    /// A saved queue, on a machine with this number of nodes.
    pub(super) fn restored(saved: Saved, nodes: usize) -> Result<Queue, String> {
        let Saved { capacity, round, counted, entries } = saved;
        if entries.len() > capacity {
            return Err(format!("{} pages in a queue of {capacity}", entries.len()));
        }
        let mut queue = Queue { capacity, round, counted, ..Queue::default() };
        for entry in entries {
            let (key, level) = ((entry.page.task, entry.page.page), usize::from(entry.level));
            if entry.node.index() >= nodes || level >= LEVELS || queue.entries.insert(key, entry).is_some() {
                return Err(format!("{entry:?} twice, or on none of {nodes} nodes or {LEVELS} levels"));
            }
            queue.levels[level].push_back(key);
        }
        Ok(queue)
    }
}

fn level_of(misses: u32) -> u8 {
    (misses / MISS).checked_ilog2().unwrap_or(0).min(LEVELS as u32 - 1) as u8
}

#[cfg(test)]
mod tests {
    use memtide_core::{PageSize, ThreadId, Time};
    use proptest::prelude::*;

    use super::*;

    fn miss(page: u64) -> TlbMiss {
        let (time, task, thread) = (Time::ZERO, TaskId(1), ThreadId(0));
        TlbMiss { time, task, thread, page: Vpn(page), size: PageSize::Base, node: NodeId(0), write: false }
    }

    fn queue(capacity: usize, pages: &[u64]) -> Queue {
        let mut queue = Queue::default();
        queue.set_capacity(capacity);
        pages.iter().for_each(|&page| queue.count(&miss(page)));
        queue
    }

    /// Its pages and their misses.
    fn pages(queue: &Queue) -> Vec<(u64, f64)> {
        let misses = |entry: &Entry| f64::from(entry.misses) / f64::from(MISS);
        queue.sorted().iter().map(|entry| (entry.page.page.0, misses(entry))).collect()
    }

    #[test]
    fn sorted_is_ascending_by_misses() {
        assert_eq!(pages(&queue(9, &[3, 1, 1, 2, 1, 2])), [(3, 1.0), (2, 2.0), (1, 3.0)]);
    }

    #[test]
    fn of_equal_pages_the_one_missed_first_in_the_round_is_the_hottest() {
        assert_eq!(pages(&queue(9, &[2, 3, 1])), [(1, 1.0), (3, 1.0), (2, 1.0)]);
        assert_eq!(pages(&queue(9, &[2, 3, 1, 1, 3, 2])), [(2, 2.0), (3, 2.0), (1, 2.0)], "the last round");
    }

    #[test]
    fn new_page_replaces_the_oldest_of_an_earlier_round() {
        assert_eq!(pages(&queue(2, &[1, 2, 3])), [(2, 1.0), (1, 1.0)], "3 came later in the same round");
        assert_eq!(pages(&queue(2, &[1, 2, 1, 3])), [(3, 1.0), (1, 2.0)], "2 was not missed again before 3");
        assert_eq!(pages(&queue(2, &[1, 2, 1, 2, 3])), [(2, 2.0), (1, 2.0)], "both are a level up");
        assert_eq!(pages(&queue(3, &[1, 2, 3, 1, 4, 5, 6])), [(5, 1.0), (4, 1.0), (1, 2.0)]);
    }

    #[test]
    fn pages_that_miss_first_in_each_round_stay() {
        let mut queue = queue(10, &[]);
        for _ in 0..4 {
            (0..40).for_each(|page| queue.count(&miss(page)));
        }
        assert_eq!(pages(&queue), (0..10).rev().map(|page| (page, 4.0)).collect::<Vec<_>>());
    }

    #[test]
    fn aged_page_goes_down_a_level_and_out() {
        let mut queue = queue(2, &[1, 1, 2]);
        queue.age();
        assert_eq!(pages(&queue), [(2, 0.5), (1, 1.0)]);
        queue.count(&miss(2));
        for page in [2, 3, 4] {
            queue.count(&miss(page));
        }
        assert_eq!(pages(&queue), [(3, 1.0), (2, 2.5)], "1 was not missed again");
    }

    #[test]
    fn smaller_queue_keeps_the_hottest() {
        let mut queue = queue(4, &[1, 2, 2, 3, 3, 3, 4]);
        queue.set_capacity(2);
        assert_eq!(pages(&queue), [(2, 2.0), (3, 3.0)]);
        queue.set_capacity(0);
        assert_eq!(queue.len(), 0);
        queue.count(&miss(7));
        assert_eq!(queue.len(), 0, "no room at all");
    }

    proptest! {
        #[test]
        fn queue_is_bounded_consistent_and_restored_whole(
            steps in proptest::collection::vec((0..5u8, 0..12u64), 0..120),
        ) {
            let mut queue = queue(5, &[]);
            for (step, page) in steps {
                match step {
                    0 => queue.age(),
                    1 => queue.remove((TaskId(1), Vpn(page))),
                    2 => queue.set_capacity(3 + page as usize % 4),
                    _ => {
                        let was_full = queue.len() == queue.capacity;
                        queue.count(&miss(page));
                        prop_assert!(was_full || queue.contains((TaskId(1), Vpn(page))), "there was room");
                    }
                }
                prop_assert!(queue.len() <= queue.capacity);
                let listed: usize = queue.levels.iter().map(VecDeque::len).sum();
                prop_assert_eq!(listed, queue.len());
                let saved = serde_json::to_string(&queue.saved()).expect("numbers");
                let saved = serde_json::from_str(&saved).expect("its own");
                let again = Queue::restored(saved, 1).expect("whole");
                prop_assert_eq!(&again.levels, &queue.levels);
                prop_assert_eq!(&again.entries, &queue.entries);
            }
        }
    }

    #[test]
    fn invalid_queue_is_refused() {
        let one = |node: u8, level: u8| {
            format!(
                r#"{{"page":{{"task":1,"page":5,"size":"Base"}},"node":{node},"misses":1,
                "round":0,"rank":0,"level":{level}}}"#
            )
        };
        let restored = |capacity: u8, entries: &[String]| {
            let text = format!(
                r#"{{"capacity":{capacity},"round":3,"counted":0,"entries":[{}]}}"#,
                entries.join(",")
            );
            let text = text.replace("\"Base\"", &serde_json::to_string(&PageSize::Base).expect("a word"));
            Queue::restored(serde_json::from_str(&text).expect("a queue"), 2).map(|queue| queue.len())
        };
        assert_eq!(restored(2, &[one(1, 7)]), Ok(1));
        for wrong in [vec![one(2, 0)], vec![one(0, 8)], vec![one(0, 0), one(0, 1)]] {
            assert!(restored(2, &wrong).is_err(), "{wrong:?}");
        }
        assert!(restored(0, &[one(0, 0)]).is_err());
    }
}

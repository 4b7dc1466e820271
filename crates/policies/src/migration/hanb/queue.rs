//! The multi-level queue: the pages whose TLB misses are counted (hinuma section III-C).
//!
//! ```text
//!  page that is not counted ──▶ trial: no miss yet ──▶ level 0, 1, 2 ...: logarithm of its misses
//!                                 │ not missed            │ lowest level, missed longest ago
//!                                 └──────── leaves ◀──────┘ once an interval
//! ```
//!
//! Within a level, pages leave as in a pseudo-LRU list: by the round of their last miss. A page that is
//! missed again in a round begins the next one. If the first miss after each marking counts, a round is the
//! time between two markings, and the pages that miss first in it are the hottest.
//!
//! An access is a look-up; sorting is up to the caller, once an interval.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use memtide_core::policy::{Page, TlbMiss};
use memtide_core::{NodeId, TaskId, Vpn};
use serde::{Deserialize, Serialize};

/// A TLB miss in the counts of the queue, which have a fraction so that halving loses nothing at first.
pub(super) const MISS: u32 = 256;

/// The part of the queue, as 1/N, that other pages get at least, as long as there are any.
const TRIAL: usize = 4;

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
    /// Whether it was missed since then.
    is_used: bool,
    /// Round of its last miss, and how many pages were missed in it before.
    round: u64,
    rank: u32,
}

impl Entry {
    /// A page without misses, which is in no queue.
    pub(super) fn idle(page: Page, node: NodeId) -> Entry {
        Entry { page, node, misses: 0, is_used: false, round: 0, rank: 0 }
    }

    pub(super) fn key(&self) -> Key {
        (self.page.task, self.page.page)
    }

    fn level(&self) -> Option<u32> {
        (self.misses / MISS).checked_ilog2()
    }
}

/// The queue, empty and without room at first.
#[derive(Debug, Default)]
pub(super) struct Queue {
    capacity: usize,
    round: u64,
    /// Misses counted in this round.
    counted: u32,
    entries: BTreeMap<Key, Entry>,
}

/// Saved state of a queue.
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

    /// Number of pages that it can admit.
    pub(super) fn room(&self) -> usize {
        self.capacity.saturating_sub(self.len())
    }

    pub(super) fn contains(&self, key: Key) -> bool {
        self.entries.contains_key(&key)
    }

    /// Its pages, by task and address.
    pub(super) fn pages(&self) -> impl Iterator<Item = Page> {
        self.entries.values().map(|entry| entry.page)
    }

    /// Sets the maximum number of pages, L. Pages that were not missed in this interval leave, and of the
    /// others as many as it takes until a part is free for those outside, out of `all` pages: from the lowest
    /// level, and there those missed longest ago.
    pub(super) fn make_room(&mut self, capacity: usize, all: u64) {
        self.capacity = capacity;
        self.entries.retain(|_, entry| entry.is_used);
        let outside = usize::try_from(all).unwrap_or(usize::MAX).saturating_sub(self.len());
        let trial = (capacity / TRIAL).max(1).min(outside);
        let leave = self.len().saturating_sub(capacity.saturating_sub(trial));
        let mut pages: Vec<&Entry> = self.entries.values().collect();
        pages.sort_by_key(|entry| (entry.level(), entry.round, Reverse(entry.rank), entry.page));
        let keys: Vec<Key> = pages[..leave].iter().map(|entry| entry.key()).collect();
        for key in keys {
            self.entries.remove(&key);
        }
    }

    /// Admits a page, if there is room.
    pub(super) fn admit(&mut self, entry: Entry) {
        if self.room() > 0 {
            self.entries.insert(entry.key(), entry);
        }
    }

    /// Counts a miss of one of its pages.
    pub(super) fn count(&mut self, miss: &TlbMiss) {
        let Some(entry) = self.entries.get_mut(&(miss.task, miss.page)) else { return };
        if entry.round == self.round {
            self.round += 1;
            self.counted = 0;
        }
        entry.misses = entry.misses.saturating_add(MISS);
        (entry.page.size, entry.node, entry.is_used) = (miss.size, miss.node, true);
        (entry.round, entry.rank) = (self.round, self.counted);
        self.counted = self.counted.saturating_add(1);
    }

    /// Removes a page.
    pub(super) fn remove(&mut self, key: Key) {
        self.entries.remove(&key);
    }

    /// Removes the pages of ended tasks.
    pub(super) fn retain_tasks(&mut self, lives: impl Fn(TaskId) -> bool) {
        self.entries.retain(|(task, _), _| lives(*task));
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

    /// Begins an interval and a round: halves all counts, so that old misses count less than new ones.
    pub(super) fn age(&mut self) {
        self.round += 1;
        self.counted = 0;
        for entry in self.entries.values_mut() {
            entry.misses /= 2;
            entry.is_used = false;
        }
    }

    pub(super) fn saved(&self) -> Saved {
        Saved {
            capacity: self.capacity,
            round: self.round,
            counted: self.counted,
            entries: self.entries.values().copied().collect(),
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
            if entry.node.index() >= nodes || queue.entries.insert(entry.key(), entry).is_some() {
                return Err(format!("{entry:?} twice, or on none of {nodes} nodes"));
            }
        }
        Ok(queue)
    }
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

    fn idle(page: u64) -> Entry {
        Entry::idle(Page { task: TaskId(1), page: Vpn(page), size: PageSize::Base }, NodeId(0))
    }

    /// A queue of pages 1, 2, ... up to its capacity, and these misses.
    fn queue(capacity: usize, misses: &[u64]) -> Queue {
        let mut queue = Queue::default();
        queue.make_room(capacity, 100);
        queue.age();
        (1..=capacity as u64).for_each(|page| queue.admit(idle(page)));
        misses.iter().for_each(|&page| queue.count(&miss(page)));
        queue
    }

    /// Its pages and their misses.
    fn pages(queue: &Queue) -> Vec<(u64, f64)> {
        let misses = |entry: &Entry| f64::from(entry.misses) / f64::from(MISS);
        queue.sorted().iter().map(|entry| (entry.page.page.0, misses(entry))).collect()
    }

    fn left(mut queue: Queue, capacity: usize, all: u64) -> Vec<u64> {
        queue.make_room(capacity, all);
        queue.pages().map(|page| page.page.0).collect()
    }

    #[test]
    fn sorted_is_ascending_by_misses() {
        assert_eq!(pages(&queue(3, &[3, 1, 1, 2, 1, 2])), [(3, 1.0), (2, 2.0), (1, 3.0)]);
    }

    #[test]
    fn of_equal_pages_the_one_missed_first_in_the_round_is_the_hottest() {
        assert_eq!(pages(&queue(3, &[2, 3, 1])), [(1, 1.0), (3, 1.0), (2, 1.0)]);
        assert_eq!(pages(&queue(3, &[2, 3, 1, 1, 3, 2])), [(2, 2.0), (3, 2.0), (1, 2.0)], "the last round");
    }

    #[test]
    fn page_that_was_not_missed_leaves_and_others_are_not_counted() {
        let missed = queue(3, &[1, 3, 7]);
        assert_eq!(pages(&missed), [(2, 0.0), (3, 1.0), (1, 1.0)]);
        assert_eq!(left(missed, 3, 100), [1, 3]);
    }

    #[test]
    fn full_queue_keeps_a_part_for_pages_outside() {
        let all: Vec<u64> = (1..=8).collect();
        assert_eq!(left(queue(8, &all), 8, 100), [1, 2, 3, 4, 5, 6], "those missed first in the round");
        assert_eq!(left(queue(8, &all), 8, 9), [1, 2, 3, 4, 5, 6, 7], "one is outside");
        assert_eq!(left(queue(8, &all), 8, 8), all);
        assert_eq!(
            left(queue(8, &[1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 8]), 8, 100),
            [1, 2, 3, 4, 5, 8],
            "by level"
        );
    }

    #[test]
    fn smaller_queue_keeps_the_most_used() {
        assert_eq!(left(queue(4, &[1, 2, 2, 3, 3, 3, 3, 4]), 3, 100), [2, 3]);
        assert_eq!(left(queue(4, &[1, 2, 3, 4]), 0, 100), [0u64; 0]);
    }

    #[test]
    fn counts_are_halved_once_an_interval() {
        let mut queue = queue(2, &[1, 1, 2]);
        queue.age();
        assert_eq!(pages(&queue), [(2, 0.5), (1, 1.0)]);
        queue.count(&miss(2));
        assert_eq!(pages(&queue), [(1, 1.0), (2, 1.5)]);
        assert_eq!(left(queue, 2, 2), [2], "1 was not missed again");
    }

    proptest! {
        #[test]
        fn queue_is_bounded_and_restored_whole(
            steps in proptest::collection::vec((0..6u8, 0..12u64), 0..120),
        ) {
            let mut queue = queue(5, &[]);
            for (step, page) in steps {
                match step {
                    0 => queue.age(),
                    1 => queue.remove((TaskId(1), Vpn(page))),
                    2 => queue.make_room(3 + page as usize % 4, 12),
                    3 => queue.admit(idle(page)),
                    _ => queue.count(&miss(page)),
                }
                prop_assert!(queue.len() <= queue.capacity);
                let saved = serde_json::to_string(&queue.saved()).expect("numbers");
                let saved = serde_json::from_str(&saved).expect("its own");
                let again = Queue::restored(saved, 1).expect("whole");
                prop_assert_eq!(&again.entries, &queue.entries);
                prop_assert_eq!((again.room(), again.round), (queue.room(), queue.round));
            }
        }
    }

    #[test]
    fn invalid_queue_is_refused() {
        let one = |node: u8| Entry { node: NodeId(node), ..idle(5) };
        let restored = |capacity: usize, entries: &[Entry]| {
            let saved = Saved { capacity, round: 3, counted: 0, entries: entries.to_vec() };
            Queue::restored(saved, 2).map(|queue| queue.len())
        };
        assert_eq!(restored(2, &[one(1)]), Ok(1));
        assert!(restored(2, &[one(2)]).is_err(), "no such node");
        assert!(restored(2, &[one(0), one(0)]).is_err(), "twice");
        assert!(restored(0, &[one(0)]).is_err(), "no room");
    }
}

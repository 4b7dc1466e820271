//! The multi-level queue: the pages that missed the TLB last, with their counts (hinuma section III-C).
//!
//! A page's level is the logarithm of its count. Each level is a clock: a pseudo-LRU list whose pages have a
//! referenced bit instead of moving at each access.
//!
//! ```text
//!  level 2   4 to 7 misses   oldest ▶ . . . . ◀ newest     a miss sets the bit and counts
//!  level 1   2 or 3          oldest ▶ . . . ◀ newest
//!  level 0   0 or 1          oldest ▶ . . ◀ newest       a full queue takes the oldest of the lowest level:
//!               ▲                     ▲                    bit set: clear it, back to the end of its level
//!               └ victims             └ new pages             else: evicted
//! ```
//!
//! Invariant: at most `capacity` pages, each in one level. An access is a look-up; sorting is up to the
//! caller, once an epoch.

use std::collections::{BTreeMap, VecDeque};

use memtide_core::policy::{Page, TlbMiss};
use memtide_core::{NodeId, TaskId, Vpn};
use serde::{Deserialize, Serialize};

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
    /// TLB misses, halved at each [`Queue::age`].
    pub misses: u32,
    referenced: bool,
    level: u8,
}

impl Entry {
    /// A page without misses, which is in no queue.
    pub(super) fn idle(page: Page, node: NodeId) -> Entry {
        Entry { page, node, misses: 0, referenced: false, level: 0 }
    }
}

/// The queue, which begins without room: [`Queue::set_capacity`].
#[derive(Debug, Default)]
pub(super) struct Queue {
    capacity: usize,
    entries: BTreeMap<Key, Entry>,
    levels: [VecDeque<Key>; LEVELS],
}

/// Saved state of a queue: its pages by level, oldest first.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Saved {
    capacity: usize,
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

    /// Sets the maximum number of pages, L; evicts those beyond it.
    pub(super) fn set_capacity(&mut self, capacity: usize) {
        self.capacity = capacity;
        while self.entries.len() > capacity {
            self.evict();
        }
    }

    /// Counts a miss. A new page takes the place of the one evicted.
    pub(super) fn count(&mut self, miss: &TlbMiss) {
        let TlbMiss { task, page, size, node, .. } = *miss;
        let key = (task, page);
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.misses = entry.misses.saturating_add(1);
            (entry.page.size, entry.node, entry.referenced) = (size, node, true);
            return;
        }
        if self.capacity == 0 {
            return;
        }
        if self.entries.len() >= self.capacity {
            self.evict();
        }
        let page = Page { task, page, size };
        self.entries.insert(key, Entry { page, node, misses: 1, referenced: false, level: 0 });
        self.levels[0].push_back(key);
    }

    /// Removes the oldest unreferenced page of the lowest level. Each page that is passed over loses its bit,
    /// or goes down to the level of its count, so that one is found.
    fn evict(&mut self) {
        while let Some(level) = self.levels.iter().position(|level| !level.is_empty()) {
            let Some(key) = self.levels[level].pop_front() else { return };
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            let home = level_of(entry.misses);
            if !entry.referenced && usize::from(home) >= level {
                self.entries.remove(&key);
                return;
            }
            (entry.referenced, entry.level) = (false, home);
            self.levels[usize::from(home)].push_back(key);
        }
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

    /// Its pages in ascending order of misses.
    pub(super) fn sorted(&self) -> Vec<Entry> {
        let mut sorted: Vec<Entry> = self.entries.values().copied().collect();
        sorted.sort_by_key(|entry| (entry.misses, entry.page));
        sorted
    }

    /// Halves all counts, so that old misses count less than new ones.
    pub(super) fn age(&mut self) {
        self.entries.values_mut().for_each(|entry| entry.misses /= 2);
    }

    pub(super) fn saved(&self) -> Saved {
        let entries = self.levels.iter().flatten().map(|key| self.entries[key]);
        Saved { capacity: self.capacity, entries: entries.collect() }
    }

    /// A saved queue, on a machine with this number of nodes.
    pub(super) fn restored(saved: Saved, nodes: usize) -> Result<Queue, String> {
        let Saved { capacity, entries } = saved;
        if entries.len() > capacity {
            return Err(format!("{} pages in a queue of {capacity}", entries.len()));
        }
        let mut queue = Queue { capacity, ..Queue::default() };
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
    misses.checked_ilog2().unwrap_or(0).min(LEVELS as u32 - 1) as u8
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

    fn pages(queue: &Queue) -> Vec<(u64, u32)> {
        queue.sorted().iter().map(|entry| (entry.page.page.0, entry.misses)).collect()
    }

    #[test]
    fn sorted_is_ascending_by_misses() {
        assert_eq!(pages(&queue(9, &[3, 1, 1, 2, 1, 2])), [(3, 1), (2, 2), (1, 3)]);
    }

    #[test]
    fn full_queue_evicts_the_oldest_page_missed_once() {
        assert_eq!(pages(&queue(2, &[1, 2, 3])), [(2, 1), (3, 1)]);
        assert_eq!(pages(&queue(2, &[1, 2, 1, 3])), [(3, 1), (1, 2)], "1 was referenced");
        assert_eq!(pages(&queue(2, &[1, 1, 2, 3, 4, 5])), [(5, 1), (1, 2)], "1 is a level up");
    }

    #[test]
    fn aged_page_goes_down_a_level_and_out() {
        let mut queue = queue(2, &[1, 1, 2, 3]);
        queue.age();
        assert_eq!(pages(&queue), [(3, 0), (1, 1)]);
        queue.count(&miss(4));
        queue.age();
        for page in [5, 6] {
            queue.count(&miss(page));
        }
        assert_eq!(pages(&queue).len(), 2);
        assert!(queue.contains((TaskId(1), Vpn(6))), "{queue:?}");
    }

    #[test]
    fn smaller_queue_keeps_the_hottest() {
        let mut queue = queue(4, &[1, 2, 2, 3, 3, 3, 4]);
        queue.set_capacity(2);
        assert_eq!(pages(&queue), [(2, 2), (3, 3)]);
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
                        queue.count(&miss(page));
                        prop_assert!(queue.contains((TaskId(1), Vpn(page))), "the newest is in it");
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
                "referenced":false,"level":{level}}}"#
            )
        };
        let restored = |capacity: u8, entries: &[String]| {
            let text = format!(r#"{{"capacity":{capacity},"entries":[{}]}}"#, entries.join(","));
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

//! A B+ tree from sorted 64-bit keys to their positions, built once and never changed.

use crate::array::{Array, Space};
use crate::error::WorkloadError;
use crate::memory::{Loaded, Memory};

/// Keys of a node: two cache lines.
const FANOUT: usize = 16;
/// Keys compared by one vector instruction (AVX2).
const LANES: usize = 4;
/// Per vector of keys: compare, mask, count, branch.
const COMPARE_INSTRUCTIONS: u64 = 4;

/// The levels of the tree, leaves first: all keys, then the first key of each node below.
pub struct SortedIndex {
    levels: Vec<Level>,
}

struct Level {
    length: usize,
    keys: Array<u64>,
}

impl SortedIndex {
    /// A tree of `length` keys.
    pub fn new(length: usize, space: &mut Space) -> Result<SortedIndex, WorkloadError> {
        let mut levels = Vec::new();
        let mut below = length;
        loop {
            let keys = space.array("keys", below.next_multiple_of(LANES))?;
            levels.push(Level { length: below, keys });
            if below <= FANOUT {
                return Ok(SortedIndex { levels });
            }
            below = below.div_ceil(FANOUT);
        }
    }

    /// Bytes per key, rounded up.
    pub const KEY_BYTES: usize = 9;

    /// Stores the key at a position, and its copies in the nodes above. Keys must ascend with positions.
    pub fn put<M: Memory>(&self, m: &mut M, position: usize, key: u64) {
        let mut at = position;
        for level in &self.levels {
            m.work(2);
            m.store(&level.keys, at, key);
            if !at.is_multiple_of(FANOUT) {
                return;
            }
            at /= FANOUT;
        }
    }

    /// The position of a key.
    pub fn find<M: Memory>(&self, m: &mut M, key: u64) -> Option<Loaded<usize>> {
        let mut first = Loaded::from(0);
        let mut found = (first, None);
        for level in self.levels.iter().rev() {
            found = level.last_up_to(m, first, key);
            first = found.0.map(|at| at * FANOUT);
        }
        (found.1 == Some(key)).then_some(found.0)
    }
}

impl Level {
    /// The last key of a node that is not above this one, and its position; the node's first position if
    /// all are above.
    fn last_up_to<M: Memory>(
        &self,
        m: &mut M,
        first: Loaded<usize>,
        key: u64,
    ) -> (Loaded<usize>, Option<u64>) {
        let mut last = (first, None);
        for lane in (0..FANOUT).step_by(LANES) {
            let at = first.map(|first| first + lane);
            if *at >= self.length {
                break;
            }
            let keys: Loaded<[u64; LANES]> = m.load_lanes(&self.keys, at);
            m.work(COMPARE_INSTRUCTIONS);
            let below = keys.iter().take(self.length - *at).filter(|&&other| other <= key).count();
            if below > 0 {
                last = (keys.map(|_| *at + below - 1), Some(keys[below - 1]));
            }
            if below < LANES {
                break;
            }
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Index, Native, Traced};
    use memtide_core::PageSize;

    fn of(length: usize) -> SortedIndex {
        let index = SortedIndex::new(length, &mut Space::new(PageSize::Base)).unwrap();
        (0..length).for_each(|position| index.put(&mut Native, position, 5 + 3 * position as u64));
        index
    }

    #[test]
    fn each_key_is_found_at_its_position_and_no_other() {
        for length in [1, 2, 15, 16, 17, 255, 257, 5000] {
            let index = of(length);
            for key in 0..(3 * length as u64 + 20) {
                let there = key >= 5 && key < 5 + 3 * length as u64 && (key - 5).is_multiple_of(3);
                let found = index.find(&mut Native, key).map(|at| *at);
                assert_eq!(found, there.then(|| (key as usize - 5) / 3), "{key} of {length} keys");
            }
        }
    }

    #[test]
    fn each_level_depends_on_the_one_above() {
        let index = of(16 * 16 * 16);
        let mut traced = Traced::default();
        // The first key of each node: one vector a level.
        let at = index.find(&mut traced, 5).unwrap();
        assert_eq!(traced.accesses.iter().map(|access| access.producer).collect::<Vec<_>>(), [0, 1, 1]);
        assert_eq!((at.index(), at.origin().0), (0, 3));
    }

    #[test]
    fn bytes_per_key_cover_all_levels() {
        for length in [1usize, 100, 100_000] {
            let index = of(length);
            let words: usize = index.levels.iter().map(|level| level.length).sum();
            assert!(8 * words <= SortedIndex::KEY_BYTES * length + 64, "{length}");
        }
    }
}

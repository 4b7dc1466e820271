//! Chained hash tables from 64-bit keys to entry numbers; several share the same arrays.

use crate::array::{Array, Space};
use crate::error::WorkloadError;
use crate::memory::{Loaded, Memory};
use crate::random::{hash, scale};

/// The end of a chain.
const NONE: u32 = u32::MAX;
/// Per key: hashing it to its bucket.
const HASH_INSTRUCTIONS: u64 = 12;
/// Per entry: comparing a key and following the chain.
const WALK_INSTRUCTIONS: u64 = 3;

/// `tables` tables, each with as many buckets as entries. Entries are numbered across all tables.
pub struct HashIndex {
    capacity: usize,
    /// Each bucket's first entry.
    heads: Array<u32>,
    /// An entry's key, and the next entry in its bucket.
    entries: Array<u64>,
}

impl HashIndex {
    /// Bytes per entry, including its bucket.
    pub const ENTRY_BYTES: usize = 20;

    /// Tables for `capacity` entries each.
    pub fn new(tables: usize, capacity: usize, space: &mut Space) -> Result<HashIndex, WorkloadError> {
        Ok(HashIndex {
            capacity,
            heads: space.array("buckets", tables * capacity)?,
            entries: space.array("entries", 2 * tables * capacity)?,
        })
    }

    /// Clears a bucket, numbered across all tables.
    pub fn clear<M: Memory>(&self, m: &mut M, bucket: usize) {
        m.work(2);
        m.store(&self.heads, bucket, NONE);
    }

    /// The bucket of a key.
    fn bucket<M: Memory>(&self, m: &mut M, table: usize, key: u64) -> usize {
        m.work(HASH_INSTRUCTIONS);
        table * self.capacity + scale(hash(key), self.capacity as u64) as usize
    }

    /// The entry of a key.
    pub fn find<M: Memory>(&self, m: &mut M, table: usize, key: u64) -> Option<Loaded<usize>> {
        let bucket = self.bucket(m, table, key);
        let mut at = m.load(&self.heads, bucket);
        while *at != NONE {
            let entry = m.load_lanes(&self.entries, at.map(|at| 2 * at as usize));
            let [found, next]: [u64; 2] = *entry;
            m.work(WALK_INSTRUCTIONS);
            if found == key {
                return Some(at.map(|at| at as usize));
            }
            at = entry.map(|_| next as u32);
        }
        None
    }

    /// Inserts this key as the table's `number`th entry.
    pub fn insert<M: Memory>(&self, m: &mut M, table: usize, number: usize, key: u64) -> usize {
        assert!(number < self.capacity, "more entries than the table was made for");
        let bucket = self.bucket(m, table, key);
        let entry = table * self.capacity + number;
        let head = *m.load(&self.heads, bucket);
        m.store_lanes(&self.entries, 2 * entry, [key, u64::from(head)]);
        m.store(&self.heads, bucket, entry as u32);
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Index, Native, Traced};
    use memtide_core::PageSize;

    #[test]
    fn keys_are_found_in_their_own_table_only() {
        let index = HashIndex::new(2, 100, &mut Space::new(PageSize::Base)).unwrap();
        (0..200).for_each(|bucket| index.clear(&mut Native, bucket));
        for number in 0..100 {
            assert_eq!(index.insert(&mut Native, 1, number, 7 * number as u64), 100 + number);
        }
        for key in 0..700 {
            let found = index.find(&mut Native, 1, key).map(|entry| *entry);
            assert_eq!(found, key.is_multiple_of(7).then_some(100 + key as usize / 7));
            assert!(index.find(&mut Native, 0, key).is_none());
        }
    }

    #[test]
    fn each_step_of_a_walk_depends_on_the_previous() {
        let index = HashIndex::new(1, 1, &mut Space::new(PageSize::Base)).unwrap();
        index.clear(&mut Native, 0);
        index.insert(&mut Native, 0, 0, 5);
        let mut traced = Traced::default();
        let entry = index.find(&mut traced, 0, 5).unwrap();
        assert_eq!(traced.accesses.iter().map(|access| access.producer).collect::<Vec<_>>(), [0, 1]);
        assert_eq!((entry.index(), entry.origin().0), (0, 1));
    }
}

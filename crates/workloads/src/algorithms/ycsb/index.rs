//! The index of the records that all threads share.

use crate::array::Space;
use crate::error::WorkloadError;
use crate::hash_index::HashIndex;
use crate::memory::{Loaded, Memory};
use crate::sorted_index::SortedIndex;

/// Finds a record by its key.
pub enum RecordIndex {
    /// Shards built by one thread each; a key's shard is its remainder. Records are in the shards' order.
    Hash { shards: usize, records: usize, index: HashIndex },
    /// Records in the order of their keys.
    Sorted(SortedIndex),
}

impl RecordIndex {
    /// The names of the two, as in parameter `store`.
    pub const STORES: &[&str] = &["hash", "sorted"];

    /// An index for this many records, a multiple of the shards.
    pub fn new(
        store: &str,
        shards: usize,
        records: usize,
        space: &mut Space,
    ) -> Result<RecordIndex, WorkloadError> {
        Ok(match store {
            "hash" => {
                let index = HashIndex::new(shards, records / shards, space)?;
                RecordIndex::Hash { shards, records, index }
            }
            _ => RecordIndex::Sorted(SortedIndex::new(records, space)?),
        })
    }

    /// Bytes per record, rounded up.
    pub fn entry_bytes(store: &str) -> usize {
        if store == "hash" { HashIndex::ENTRY_BYTES } else { SortedIndex::KEY_BYTES }
    }

    /// The key of a record. Keys are 0 and up.
    pub fn key(&self, record: usize) -> u64 {
        match self {
            RecordIndex::Hash { shards, records, .. } => {
                let shard = records / shards;
                (record % shard * shards + record / shard) as u64
            }
            RecordIndex::Sorted(_) => record as u64,
        }
    }

    /// Clears the entry of a record's number, before any is added.
    pub fn clear<M: Memory>(&self, m: &mut M, record: usize) {
        if let RecordIndex::Hash { index, .. } = self {
            index.clear(m, record);
        }
    }

    /// Adds a record; those of a shard in order.
    pub fn add<M: Memory>(&self, m: &mut M, record: usize) {
        match self {
            RecordIndex::Hash { shards, records, index } => {
                let shard = records / shards;
                index.insert(m, record / shard, record % shard, self.key(record));
            }
            RecordIndex::Sorted(index) => index.put(m, record, self.key(record)),
        }
    }

    /// The record of a key.
    pub fn find<M: Memory>(&self, m: &mut M, key: u64) -> Option<Loaded<usize>> {
        match self {
            RecordIndex::Hash { shards, index, .. } => index.find(m, key as usize % shards, key),
            RecordIndex::Sorted(index) => index.find(m, key),
        }
    }

    /// Whether records of consecutive keys are adjacent.
    pub fn is_sorted(&self) -> bool {
        matches!(self, RecordIndex::Sorted(_))
    }
}

//! Reclaim: when no node has free memory, the least recently used pages of the local one are swapped out.
//!
//! Swap only costs time: swapped lines load no node or link.

use memtide_core::{NodeId, Time};

use super::{Entry, Os, Stale, key_of};
use crate::SimError;

/// Maximum base pages reclaimed per fault (Linux's SWAP_CLUSTER_MAX).
const CLUSTER_PAGES: u64 = 32;

impl Os {
    /// Frees pages of a node until it is back at its high watermark or a cluster is free; returns the cost.
    pub(super) fn reclaim(&mut self, node: NodeId) -> Result<Time, SimError> {
        self.counts.reclaims += 1;
        let mut cost = Time::ZERO;
        let mut freed = 0;
        let mut looks = 4 * self.frames.used(node) + 1;
        while freed < CLUSTER_PAGES && (freed == 0 || self.frames.short_of_high(node) > 0) && looks > 0 {
            looks -= 1;
            let Some(frame) = self.frames.oldest(node) else { break };
            let pages = self.try_evict(frame);
            freed += pages;
            cost += self.costs.swap * pages;
        }
        if freed == 0 { Err(SimError::OutOfMemory { node }) } else { Ok(cost) }
    }

    /// Swaps a page out, unless it was accessed since its last check; returns the number of base pages freed.
    fn try_evict(&mut self, frame: u32) -> u64 {
        let owner = self.frames.owner(frame);
        let found = self.spaces[owner.task.index()].table.find(owner.page);
        let in_it = found.filter(|(entry, _)| entry.has(Entry::PRESENT) && entry.frame() == frame);
        let Some((entry, _)) = in_it else {
            // Reserved for a page to be moved here.
            self.frames.activate(frame);
            return 0;
        };
        if entry.any(Entry::ACCESSED | Entry::YOUNG | Entry::MOVING | Entry::COPIED) {
            entry.clear(Entry::ACCESSED | Entry::YOUNG);
            self.frames.activate(frame);
            return 0;
        }
        *entry = Entry::default();
        entry.set(Entry::SWAPPED);
        self.frames.give(frame);
        self.stale.push(Stale { task: owner.task, page: Some(key_of(owner.task, owner.page, owner.size)) });
        self.counts.swapped_out_pages += owner.size.base_pages();
        owner.size.base_pages()
    }
}

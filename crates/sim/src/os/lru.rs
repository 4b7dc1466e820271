//! Aging of a node's LRU lists, for demotion (Linux's mm/vmscan.c: `shrink_active_list`,
//! `folio_check_references`).
//!
//! ```text
//!            new page                     oldest
//! inactive   head <──────────────────────── tail ──▶ not accessed: taken
//!             ▲ accessed, once: to the head  │
//!             │                              │ accessed, twice in a row
//! active     tail ◀───────────────── head ◀──┘
//!             └ the oldest become inactive while active pages outnumber inactive ones
//! ```

use memtide_core::NodeId;

use super::{Entry, Os, Owner};

impl Os {
    /// Ages the lists of a node until pages of `wanted` base pages are found that were not accessed since
    /// their last check. Each page that was inactive before is checked at most once; none that was active is
    /// taken. Returns the pages, oldest first, and the number of pages checked. The pages stay in the list.
    pub fn idle_pages(&mut self, node: NodeId, wanted: u64) -> (Vec<Owner>, u64) {
        let (mut pages, mut found, mut checked) = (Vec::new(), 0, 0);
        if wanted == 0 {
            return (pages, checked);
        }
        let mut left = self.frames.inactive(node);
        let mut next = self.frames.inactive_tail(node);
        while let Some(frame) = self.frames.deactivate_oldest(node) {
            self.clear_accessed(frame);
            checked += 1;
        }
        while let Some(frame) = next.filter(|_| left > 0 && found < wanted) {
            next = self.frames.newer(frame);
            (left, checked) = (left - 1, checked + 1);
            if let Some(owner) = self.check_idle(frame) {
                found += owner.size.base_pages();
                pages.push(owner);
            }
        }
        (pages, checked)
    }

    /// Its page, if that is idle; else moves it to the head of its list or to the active one.
    fn check_idle(&mut self, frame: u32) -> Option<Owner> {
        let owner = self.frames.owner(frame);
        let entry = self.entry_of(frame)?;
        if entry.any(Entry::MOVING | Entry::CLAIMED) {
            return None;
        }
        let was_referenced = entry.has(Entry::REFERENCED);
        entry.clear(Entry::REFERENCED);
        if !entry.any(Entry::ACCESSED | Entry::YOUNG) {
            return Some(owner);
        }
        entry.clear(Entry::ACCESSED | Entry::YOUNG);
        if was_referenced {
            self.frames.activate(frame);
        } else {
            entry.set(Entry::REFERENCED);
            self.frames.deactivate(frame);
        }
        None
    }

    fn clear_accessed(&mut self, frame: u32) {
        if let Some(entry) = self.entry_of(frame) {
            entry.clear(Entry::ACCESSED | Entry::YOUNG);
        }
    }

    /// The entry that maps a frame; `None` if it is reserved for a page to be moved here.
    fn entry_of(&mut self, frame: u32) -> Option<&mut Entry> {
        let owner = self.frames.owner(frame);
        let (entry, _) = self.spaces[owner.task.index()].table.find(owner.page)?;
        (entry.has(Entry::PRESENT) && entry.frame() == frame).then_some(entry)
    }
}

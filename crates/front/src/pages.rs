//! Numbers of virtual pages, in the order of their first use.

use std::collections::HashMap;

use memtide_core::PageSize;

/// Base pages in a leaf: those of a huge page.
const LEAF: usize = PageSize::Huge.base_pages() as usize;

/// Instructions of a period, and periods between records of a page in use.
const PERIOD: u64 = 1024;
const PERIODS: u32 = 20;

/// Leaves that are found without a look at the map.
const LAST: usize = 64;

/// The numbers of a thread's pages.
#[derive(Debug)]
pub(crate) struct Pages {
    leaves: HashMap<u64, u32>,
    slots: Vec<Slot>,
    /// The page of each number.
    pages: Vec<u64>,
    /// Numbers of removed pages, which are given out again, the last one first.
    free: Vec<u32>,
    /// Leaves used last, by the low bits of their key: key plus 1, and leaf.
    last: [(u64, u32); LAST],
}

/// What is known of a page.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// Its number plus 1; 0 if it has none.
    number: u32,
    /// Period of its last record, modulo 2^32.
    recorded: u32,
}

impl Default for Pages {
    fn default() -> Pages {
        Pages {
            leaves: HashMap::new(),
            slots: Vec::new(),
            pages: Vec::new(),
            free: Vec::new(),
            last: [(0, 0); LAST],
        }
    }
}

impl Pages {
    /// A base page's slot, and its number. A huge page's base pages are numbered at once.
    #[inline]
    pub fn number(&mut self, page: u64, size: PageSize) -> (usize, u32) {
        let slot = self.slot(page);
        match self.slots[slot].number {
            0 => (slot, self.first_use(slot, page, size)),
            number => (slot, number - 1),
        }
    }

    fn first_use(&mut self, slot: usize, page: u64, size: PageSize) -> u32 {
        let first = slot - slot % LEAF;
        let leaf = first..first + LEAF;
        if size == PageSize::Huge && self.slots[leaf.clone()].iter().all(|slot| slot.number == 0) {
            // Huge frames are aligned.
            self.pages.resize(self.pages.len().next_multiple_of(LEAF), 0);
            let head = page - page % LEAF as u64;
            for (index, slot) in self.slots[leaf].iter_mut().enumerate() {
                self.pages.push(head + index as u64);
                slot.number = self.pages.len() as u32;
            }
        } else if let Some(number) = self.free.pop() {
            self.pages[number as usize] = page;
            self.slots[slot].number = number + 1;
        } else {
            self.pages.push(page);
            self.slots[slot].number = self.pages.len() as u32;
        }
        self.slots[slot].number - 1
    }

    /// Pages that have had numbers at the same time.
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// The page of a number.
    pub fn page(&self, number: u32) -> u64 {
        self.pages[number as usize]
    }

    /// Whether the page of a slot has had no record for long, at an instruction.
    #[inline]
    pub fn is_due(&self, slot: usize, instruction: u64) -> bool {
        period(instruction).wrapping_sub(self.slots[slot].recorded) > PERIODS
    }

    /// Notes that the page of a slot has a record.
    #[inline]
    pub fn note_record(&mut self, slot: usize, instruction: u64) {
        self.slots[slot].recorded = period(instruction);
    }

    /// Forgets a page's number: its next use is a first one. Returns whether it had one.
    pub fn remove(&mut self, page: u64) -> bool {
        let slot = self.slot(page);
        let Slot { number, .. } = std::mem::take(&mut self.slots[slot]);
        self.free.extend(number.checked_sub(1));
        number != 0
    }

    /// Prefetches the host memory of a page's slot.
    #[inline]
    pub fn warm(&self, page: u64) {
        let (last, leaf) = self.last[last_of(page)];
        if last == page / LEAF as u64 + 1 {
            prefetch_index::prefetch_index(&self.slots, leaf as usize * LEAF + page as usize % LEAF);
        }
    }

    fn slot(&mut self, page: u64) -> usize {
        let key = page / LEAF as u64;
        let in_leaf = page as usize % LEAF;
        let (last, leaf) = self.last[last_of(page)];
        if last == key + 1 {
            return leaf as usize * LEAF + in_leaf;
        }
        let next = (self.slots.len() / LEAF) as u32;
        let leaf = *self.leaves.entry(key).or_insert(next);
        if leaf == next {
            self.slots.resize(self.slots.len() + LEAF, Slot::default());
        }
        self.last[last_of(page)] = (key + 1, leaf);
        leaf as usize * LEAF + in_leaf
    }
}

fn last_of(page: u64) -> usize {
    page as usize / LEAF % LAST
}

fn period(instruction: u64) -> u32 {
    (instruction / PERIOD) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_numbered_by_first_use() {
        let mut pages = Pages::default();
        let base = |pages: &mut Pages, page| pages.number(page, PageSize::Base).1;
        assert_eq!([9_000, 7, 9_000, 8].map(|page| base(&mut pages, page)), [0, 1, 0, 2]);
        assert_eq!(pages.page(1), 7);
        assert!(pages.remove(7) && !pages.remove(7));
        assert_eq!([10, 7].map(|page| base(&mut pages, page)), [1, 3], "frames are reused");
        assert_eq!(pages.number(512 * 5 + 3, PageSize::Huge).1, 512 + 3);
        assert_eq!(pages.page(512 + 4), 512 * 5 + 4);
        assert_eq!(base(&mut pages, 600), 1024);
    }
}

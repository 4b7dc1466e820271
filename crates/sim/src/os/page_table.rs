//! Page tables: a radix tree of four levels, as on x86-64.

use memtide_core::{PageSize, Vpn};

/// Number of virtual pages: 48-bit addresses.
pub(crate) const PAGES: u64 = 1 << 36;

const FANOUT: usize = 512;
const HUGE: u32 = 1 << 31;

/// A page table entry: a frame and flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry(u64);

impl Entry {
    pub const PRESENT: u64 = 1 << 32;
    pub const ACCESSED: u64 = 1 << 33;
    pub const DIRTY: u64 = 1 << 34;
    /// Unmapped by the NUMA hint scanner: the next access faults.
    pub const HINT: u64 = 1 << 35;
    /// Being copied to another frame: accesses wait.
    pub const MOVING: u64 = 1 << 36;
    /// To be moved; the kernel thread has not started yet.
    pub const CLAIMED: u64 = 1 << 38;
    /// Accessed before a monitor cleared its accessed bit.
    pub const YOUNG: u64 = 1 << 39;
    /// In swap.
    pub const SWAPPED: u64 = 1 << 37;
    /// Found accessed once on the inactive list (Linux's `PG_referenced`).
    pub const REFERENCED: u64 = 1 << 40;
    /// Marked to count its TLB misses: a walk faults.
    pub const MARKED: u64 = 1 << 41;
    /// Being copied while mapped.
    pub const COPIED: u64 = 1 << 42;
    /// Protected from stores, the first of which drops the copy.
    pub const PROTECTED: u64 = 1 << 43;

    /// Lowest bit of the number of TLB misses counted since a monitor took it.
    const MISSES_SHIFT: u32 = 44;
    /// Maximum of that number.
    pub const MISSES: u64 = (1 << (Entry::STEP_SHIFT - Entry::MISSES_SHIFT)) - 1;
    /// The upper bits are the step of the scanner that unmapped it, modulo [`STEPS`](Entry::STEPS).
    const STEP_SHIFT: u32 = 54;
    /// Number of distinct steps of the scanner: later ones start again at 0, as Linux's time stamps do.
    pub const STEPS: u64 = 1 << (u64::BITS - Entry::STEP_SHIFT);

    pub fn present(frame: u32) -> Entry {
        Entry(u64::from(frame) | Entry::PRESENT)
    }

    pub fn frame(self) -> u32 {
        self.0 as u32
    }

    pub fn has(self, flags: u64) -> bool {
        self.0 & flags == flags
    }

    pub fn any(self, flags: u64) -> bool {
        self.0 & flags != 0
    }

    pub fn set(&mut self, flags: u64) {
        self.0 |= flags;
    }

    pub fn clear(&mut self, flags: u64) {
        self.0 &= !flags;
    }

    /// Marks it as unmapped in this step of the scanner.
    pub fn set_hint(&mut self, step: u64) {
        self.0 = self.0 & ((1 << Entry::STEP_SHIFT) - 1) | Entry::HINT | step << Entry::STEP_SHIFT;
    }

    /// Steps of the scanner since it was unmapped, given the current one.
    pub fn steps_since_hint(self, step: u64) -> u64 {
        step.wrapping_sub(self.0 >> Entry::STEP_SHIFT) % Entry::STEPS
    }

    /// Counts a TLB miss, up to [`MISSES`](Entry::MISSES).
    pub fn count_miss(&mut self) {
        if self.misses() < Entry::MISSES {
            self.0 += 1 << Entry::MISSES_SHIFT;
        }
    }

    /// Takes the number of TLB misses counted.
    pub fn take_misses(&mut self) -> u16 {
        let misses = self.misses();
        self.0 &= !(Entry::MISSES << Entry::MISSES_SHIFT);
        misses as u16
    }

    fn misses(self) -> u64 {
        self.0 >> Entry::MISSES_SHIFT & Entry::MISSES
    }

    pub fn set_frame(&mut self, frame: u32) {
        self.0 = self.0 & !u64::from(u32::MAX) | u64::from(frame);
    }
}

/// The page table of an address space.
///
/// A directory entry is 0 (empty), the number of a lower table, or, in the last directory level, that of a
/// huge page.
#[derive(Debug)]
pub(crate) struct PageTable {
    directories: Vec<[u32; FANOUT]>,
    /// Boxed, so that a growing table never takes twice its memory.
    leaves: Vec<Box<[Entry; FANOUT]>>,
    /// Leaves replaced by a huge page.
    free_leaves: Vec<usize>,
    huge: Vec<Entry>,
}

/// Position of an entry.
#[derive(Clone, Copy)]
enum Place {
    Leaf(usize, usize),
    Huge(usize),
}

impl PageTable {
    pub fn new() -> PageTable {
        PageTable {
            directories: vec![[0; FANOUT]],
            leaves: Vec::new(),
            free_leaves: Vec::new(),
            huge: Vec::new(),
        }
    }

    /// The entry for a page and the size of the page it maps.
    #[inline]
    pub fn find(&mut self, page: Vpn) -> Option<(&mut Entry, PageSize)> {
        Some(match self.place(page)? {
            Place::Leaf(leaf, at) => (&mut self.leaves[leaf][at], PageSize::Base),
            Place::Huge(at) => (&mut self.huge[at], PageSize::Huge),
        })
    }

    /// Prefetches the host memory of a page's entry.
    #[inline]
    pub fn warm(&self, page: Vpn) {
        if let Some(Place::Leaf(leaf, at)) = self.place(page) {
            prefetch_index::prefetch_index(self.leaves[leaf].as_slice(), at);
        }
    }

    #[inline]
    fn place(&self, page: Vpn) -> Option<Place> {
        let mut directory = 0;
        for shift in [27, 18] {
            directory = self.directories[directory][index(page, shift)] as usize;
            if directory == 0 {
                return None;
            }
        }
        match self.directories[directory][index(page, 9)] {
            0 => None,
            huge if huge & HUGE != 0 => Some(Place::Huge((huge & !HUGE) as usize)),
            leaf => Some(Place::Leaf(leaf as usize - 1, index(page, 0))),
        }
    }

    /// Maps a page; a huge one by its first base page.
    ///
    /// A huge page takes its 2 MiB alone: no base page may be left there, present or in swap. A base page may
    /// replace a huge one that is no longer present.
    pub fn map(&mut self, page: Vpn, size: PageSize, entry: Entry) {
        let mut directory = 0;
        for shift in [27, 18] {
            directory = self.directory_below(directory, index(page, shift));
        }
        let slot = self.directories[directory][index(page, 9)];
        match size {
            PageSize::Huge if slot & HUGE != 0 => self.huge[(slot & !HUGE) as usize] = entry,
            PageSize::Huge => {
                let around = self.size_around(page);
                assert_eq!(around, None, "base pages are in the way of a huge one at {page:?}");
                self.free_leaves.extend((slot as usize).checked_sub(1));
                self.directories[directory][index(page, 9)] = HUGE | self.huge.len() as u32;
                self.huge.push(entry);
            }
            PageSize::Base => {
                let leaf = if slot == 0 || slot & HUGE != 0 { self.new_leaf(slot) } else { slot };
                self.directories[directory][index(page, 9)] = leaf;
                self.leaves[leaf as usize - 1][index(page, 0)] = entry;
            }
        }
    }

    /// Replaces a present huge page by base pages in its frames, with its flags; its TLB misses stay with the
    /// first.
    pub fn split(&mut self, page: Vpn) {
        let Some(Place::Huge(at)) = self.place(page) else { return };
        let huge = std::mem::take(&mut self.huge[at]);
        let head = page.0 - page.0 % FANOUT as u64;
        let mut rest = huge;
        rest.take_misses();
        for (index, frame) in (0..FANOUT as u64).zip(huge.frame()..) {
            let mut entry = if index == 0 { huge } else { rest };
            entry.set_frame(frame);
            self.map(Vpn(head + index), PageSize::Base, entry);
        }
    }

    /// Replaces the present base pages from this one on by a huge page in these frames that is being copied.
    /// It has been accessed or written if one of them has, and has their TLB misses. Returns their frames.
    pub fn collapse(&mut self, head: Vpn, frame: u32) -> Vec<u32> {
        let mut huge = Entry::present(frame);
        huge.set(Entry::MOVING);
        let mut frames = Vec::with_capacity(FANOUT);
        self.walk(head, Vpn(head.0 + FANOUT as u64), |_, _, entry| {
            let mut base = std::mem::take(entry);
            frames.push(base.frame());
            for flag in [Entry::ACCESSED, Entry::DIRTY, Entry::YOUNG] {
                if base.has(flag) {
                    huge.set(flag);
                }
            }
            (0..base.take_misses()).for_each(|_| huge.count_miss());
            true
        });
        self.map(head, PageSize::Huge, huge);
        frames
    }

    /// A new table of base pages for 2 MiB that were empty, or had a huge page that is in swap or gone.
    fn new_leaf(&mut self, slot: u32) -> u32 {
        let before = if slot & HUGE != 0 { self.huge[(slot & !HUGE) as usize] } else { Entry::default() };
        assert!(!before.has(Entry::PRESENT), "a huge page is in the way of a base one");
        if let Some(leaf) = self.free_leaves.pop() {
            *self.leaves[leaf] = [before; FANOUT];
            return leaf as u32 + 1;
        }
        self.leaves.push(Box::new([before; FANOUT]));
        self.leaves.len() as u32
    }

    /// The size of the existing pages around a page, present or in swap; `None` if there are none.
    pub fn size_around(&self, page: Vpn) -> Option<PageSize> {
        Some(match self.place(page)? {
            Place::Leaf(leaf, _) => {
                let used = self.leaves[leaf].iter().any(|&entry| entry != Entry::default());
                return used.then_some(PageSize::Base);
            }
            Place::Huge(_) => PageSize::Huge,
        })
    }

    /// Visits every entry from `start` to `end` (exclusive), in order, until `visit` stops. Returns the page
    /// after the last one visited.
    pub fn walk(
        &mut self,
        start: Vpn,
        end: Vpn,
        mut visit: impl FnMut(Vpn, PageSize, &mut Entry) -> bool,
    ) -> Vpn {
        let mut page = start.0;
        while page < end.0 {
            let here = Vpn(page);
            match self.place(here) {
                None => page = self.after_gap(here),
                Some(Place::Huge(at)) => {
                    let first = page & !(FANOUT as u64 - 1);
                    page = first + FANOUT as u64;
                    if !visit(Vpn(first), PageSize::Huge, &mut self.huge[at]) {
                        return Vpn(page);
                    }
                }
                Some(Place::Leaf(leaf, at)) => {
                    page += 1;
                    if !visit(here, PageSize::Base, &mut self.leaves[leaf][at]) {
                        return Vpn(page);
                    }
                }
            }
        }
        Vpn(page)
    }

    /// The first page after the largest empty subtree that contains a page.
    fn after_gap(&self, page: Vpn) -> u64 {
        let mut directory = 0;
        for shift in [27, 18, 9] {
            directory = self.directories[directory][index(page, shift)] as usize;
            if directory == 0 {
                return ((page.0 >> shift) + 1) << shift;
            }
        }
        page.0 + 1
    }

    fn directory_below(&mut self, directory: usize, at: usize) -> usize {
        if self.directories[directory][at] == 0 {
            self.directories.push([0; FANOUT]);
            self.directories[directory][at] = self.directories.len() as u32 - 1;
        }
        self.directories[directory][at] as usize
    }
}

fn index(page: Vpn, shift: u32) -> usize {
    (page.0 >> shift) as usize % FANOUT
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn runs_match_map(pages in proptest::collection::vec((0u64..1 << 36, any::<bool>()), 1..80)) {
            let mut table = PageTable::new();
            let mut reference = BTreeMap::new();
            for (i, (page, huge)) in pages.into_iter().enumerate() {
                let size = if huge { PageSize::Huge } else { PageSize::Base };
                let page = Vpn(page / size.base_pages() * size.base_pages());
                if table.size_around(page).is_some_and(|around| around != size) {
                    continue;
                }
                let entry = Entry::present(i as u32);
                table.map(page, size, entry);
                reference.insert(page, (size, entry));
            }
            let mut walked = BTreeMap::new();
            table.walk(Vpn(0), Vpn(PAGES), |page, size, entry| {
                if entry.has(Entry::PRESENT) {
                    walked.insert(page, (size, *entry));
                }
                true
            });
            prop_assert_eq!(&walked, &reference);
            for (page, (size, entry)) in reference {
                let last = Vpn(page.0 + size.base_pages() - 1);
                prop_assert_eq!(table.find(last), Some((&mut entry.clone(), size)));
            }
        }
    }

    #[test]
    fn split_page_has_base_pages_in_its_frames() {
        let mut table = PageTable::new();
        let mut entry = Entry::present(4096);
        entry.set(Entry::ACCESSED);
        entry.count_miss();
        table.map(Vpn(512), PageSize::Huge, entry);
        table.map(Vpn(1024), PageSize::Huge, Entry::present(8192));
        table.split(Vpn(700));
        for (page, misses) in [(512, 1), (700, 0), (1023, 0)] {
            let (found, size) = table.find(Vpn(page)).expect("a page");
            assert_eq!((found.frame(), size), (4096 + page as u32 - 512, PageSize::Base));
            assert_eq!((found.has(Entry::PRESENT | Entry::ACCESSED), found.take_misses()), (true, misses));
        }
        assert_eq!(table.find(Vpn(1024)).map(|(_, size)| size), Some(PageSize::Huge));
        table.split(Vpn(512));
        assert_eq!(table.find(Vpn(513)).map(|(found, _)| found.frame()), Some(4097), "base pages stay");
    }

    #[test]
    fn collapsed_pages_are_one_that_is_being_copied() {
        let mut table = PageTable::new();
        for page in 512..1024 {
            let mut entry = Entry::present(page * 2);
            if page == 700 {
                entry.set(Entry::DIRTY);
                entry.count_miss();
            }
            table.map(Vpn(page.into()), PageSize::Base, entry);
        }
        table.map(Vpn(1024), PageSize::Base, Entry::present(1));
        let frames = table.collapse(Vpn(512), 8192);
        assert_eq!(frames, (512..1024).map(|page| page * 2).collect::<Vec<_>>());
        let (found, size) = table.find(Vpn(1000)).expect("a page");
        assert_eq!((found.frame(), size), (8192, PageSize::Huge));
        assert!(found.has(Entry::PRESENT | Entry::MOVING | Entry::DIRTY) && !found.has(Entry::ACCESSED));
        assert_eq!(found.take_misses(), 1);
        assert_eq!(
            table.find(Vpn(1024)).map(|(found, size)| (found.frame(), size)),
            Some((1, PageSize::Base))
        );
        table.split(Vpn(512));
        assert_eq!(table.find(Vpn(513)).map(|(found, _)| found.frame()), Some(8193));
    }

    #[test]
    fn walk_stops_on_request_and_returns_position() {
        let mut table = PageTable::new();
        for page in [5, 6, 700] {
            table.map(Vpn(page), PageSize::Base, Entry::present(page as u32));
        }
        let mut seen = Vec::new();
        let next = table.walk(Vpn(0), Vpn(PAGES), |page, _, entry| {
            if entry.has(Entry::PRESENT) {
                seen.push(page.0);
            }
            seen.len() < 2
        });
        assert_eq!((seen, next), (vec![5, 6], Vpn(7)));
    }
}

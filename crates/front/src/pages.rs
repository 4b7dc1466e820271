//! Numbers of virtual pages, in the order of their first use.

use std::collections::HashMap;

use memtide_core::PageSize;

/// Base pages in a leaf: those of a huge page.
const LEAF: usize = PageSize::Huge.base_pages() as usize;

/// Leaves that are found without a look at the map.
const LAST: usize = 64;

/// The numbers of a thread's pages.
#[derive(Debug)]
pub(crate) struct Pages {
    leaves: HashMap<u64, u32>,
    /// Numbers plus 1; 0 if the page has none.
    numbers: Vec<[u32; LEAF]>,
    /// The page of each number, and the instruction of its last record.
    pages: Vec<(u64, u64)>,
    /// Numbers of removed pages, which are given out again, the last one first.
    free: Vec<u32>,
    /// Leaves used last, by the low bits of their key: key plus 1, and leaf.
    last: [(u64, u32); LAST],
}

impl Default for Pages {
    fn default() -> Pages {
        Pages {
            leaves: HashMap::new(),
            numbers: Vec::new(),
            pages: Vec::new(),
            free: Vec::new(),
            last: [(0, 0); LAST],
        }
    }
}

impl Pages {
    /// A base page's number. A huge page's base pages are numbered at once.
    #[inline]
    pub fn number(&mut self, page: u64, size: PageSize) -> u32 {
        let leaf = self.leaf(page);
        match self.numbers[leaf][page as usize % LEAF] {
            0 => self.first_use(leaf, page, size),
            number => number - 1,
        }
    }

    fn first_use(&mut self, leaf: usize, page: u64, size: PageSize) -> u32 {
        let head = page - page % LEAF as u64;
        if size == PageSize::Huge && self.numbers[leaf].iter().all(|&number| number == 0) {
            // Huge frames are aligned.
            self.pages.resize(self.pages.len().next_multiple_of(LEAF), (0, 0));
            for (index, number) in self.numbers[leaf].iter_mut().enumerate() {
                self.pages.push((head + index as u64, 0));
                *number = self.pages.len() as u32;
            }
        } else if let Some(number) = self.free.pop() {
            self.pages[number as usize] = (page, 0);
            self.numbers[leaf][page as usize % LEAF] = number + 1;
        } else {
            self.pages.push((page, 0));
            self.numbers[leaf][page as usize % LEAF] = self.pages.len() as u32;
        }
        self.numbers[leaf][page as usize % LEAF] - 1
    }

    /// The page of a number.
    pub fn page(&self, number: u32) -> u64 {
        self.pages[number as usize].0
    }

    /// The instruction of a page's last record.
    #[inline]
    pub fn recorded(&mut self, number: u32) -> &mut u64 {
        &mut self.pages[number as usize].1
    }

    /// Forgets a page's number: its next use is a first one. Returns whether it had one.
    pub fn remove(&mut self, page: u64) -> bool {
        let leaf = self.leaf(page);
        let number = std::mem::take(&mut self.numbers[leaf][page as usize % LEAF]);
        self.free.extend(number.checked_sub(1));
        number != 0
    }

    fn leaf(&mut self, page: u64) -> usize {
        let key = page / LEAF as u64;
        let (last, leaf) = self.last[key as usize % LAST];
        if last == key + 1 {
            return leaf as usize;
        }
        let next = self.numbers.len() as u32;
        let leaf = *self.leaves.entry(key).or_insert(next);
        if leaf == next {
            self.numbers.push([0; LEAF]);
        }
        self.last[key as usize % LAST] = (key + 1, leaf);
        leaf as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_numbered_by_first_use() {
        let mut pages = Pages::default();
        let base = |pages: &mut Pages, page| pages.number(page, PageSize::Base);
        assert_eq!([9_000, 7, 9_000, 8].map(|page| base(&mut pages, page)), [0, 1, 0, 2]);
        assert_eq!(pages.page(1), 7);
        assert!(pages.remove(7) && !pages.remove(7));
        assert_eq!([10, 7].map(|page| base(&mut pages, page)), [1, 3], "frames are reused");
        assert_eq!(pages.number(512 * 5 + 3, PageSize::Huge), 512 + 3);
        assert_eq!(pages.page(512 + 4), 512 * 5 + 4);
        assert_eq!(base(&mut pages, 600), 1024);
    }
}

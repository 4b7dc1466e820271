//! Mappings of an address space, so that every access in a trace is within one.

use std::collections::BTreeMap;

use memtide_core::PAGE_BYTES;

/// Memory without a recorded mapping (a program's image, an import) is mapped in blocks of at most this size.
const BLOCK_BYTES: u64 = 1 << 20;

const KNOWN: usize = 1024;

/// The mappings of one address space; none overlaps another.
#[derive(Clone)]
pub(crate) struct Mappings {
    /// End address by start address.
    ranges: BTreeMap<u64, u64>,
    /// Pages known to be mapped, by hash.
    known: Vec<u64>,
}

impl Default for Mappings {
    fn default() -> Self {
        Mappings { ranges: BTreeMap::new(), known: vec![u64::MAX; KNOWN] }
    }
}

impl Mappings {
    /// Maps bytes, replacing what was mapped there; returns whether there was something.
    pub fn map(&mut self, start: u64, bytes: u64) -> bool {
        let replaced = self.unmap(start, bytes);
        self.ranges.insert(start, start.saturating_add(bytes));
        replaced
    }

    /// Unmaps bytes; returns false if nothing was mapped there.
    pub fn unmap(&mut self, start: u64, bytes: u64) -> bool {
        let end = start.saturating_add(bytes);
        let overlapping: Vec<(u64, u64)> = self
            .ranges
            .range(..end)
            .rev()
            .take_while(|&(_, &its_end)| its_end > start)
            .map(|(&its_start, &its_end)| (its_start, its_end))
            .collect();
        for &(its_start, its_end) in &overlapping {
            self.ranges.remove(&its_start);
            if its_start < start {
                self.ranges.insert(its_start, start);
            }
            if its_end > end {
                self.ranges.insert(end, its_end);
            }
        }
        if !overlapping.is_empty() {
            self.known.fill(u64::MAX);
        }
        !overlapping.is_empty()
    }

    /// A range to map before this access, which is not within a mapping; counts as mapped from then on. To be
    /// called until it returns `None`.
    pub fn missing(&mut self, address: u64, bytes: u64) -> Option<(u64, u64)> {
        let first = address / PAGE_BYTES;
        let last = address.saturating_add(bytes - 1) / PAGE_BYTES;
        (first..=last).find_map(|page| self.missing_page(page))
    }

    fn missing_page(&mut self, page: u64) -> Option<(u64, u64)> {
        let slot = page as usize % KNOWN;
        if self.known[slot] == page {
            return None;
        }
        self.known[slot] = page;
        let start = page * PAGE_BYTES;
        let below = self.ranges.range(..=start).next_back().map_or(0, |(_, &end)| end);
        if below > start {
            return None;
        }
        let above = self.ranges.range(start..).next().map_or(u64::MAX, |(&start, _)| start);
        let block = start / BLOCK_BYTES * BLOCK_BYTES;
        let from = block.max(below);
        let to = block.saturating_add(BLOCK_BYTES).min(above);
        self.ranges.insert(from, to);
        Some((from, to - from))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compares with a set of pages.
        #[test]
        fn agrees_with_a_set_of_pages(steps in prop::collection::vec((0..3u8, 0..600u64, 1..40u64), 1..100)) {
            let mut mappings = Mappings::default();
            let mut pages = std::collections::BTreeSet::new();
            for (what, page, length) in steps {
                let (start, bytes) = (page * PAGE_BYTES, length * PAGE_BYTES);
                let range = page..page + length;
                match what {
                    0 => {
                        let overlaps = pages.range(range.clone()).next().is_some();
                        prop_assert_eq!(mappings.map(start, bytes), overlaps);
                        pages.extend(range);
                    }
                    1 => {
                        let overlaps = pages.range(range.clone()).next().is_some();
                        prop_assert_eq!(mappings.unmap(start, bytes), overlaps);
                        pages.retain(|page| !range.contains(page));
                    }
                    _ => {
                        while let Some((from, length)) = mappings.missing(start, bytes) {
                            for page in from / PAGE_BYTES..(from + length) / PAGE_BYTES {
                                prop_assert!(pages.insert(page), "page {} is mapped twice", page);
                            }
                        }
                        prop_assert!(range.clone().all(|page| pages.contains(&page)));
                    }
                }
            }
        }
    }
}

//! Address spaces.

use memtide_core::policy::Rule;
use memtide_core::{Mapping, PAGE_BYTES, PageSize, TaskId, VirtAddr, Vpn};

use super::page_table::{PAGES, PageTable};

/// A task's address space and its placement rule.
#[derive(Debug)]
pub(crate) struct Space {
    pub id: TaskId,
    pub table: PageTable,
    /// Whether some mapping has huge pages, or base pages were collapsed into one.
    pub has_huge: bool,
    pub rule: Rule,
    /// Page faults, of base and of huge pages, swap-ins included.
    pub faults: u64,
    /// Sorted by start, not overlapping.
    mappings: Vec<Mapping>,
    /// The NUMA hint scanner's position, and its complete passes.
    pub scan_at: Vpn,
    pub scan_pass: u32,
    /// Base pages that it marked beyond what its steps allow: a huge page is marked whole.
    pub scan_debt: u64,
}

impl Space {
    pub fn new(id: TaskId, rule: Rule) -> Space {
        Space {
            id,
            table: PageTable::new(),
            has_huge: false,
            rule,
            faults: 0,
            mappings: Vec::new(),
            scan_at: Vpn(0),
            scan_debt: 0,
            scan_pass: 0,
        }
    }

    /// An empty space with the same mappings.
    pub fn fork(&self, id: TaskId, rule: Rule) -> Space {
        Space { has_huge: self.has_huge, mappings: self.mappings.clone(), ..Space::new(id, rule) }
    }

    /// Removes all mappings; the pages must have been freed before.
    pub fn clear(&mut self) {
        self.mappings.clear();
        self.has_huge = false;
        self.table = PageTable::new();
    }

    /// Adds a mapping; replaces what was mapped there.
    pub fn map(&mut self, mapping: Mapping) {
        self.unmap(mapping.start, mapping.bytes);
        self.has_huge |= mapping.page == PageSize::Huge;
        let at = self.mappings.partition_point(|m| m.start < mapping.start);
        self.mappings.insert(at, mapping);
    }

    /// Removes an address range from the mappings.
    pub fn unmap(&mut self, start: VirtAddr, bytes: u64) {
        let end = start.0.saturating_add(bytes);
        let mut kept = Vec::with_capacity(self.mappings.len() + 1);
        for mapping in self.mappings.drain(..) {
            let (first, last) = (mapping.start.0, mapping.start.0.saturating_add(mapping.bytes));
            if last <= start.0 || first >= end {
                kept.push(mapping);
                continue;
            }
            if first < start.0 {
                kept.push(Mapping { bytes: start.0 - first, ..mapping.clone() });
            }
            if last > end {
                kept.push(Mapping { start: VirtAddr(end), bytes: last - end, ..mapping });
            }
        }
        self.mappings = kept;
    }

    /// The size of a page to be placed at an address. Memory that was never mapped has base pages: some
    /// traces lack mappings.
    pub fn page_size_at(&self, address: VirtAddr) -> PageSize {
        if !self.has_huge {
            return PageSize::Base;
        }
        let after = self.mappings.partition_point(|m| m.start <= address);
        let Some(mapping) = after.checked_sub(1).map(|at| &self.mappings[at]) else { return PageSize::Base };
        let first = address.0 / PageSize::Huge.bytes() * PageSize::Huge.bytes();
        let inside = mapping.start.0 <= first
            && first + PageSize::Huge.bytes() <= mapping.start.0.saturating_add(mapping.bytes);
        let base_around = self.table.size_around(address.page()) == Some(PageSize::Base);
        if mapping.page == PageSize::Huge && inside && !base_around { PageSize::Huge } else { PageSize::Base }
    }

    /// The pages wholly within a range of bytes, end exclusive.
    pub fn whole_pages(start: VirtAddr, bytes: u64) -> (Vpn, Vpn) {
        let first = start.0.div_ceil(PAGE_BYTES).min(PAGES);
        let end = (start.0.saturating_add(bytes) / PAGE_BYTES).min(PAGES);
        (Vpn(first), Vpn(end.max(first)))
    }
}

#[cfg(test)]
mod tests {
    use memtide_core::policy::{GroupOrder, Spill, Within};

    use super::*;

    fn space() -> Space {
        let rule = Rule {
            groups: Vec::new(),
            order: GroupOrder::Cycle,
            within: Within::Nearest,
            spill: Spill::Nearest,
        };
        Space::new(TaskId(0), rule)
    }

    fn mapping(start: u64, bytes: u64, page: PageSize) -> Mapping {
        Mapping { start: VirtAddr(start), bytes, page, name: String::new() }
    }

    #[test]
    fn huge_pages_lie_wholly_inside_their_mapping() {
        let mut s = space();
        s.map(mapping(1 << 20, 4 << 20, PageSize::Huge));
        let sizes =
            [(1 << 20), (2 << 20), (4 << 20) - 1, (4 << 20), (8 << 20)].map(|a| s.page_size_at(VirtAddr(a)));
        use PageSize::{Base, Huge};
        assert_eq!(sizes, [Base, Huge, Huge, Base, Base]);
    }

    #[test]
    fn unmapping_the_middle_leaves_both_ends() {
        let mut s = space();
        s.map(mapping(0, 12 << 20, PageSize::Huge));
        s.unmap(VirtAddr(4 << 20), 4 << 20);
        let sizes = [0, 4 << 20, 8 << 20].map(|a| s.page_size_at(VirtAddr(a)));
        assert_eq!(sizes, [PageSize::Huge, PageSize::Base, PageSize::Huge]);
    }
}

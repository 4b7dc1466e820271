//! Sizes of the guest's pages, from its page tables of four levels (Intel SDM volume 3, section 4.5).

/// Bits of an entry: present, and of a page instead of a table.
const PRESENT: u64 = 1;
const PAGE: u64 = 1 << 7;

/// Bits of an entry that are a table's address.
const TABLE: u64 = 0x000f_ffff_ffff_f000;

/// Whether an address is in a page of 2 MiB or more. `root` is the table's address; `word` reads
/// guest-physical memory.
pub fn is_huge(root: u64, address: u64, word: impl Fn(u64) -> u64) -> bool {
    let mut table = root;
    for shift in [39, 30, 21] {
        let entry = word(table + ((address >> shift) % 512) * 8);
        if entry & PRESENT == 0 {
            return false;
        }
        // The first level has no pages.
        if entry & PAGE != 0 && shift != 39 {
            return true;
        }
        table = entry & TABLE;
    }
    false
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const NO_EXECUTE: u64 = 1 << 63;

    #[test]
    fn size_is_that_of_the_entry_that_has_the_page() {
        let address = 5 << 39 | 6 << 30 | 7 << 21 | 8 << 12 | 9;
        let entries = [(0x1000 + 5 * 8, 0x2000 | 0x67), (0x2000 + 6 * 8, 0x3000 | 0x67)];
        let with = |last: (u64, u64)| {
            let entries: BTreeMap<u64, u64> = entries.into_iter().chain([last]).collect();
            is_huge(0x1000, address, |at| entries.get(&at).copied().unwrap_or(0))
        };
        let last = 0x3000 + 7 * 8;
        assert!(with((last, NO_EXECUTE | 0x4000_0000 | 0xe7)), "2 MiB");
        assert!(!with((last, NO_EXECUTE | 0x4000 | 0x67)), "a table of base pages");
        assert!(!with((last, 0x4000_0000 | 0xe6)), "not present");
        assert!(!with((last + 8, 0x4000_0000 | 0xe7)), "its neighbour");
        assert!(with((0x2000 + 6 * 8, 0x4000_0000 | 0xe7)), "1 GiB");
        assert!(!with((0x1000 + 5 * 8, 0x4000_0000 | 0xe7)), "no page is that large");
    }
}

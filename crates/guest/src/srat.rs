//! Proximity domains of the kernel's nodes, from ACPI's System Resource Affinity Table.

use std::fs;

const TABLE: &str = "/sys/firmware/acpi/tables/SRAT";

/// Bytes before the first entry (ACPI 6.5, section 5.2.16).
const HEADER: usize = 48;

const PROCESSOR: u8 = 0;
const MEMORY: u8 = 1;
const X2APIC: u8 = 2;
const GENERIC_INITIATOR: u8 = 5;

/// Proximity domain of each node, in the order of the kernel's numbers; empty without the table.
pub fn domains() -> Vec<u32> {
    in_order(&fs::read(TABLE).unwrap_or_default())
}

/// Linux numbers domains in order of appearance: CPUs and generic initiators first, then memory-only domains.
fn in_order(table: &[u8]) -> Vec<u32> {
    let all: Vec<(u8, u32)> = entries(table.get(HEADER..).unwrap_or_default()).collect();
    let (memory, first): (Vec<_>, Vec<_>) = all.into_iter().partition(|&(kind, _)| kind == MEMORY);
    let mut domains = Vec::new();
    for (_, domain) in first.into_iter().chain(memory) {
        if !domains.contains(&domain) {
            domains.push(domain);
        }
    }
    domains
}

/// Type and domain of each enabled entry.
fn entries(mut rest: &[u8]) -> impl Iterator<Item = (u8, u32)> {
    let next = move || {
        let length = usize::from(*rest.get(1)?).max(2);
        let (entry, after) = rest.split_at_checked(length)?;
        rest = after;
        Some(entry)
    };
    std::iter::from_fn(next).filter_map(|entry| {
        let word = |at: usize| Some(u32::from_le_bytes(entry.get(at..at + 4)?.try_into().ok()?));
        let (domain, flags) = match entry[0] {
            PROCESSOR => ((word(8)? & 0xffff_ff00) | u32::from(*entry.get(2)?), word(4)?),
            MEMORY => (word(2)?, word(28)?),
            X2APIC => (word(4)?, word(12)?),
            GENERIC_INITIATOR => (word(4)?, word(24)?),
            _ => return None,
        };
        (flags & 1 == 1).then_some((entry[0], domain))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: u8, length: usize, domain_at: usize, domain: u8, flags_at: usize, flags: u8) -> Vec<u8> {
        let mut entry = vec![0; length];
        (entry[0], entry[1]) = (kind, length as u8);
        (entry[domain_at], entry[flags_at]) = (domain, flags);
        entry
    }

    #[test]
    fn cpus_and_initiators_precede_memory() {
        let table = [
            vec![0; HEADER],
            entry(MEMORY, 40, 2, 3, 28, 1),
            entry(PROCESSOR, 16, 2, 1, 4, 1),
            entry(MEMORY, 40, 2, 1, 28, 1),
            entry(MEMORY, 40, 2, 7, 28, 0),
            entry(GENERIC_INITIATOR, 32, 4, 2, 24, 1),
            entry(X2APIC, 24, 4, 0, 12, 1),
        ];
        assert_eq!(in_order(&table.concat()), [1, 2, 0, 3]);
        assert_eq!(in_order(&table.concat()[..HEADER + 41]), [3], "an entry that is cut off");
        assert!(in_order(&[0; 10]).is_empty() && in_order(&[0; 100]).is_empty());
    }
}

//! Address maps and hashes: each line has a place of its own, or the device is refused.

use std::collections::BTreeSet;

use crate::channel_support::ddr4;
use memtide_core::machine::Dram;
use memtide_memory::channel::{AddressMap, Place};
use proptest::prelude::*;

/// A device of 2^12 lines: 1 bit of channel, rank and bank group, 2 of bank, 4 of row and 3 of column.
fn small(map: &str, hashes: Vec<String>, bank_hash: bool) -> Dram {
    Dram {
        channels: 2,
        ranks: 2,
        bank_groups: 2,
        banks: 4,
        rows: 16,
        row_bytes: 512,
        address_map: map.into(),
        address_hash: hashes,
        bank_hash,
        ..ddr4()
    }
}

fn places(dram: &Dram) -> Vec<(usize, Place)> {
    let map = AddressMap::new(dram);
    (0..map.lines()).map(|line| map.locate(line)).collect()
}

/// Value of a bit such as `row[2]` of a place before hashing.
fn bit(dram: &Dram, (channel, place): (usize, Place), name: &str) -> bool {
    let (what, bit) = name.trim().trim_end_matches(']').split_once('[').unwrap();
    let bank = u32::from(place.bank);
    let (banks, groups) = (u32::from(dram.banks), u32::from(dram.bank_groups));
    let value = match what {
        "channel" => channel as u32,
        "rank" => bank / banks / groups,
        "bank_group" => bank / banks % groups,
        "bank" => bank % banks,
        "row" => place.row,
        _ => place.column.into(),
    };
    value >> bit.parse::<u32>().unwrap() & 1 == 1
}

const TARGETS: [&str; 5] = ["channel[0]", "rank[0]", "bank_group[0]", "bank[0]", "bank[1]"];
const BITS: [&str; 12] = [
    "channel[0]",
    "rank[0]",
    "bank_group[0]",
    "bank[0]",
    "bank[1]",
    "row[0]",
    "row[1]",
    "row[2]",
    "row[3]",
    "column[0]",
    "column[1]",
    "column[2]",
];
const MAPS: [&str; 3] = [
    "row|rank|bank|bank_group|column|channel",
    "row:3|column:2|rank|bank:1|channel|bank_group|row|column|bank",
    "channel|rank|bank_group|bank|column|row",
];

/// Entries of `address_hash`: for some targets, a set of bits.
fn hashes() -> impl Strategy<Value = Vec<(&'static str, u16)>> {
    proptest::collection::vec(proptest::option::of(1..1u16 << BITS.len()), TARGETS.len())
        .prop_map(|sets| TARGETS.into_iter().zip(sets).filter_map(|(t, set)| Some((t, set?))).collect())
}

fn sources(set: u16) -> Vec<&'static str> {
    (0..BITS.len()).filter(|i| set >> i & 1 == 1).map(|i| BITS[i]).collect()
}

fn entries(hashes: &[(&str, u16)]) -> Vec<String> {
    hashes.iter().map(|&(target, set)| format!("{target} ^= {}", sources(set).join(" ^ "))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn hashes_are_accepted_exactly_if_each_line_has_its_own_place(
        hashes in hashes(), map in 0..MAPS.len(), bank_hash in any::<bool>()
    ) {
        let plain = small(MAPS[map], Vec::new(), false);
        let dram = small(MAPS[map], entries(&hashes), bank_hash);
        // Each hashed bit is its own XOR the parity of the named bits, all before hashing.
        let hashed = |&place: &(usize, Place)| {
            let parity = |set| sources(set).iter().filter(|name| bit(&plain, place, name)).count() % 2 == 1;
            let flipped = |name: &str| {
                let own = hashes.iter().any(|&(target, set)| target == name && parity(set));
                let row = match name {
                    "bank[0]" => bit(&plain, place, "row[0]"),
                    "bank[1]" => bit(&plain, place, "row[1]"),
                    "bank_group[0]" => bit(&plain, place, "row[2]"),
                    _ => false,
                };
                own ^ (bank_hash && row)
            };
            let [channel, rank, group, bank0, bank1] = TARGETS.map(|name| u16::from(flipped(name)));
            let flips = rank << 3 | group << 2 | bank1 << 1 | bank0;
            (place.0 ^ usize::from(channel), Place { bank: place.1.bank ^ flips, ..place.1 })
        };
        let expected: Vec<(usize, Place)> = places(&plain).iter().map(hashed).collect();
        let key = |&(channel, place): &(usize, Place)| (channel, place.bank, place.row, place.column);
        let different = expected.iter().map(key).collect::<BTreeSet<_>>().len();
        match dram.map_hashes() {
            Ok(_) => {
                prop_assert_eq!(different, expected.len());
                prop_assert_eq!(places(&dram), expected);
            }
            Err(message) => {
                prop_assert!(different < expected.len(), "{}", message);
                prop_assert!(message.contains("depend on each other"), "{}", message);
            }
        }
    }
}

#[test]
fn bank_hash_is_short_for_row_bits() {
    let entries = ["bank[0] ^= row[0]", "bank[1] ^= row[1]", "bank_group[0] ^= row[2]"].map(String::from);
    assert_eq!(places(&small(MAPS[0], entries.into(), false)), places(&small(MAPS[0], Vec::new(), true)));
}

#[test]
fn column_bits_spread_lines_of_a_row_over_channels() {
    // Without the hash, a stride of two lines stays in one channel.
    let strided = |hashes: Vec<String>| {
        let map = AddressMap::new(&small("row|rank|bank|bank_group|column|channel", hashes, false));
        (0..64).filter(|i| map.locate(2 * i).0 == 1).count()
    };
    assert_eq!(strided(Vec::new()), 0);
    assert_eq!(strided(vec!["channel[0] ^= column[0] ^ column[2] ^ row[1]".into()]), 32);
}

//! Cache colours and banks of page frames.

use std::collections::BTreeMap;

use memtide_core::machine::{Machine, bundled};
use memtide_core::policy::Frame;
use memtide_core::{LINE_BYTES, NodeId, PAGE_BYTES};
use memtide_memory::FrameMap;

const DRAM: NodeId = NodeId(0);
const NVM: NodeId = NodeId(1);

fn memos(scale: u32) -> Machine {
    let machine = bundled::machine("memos").unwrap().unwrap();
    Machine { scale, ..machine }.scaled()
}

#[test]
fn memos_machine_has_the_paper_s_colours_and_banks() {
    let map = FrameMap::new(&memos(1));
    assert_eq!((map.colours(), map.banks(DRAM), map.banks(NVM)), (16, 16, 8));
    assert_eq!(
        [map.bank_groups(DRAM), map.bank_groups(NVM)],
        [2, 1],
        "ranks; bits 12 to 14 choose sets, too"
    );
    // Address bits 15 to 18 are the colour, 12 to 14 the bank, 20 the rank.
    for address in [0u64, 0x7_f000, 0x1_5000, 0x12_3000, 0x7fff_f000] {
        let at = address / PAGE_BYTES;
        let (colour, bank) = ((address >> 15 & 15) as u16, (address >> 12 & 7) as u16);
        let rank = (address >> 20 & 1) as u16;
        assert_eq!(map.frame(NVM, at, at + (1 << 20)), Frame { colour: Some(colour), bank: Some(bank) });
        assert_eq!(map.frame(DRAM, at, at), Frame { colour: Some(colour), bank: Some(bank + 8 * rank) });
    }
}

#[test]
fn every_colour_and_bank_has_the_same_number_of_frames() {
    let map = FrameMap::new(&memos(4));
    for node in [DRAM, NVM] {
        let mut frames: BTreeMap<(u16, u16), u64> = BTreeMap::new();
        for at in 0..4096 {
            let frame = map.frame(node, at, at);
            *frames.entry((frame.colour.unwrap(), frame.bank.unwrap())).or_default() += 1;
        }
        let classes = usize::from(map.colours()) * usize::from(map.banks(node));
        assert_eq!(frames.len(), classes);
        assert!(frames.values().all(|&count| count == 4096 / classes as u64), "{frames:?}");
    }
}

#[test]
fn frames_of_two_colours_never_share_a_set() {
    let machine = memos(2);
    let map = FrameMap::new(&machine);
    let cache = machine.caches.last().unwrap();
    let sets = cache.capacity_kib * 1024 / LINE_BYTES / u64::from(cache.ways);
    let mut colours: BTreeMap<u64, u16> = BTreeMap::new();
    for at in 0..8192 {
        let colour = map.frame(DRAM, at, at).colour.unwrap();
        let first = at * PAGE_BYTES / LINE_BYTES % sets;
        assert_eq!(*colours.entry(first).or_insert(colour), colour);
    }
}

#[test]
fn machines_without_colours_or_banks_say_so() {
    let map = FrameMap::new(&memos(16));
    assert_eq!((map.colours(), map.frame(NVM, 3, 70_000)), (1, Frame { colour: None, bank: Some(3) }));
    let map = FrameMap::new(&bundled::machine("pms").unwrap().unwrap());
    assert_eq!(map.banks(DRAM), 1, "bank groups change within a page");
    assert_eq!(map.frame(DRAM, 5, 5).bank, None);
}

//! Cache colours and banks of page frames.
//!
//! ```text
//! bits of a frame number   ... 6 5 4 3 | 2 1 0
//! last-level cache's set       x x x x   x x x     (8 MiB, 16 ways)
//! bank                                   b b b
//! colour                       c c c c             the set's bits that choose no bank
//! ```

use memtide_core::machine::{Coordinate, Dram, Machine};
use memtide_core::policy::Frame;
use memtide_core::{LINE_BYTES, NodeId, PAGE_BYTES};

use crate::cache::sets;
use crate::channel::AddressMap;

const PAGE_LINES: u64 = PAGE_BYTES / LINE_BYTES;

/// The colour and bank of every page frame of a machine (memos section II-C, figure 2).
///
/// Colours are the values of those bits of a frame number that choose a set of the last-level cache but no
/// bank of any node: frames of two colours never share a set. A machine whose last level has fewer sets than
/// a page has lines, or a number of sets that is no power of two, has no colours. A node has banks here if
/// each of its frames lies in one.
#[derive(Clone, Debug)]
pub struct FrameMap {
    /// Bits of a frame's number in the machine, which form its colour.
    colour: u64,
    nodes: Vec<Option<Banks>>,
}

/// A node whose frames have a bank each.
#[derive(Clone, Debug)]
struct Banks {
    map: AddressMap,
    number: u16,
    groups: u16,
}

impl FrameMap {
    /// The frames of a machine.
    pub fn new(machine: &Machine) -> FrameMap {
        let drams = || machine.nodes.iter().filter_map(|node| node.dram.as_ref());
        let banks = drams().fold(0, |bits, dram| bits | bank_bits(dram));
        let last = machine.caches.last();
        let sets = last.map_or(1, |cache| sets(cache.capacity_kib, cache.ways));
        let sets = if sets.is_power_of_two() { sets - 1 } else { 0 };
        let nodes = machine.nodes.iter().map(|node| Banks::of(node.dram.as_ref()?, sets)).collect();
        FrameMap { colour: (sets & !banks) / PAGE_LINES, nodes }
    }

    /// Number of colours; 1 if the machine has none.
    pub fn colours(&self) -> u16 {
        1 << self.colour.count_ones().min(15)
    }

    /// Number of banks of a node, through its channels and ranks; 1 if its frames have none.
    pub fn banks(&self, node: NodeId) -> u16 {
        self.nodes[node.index()].as_ref().map_or(1, |banks| banks.number)
    }

    /// Number of groups of banks, by their highest bits, whose choice leaves all sets of the last-level cache
    /// to a page: those bits are above the cache's (memos' bank-group colours). 1 if there are none.
    pub fn bank_groups(&self, node: NodeId) -> u16 {
        self.nodes[node.index()].as_ref().map_or(1, |banks| banks.groups)
    }

    /// Colour and bank of the `at`th frame of a node, which has this number in the machine.
    pub fn frame(&self, node: NodeId, at: u64, number: u64) -> Frame {
        let colour = (self.colour != 0).then(|| gather(number, self.colour));
        Frame { colour, bank: self.nodes[node.index()].as_ref().map(|banks| banks.of_page(at)) }
    }
}

impl Banks {
    /// A node's banks, where `sets` are the bits of a line number that choose a set of the last-level cache.
    fn of(dram: &Dram, sets: u64) -> Option<Banks> {
        let map = AddressMap::new(dram);
        let number = u16::try_from(map.banks() * usize::from(dram.channels)).ok().filter(|&n| n > 1)?;
        // The map is linear over bits: what holds for one page holds for all.
        map.locate_page(0)?.1?;
        Some(Banks { map, number, groups: groups(dram, sets).min(number) })
    }

    fn of_page(&self, page: u64) -> u16 {
        let (channel, place) = self.map.locate(page * PAGE_LINES);
        (channel * self.map.banks()) as u16 + place.bank
    }
}

/// Bits of a line number that choose a channel, rank, bank group or bank.
fn bank_bits(dram: &Dram) -> u64 {
    let fields = dram.map_fields().expect("the machine's check accepts no other map");
    let of_bank = |what| !matches!(what, Coordinate::Row | Coordinate::Column);
    let mask = |bits: u8, shift: u8| ((1u64 << bits) - 1) << shift;
    fields.iter().filter(|f| of_bank(f.what)).fold(0, |all, f| all | mask(f.bits, f.shift))
}

/// Number of groups of banks that differ in the highest bits of their number alone, which choose no set.
fn groups(dram: &Dram, sets: u64) -> u16 {
    let fields = dram.map_fields().expect("the machine's check accepts no other map");
    let order = [Coordinate::Channel, Coordinate::Rank, Coordinate::BankGroup, Coordinate::Bank];
    let bits = order.into_iter().flat_map(|what| {
        let mut of: Vec<_> = fields.iter().filter(|f| f.what == what).collect();
        of.sort_by_key(|f| std::cmp::Reverse(f.into));
        of.into_iter().flat_map(|f| (f.shift..f.shift + f.bits).rev()).collect::<Vec<u8>>()
    });
    1 << bits.take_while(|&bit| sets >> bit & 1 == 0).count().min(15)
}

/// The bits of `number` under `mask`, packed.
fn gather(number: u64, mut mask: u64) -> u16 {
    let (mut packed, mut at) = (0, 0);
    while mask != 0 {
        packed |= ((number >> mask.trailing_zeros() & 1) as u16) << at;
        mask &= mask - 1;
        at += 1;
    }
    packed
}

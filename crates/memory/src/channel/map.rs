//! Maps line numbers to device coordinates.

use memtide_core::machine::{Coordinate, Dram, MapField, MapHash};
use memtide_core::{LINE_BYTES, PAGE_BYTES};

/// Coordinates of a line in a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Bank of the channel: `(rank * bank_groups + bank_group) * banks + bank`.
    pub bank: u16,
    /// Line of the row.
    pub column: u16,
    /// Row of the bank.
    pub row: u32,
}

/// The address map of a node: [`Dram::address_map`], [`Dram::bank_hash`] and [`Dram::address_hash`].
#[derive(Clone, Debug)]
pub struct AddressMap {
    /// Fields of the place, packed as given by [`ROW`] and [`COLUMN`], and of the channel.
    place: Vec<Field>,
    channel: Vec<Field>,
    bank_bits: u32,
    /// Bits of the row that are XORed into bank group and bank.
    hashed: u64,
    /// Parities that are XORed into the place and the channel.
    place_hashes: Vec<Parity>,
    channel_hashes: Vec<Parity>,
}

/// The parity of the bits `mask` of a line number, in position `at`.
#[derive(Clone, Copy, Debug)]
struct Parity {
    mask: u64,
    at: u32,
}

/// Positions of row and column in a packed place; the bank is below them.
const ROW: u32 = 32;
const COLUMN: u32 = 16;

/// The bits `mask` of a line number, rotated left into position.
#[derive(Clone, Copy, Debug)]
struct Field {
    mask: u64,
    left: u32,
}

impl Field {
    /// A field of a line number with its lowest bit at `at`.
    fn new(field: &MapField, at: u32) -> Field {
        let mask = ((1u64 << field.bits) - 1) << field.shift;
        Field { mask, left: (64 + at - u32::from(field.shift)) % 64 }
    }
}

impl AddressMap {
    /// The map of a device.
    ///
    /// # Panics
    /// If [`Dram::map_hashes`] rejects the device's `address_map` or `address_hash`, which checked machines
    /// exclude.
    pub fn new(dram: &Dram) -> AddressMap {
        let fields = dram.map_fields().expect("the machine's check accepts no other map");
        let hashes = dram.map_hashes().expect("the machine's check accepts no other hashes");
        let bits = |what| u32::from(dram.bits_of(what));
        let (banks, groups) = (bits(Coordinate::Bank), bits(Coordinate::BankGroup));
        let first = |what| match what {
            Coordinate::Channel | Coordinate::Bank => 0,
            Coordinate::BankGroup => banks,
            Coordinate::Rank => banks + groups,
            Coordinate::Column => COLUMN,
            Coordinate::Row => ROW,
        };
        let field = |f: MapField| (f.what, Field::new(&f, first(f.what) + u32::from(f.into)));
        let fields = fields.into_iter().filter(|f| f.bits > 0).map(field);
        let (channel, place): (Vec<_>, Vec<_>) = fields.partition(|(what, _)| *what == Coordinate::Channel);
        let parity = |hash: MapHash| Parity { mask: hash.lines, at: first(hash.what) + u32::from(hash.bit) };
        let (of_channel, of_place): (Vec<_>, Vec<_>) =
            hashes.into_iter().partition(|hash| hash.what == Coordinate::Channel);
        let bare = |fields: Vec<(Coordinate, Field)>| fields.into_iter().map(|(_, field)| field).collect();
        AddressMap {
            place: bare(place),
            channel: bare(channel),
            bank_bits: bits(Coordinate::Rank) + groups + banks,
            hashed: if dram.bank_hash { (1 << (groups + banks)) - 1 } else { 0 },
            place_hashes: of_place.into_iter().map(parity).collect(),
            channel_hashes: of_channel.into_iter().map(parity).collect(),
        }
    }

    /// Channel and place of a line of the node. Lines beyond the device's capacity wrap around.
    #[inline]
    pub fn locate(&self, line: u64) -> (usize, Place) {
        let packed = pack(&self.place, line);
        let row = packed >> ROW;
        let bank = packed ^ row & self.hashed ^ parities(&self.place_hashes, line);
        let place = Place { bank: bank as u16, column: (packed >> COLUMN) as u16, row: row as u32 };
        let channel = pack(&self.channel, line) ^ parities(&self.channel_hashes, line);
        (channel as usize, place)
    }

    /// Channel and bank of a whole page of the node, the bank only if all its lines are in one.
    pub fn locate_page(&self, page: u64) -> Option<(usize, Option<u16>)> {
        let lines = PAGE_BYTES / LINE_BYTES;
        let first = self.locate(page * lines);
        let (mut one_channel, mut one_bank) = (true, true);
        // The map is linear over bits: lines that differ in several bits of the page lie elsewhere only if
        // those that differ in one do.
        for bit in 0..lines.trailing_zeros() {
            let (channel, place) = self.locate(page * lines + (1 << bit));
            one_channel &= channel == first.0;
            one_bank &= place.bank == first.1.bank;
        }
        one_channel.then_some((first.0, one_bank.then_some(first.1.bank)))
    }

    /// Number of lines after which the map repeats: the device's capacity.
    pub fn lines(&self) -> u64 {
        1 << self.place.iter().chain(&self.channel).map(|f| f.mask.count_ones()).sum::<u32>()
    }

    /// Number of banks per channel.
    pub fn banks(&self) -> usize {
        1 << self.bank_bits
    }
}

#[inline]
fn pack(fields: &[Field], line: u64) -> u64 {
    fields.iter().fold(0, |packed, field| packed | (line & field.mask).rotate_left(field.left))
}

#[inline]
fn parities(hashes: &[Parity], line: u64) -> u64 {
    hashes.iter().fold(0, |bits, hash| bits | u64::from((line & hash.mask).count_ones() & 1) << hash.at)
}

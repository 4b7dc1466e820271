//! From line numbers to device coordinates.

use memtide_core::machine::{Coordinate, Dram, MapField};

/// Where a line lies in a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Bank of the channel: `(rank * bank_groups + bank_group) * banks + bank`.
    pub bank: u16,
    /// Line of the row.
    pub column: u16,
    /// Row of the bank.
    pub row: u32,
}

/// The address map of a node: [`Dram::address_map`] and [`Dram::bank_hash`].
#[derive(Clone, Debug)]
pub struct AddressMap {
    fields: Vec<Field>,
    bank_bits: u8,
    group_bits: u8,
    rank_bits: u8,
    bank_hash: bool,
}

/// Bits of a line number that are bits of a coordinate: those of `mask` after a shift to the right, shifted to the left.
#[derive(Clone, Copy, Debug)]
struct Field {
    mask: u32,
    right: u8,
    left: u8,
    what: Coordinate,
}

impl From<MapField> for Field {
    fn from(field: MapField) -> Field {
        let MapField { what, shift, bits, into } = field;
        Field { mask: ((1u64 << bits) - 1) as u32, right: shift, left: into, what }
    }
}

impl AddressMap {
    /// The map of a device.
    ///
    /// # Panics
    /// If the device's `address_map` is not one that [`Dram::map_fields`] accepts; a checked machine's is.
    pub fn new(dram: &Dram) -> AddressMap {
        let fields = dram.map_fields().expect("the machine's check accepts no other map");
        AddressMap {
            fields: fields.into_iter().filter(|f| f.bits > 0).map(Field::from).collect(),
            bank_bits: dram.bits_of(Coordinate::Bank),
            group_bits: dram.bits_of(Coordinate::BankGroup),
            rank_bits: dram.bits_of(Coordinate::Rank),
            bank_hash: dram.bank_hash,
        }
    }

    /// Channel and place of a line of the node. Lines beyond the device wrap around.
    #[inline]
    pub fn locate(&self, line: u64) -> (usize, Place) {
        let mut at = [0u32; 6];
        for field in &self.fields {
            at[field.what as usize] |= ((line >> field.right) as u32 & field.mask) << field.left;
        }
        let [channel, rank, group, bank, row, column] = at;
        let mut in_rank = (group << self.bank_bits) | bank;
        if self.bank_hash {
            in_rank ^= row & ((1 << (self.group_bits + self.bank_bits)) - 1);
        }
        let bank = (rank << (self.group_bits + self.bank_bits)) | in_rank;
        (channel as usize, Place { bank: bank as u16, column: column as u16, row })
    }

    /// Lines after which the map repeats: those of the whole device.
    pub fn lines(&self) -> u64 {
        1 << self.fields.iter().map(|f| f.mask.count_ones()).sum::<u32>()
    }

    /// Banks of a channel.
    pub fn banks(&self) -> usize {
        1 << (self.rank_bits + self.group_bits + self.bank_bits)
    }
}

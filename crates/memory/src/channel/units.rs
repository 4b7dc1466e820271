//! Banks and their subarrays. Inside the channel each subarray counts as a bank: it has a row buffer,
//! timings, requests and a candidate of its own. Banks without subarrays count as one.

use memtide_core::machine::{Coordinate, Dram};

use super::map::Place;
use super::observer::Banks;

/// Numbers the subarrays of a channel: `bank << shift | subarray`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Units {
    /// Log2 of the subarrays of a bank.
    pub shift: u32,
    /// Number of subarrays of the channel.
    pub count: usize,
    /// Position of the subarray in the row, and its mask after that shift.
    row_shift: u32,
    mask: u32,
}

impl Units {
    pub fn new(dram: &Dram) -> Units {
        let of_bank = dram.row_buffers();
        let shift = of_bank.trailing_zeros();
        Units {
            shift,
            count: dram.channel_banks() << shift,
            row_shift: u32::from(dram.bits_of(Coordinate::Row)) - shift,
            mask: u32::from(of_bank) - 1,
        }
    }

    /// The subarray of a place.
    #[inline]
    pub fn of(&self, place: Place) -> u16 {
        place.bank << self.shift | (place.row >> self.row_shift & self.mask) as u16
    }

    /// The bank of a subarray.
    #[inline]
    pub fn bank(&self, unit: u16) -> u16 {
        unit >> self.shift
    }

    /// The subarrays of some banks.
    pub fn of_banks(self, banks: Banks) -> impl Iterator<Item = u16> + Clone {
        banks.iter().flat_map(move |bank| bank << self.shift..(bank + 1) << self.shift)
    }

    /// The other subarrays of a subarray's bank.
    pub fn siblings(self, unit: u16) -> impl Iterator<Item = u16> {
        let first = self.bank(unit) << self.shift;
        (first..first + (1 << self.shift)).filter(move |&other| other != unit)
    }
}

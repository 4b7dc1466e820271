//! Occupancy of the controller's queues: entries of each bank, and shared ones for what they cannot hold.
//!
//! A request leaves its queue when a row is opened for it, or at its column command if the row was open.
//!
//! Invariant: of a bank's requests of one direction, all beyond its own entries are in shared entries. So
//! when an entry of a bank becomes free, the next of its requests moves there from the shared queue.

use memtide_core::machine::Dram;

#[derive(Clone, Debug)]
pub(super) struct Occupancy {
    /// Number of queued reads and writes.
    pub total: [u16; 2],
    /// Of which in shared entries.
    shared: [u16; 2],
    /// Of which for each bank, if banks have entries.
    of_bank: Vec<[u16; 2]>,
    /// Shared entries, and entries per bank.
    capacity: [u16; 2],
    bank_capacity: u16,
}

impl Occupancy {
    pub fn new(dram: &Dram) -> Occupancy {
        let banks = if dram.bank_queue == 0 { 0 } else { dram.channel_banks() };
        Occupancy {
            total: [0; 2],
            shared: [0; 2],
            of_bank: vec![[0; 2]; banks],
            capacity: [dram.read_queue, dram.write_queue],
            bank_capacity: dram.bank_queue,
        }
    }

    /// Number of entries.
    pub fn entries(&self) -> usize {
        let shared: usize = self.capacity.into_iter().map(usize::from).sum();
        shared + 2 * self.of_bank.len() * usize::from(self.bank_capacity)
    }

    /// Whether a request to a bank finds an entry.
    #[inline]
    pub fn has_room(&self, bank: u16, write: bool) -> bool {
        let way = usize::from(write);
        let own = self.of_bank.get(usize::from(bank));
        self.shared[way] < self.capacity[way] || own.is_some_and(|own| own[way] < self.bank_capacity)
    }

    /// Counts a request to a bank that enters.
    #[inline]
    pub fn enter(&mut self, bank: u16, write: bool) {
        let way = usize::from(write);
        self.total[way] += 1;
        let own = self.of_bank.get_mut(usize::from(bank)).map(|own| {
            own[way] += 1;
            own[way]
        });
        self.shared[way] += u16::from(own.is_none_or(|own| own > self.bank_capacity));
    }

    /// Counts a request to a bank that leaves.
    #[inline]
    pub fn leave(&mut self, bank: u16, write: bool) {
        let way = usize::from(write);
        self.total[way] -= 1;
        let own = self.of_bank.get_mut(usize::from(bank)).map(|own| {
            own[way] -= 1;
            own[way]
        });
        self.shared[way] -= u16::from(own.is_none_or(|own| own >= self.bank_capacity));
    }
}

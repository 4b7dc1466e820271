//! Requests in the read and write queues: a pool of slots, in one list per bank and direction.

use super::map::Place;

/// No slot.
pub(super) const NONE: u16 = u16::MAX;

/// State of the bank when it first took a command for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowState {
    /// The request's row was open.
    Hit,
    /// No row was open.
    Miss,
    /// Another row was open.
    Conflict,
}

/// A request in a queue.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub id: u64,
    pub row: u32,
    /// Its age: order of arrival.
    pub age: u32,
    pub column: u16,
    pub row_state: RowState,
    next: u16,
}

/// A bank's requests of one direction, oldest first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fifo {
    pub head: u16,
    tail: u16,
}

impl Fifo {
    pub const EMPTY: Fifo = Fifo { head: NONE, tail: NONE };
}

/// The slots.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u16>,
    next_age: u32,
}

impl Slots {
    pub fn new(capacity: usize) -> Slots {
        let empty = Slot { id: 0, row: 0, age: 0, column: 0, row_state: RowState::Hit, next: NONE };
        Slots { slots: vec![empty; capacity], free: (0..capacity as u16).rev().collect(), next_age: 0 }
    }

    #[inline]
    pub fn get(&self, slot: u16) -> &Slot {
        &self.slots[usize::from(slot)]
    }

    #[inline]
    pub fn get_mut(&mut self, slot: u16) -> &mut Slot {
        &mut self.slots[usize::from(slot)]
    }

    /// Appends a request; a slot must be free.
    #[inline]
    pub fn append(&mut self, fifo: &mut Fifo, id: u64, place: Place) -> u16 {
        let slot = self.free.pop().expect("requests are admitted only while a slot is free");
        let age = self.next_age;
        self.next_age += 1;
        *self.get_mut(slot) =
            Slot { id, row: place.row, age, column: place.column, row_state: RowState::Hit, next: NONE };
        match fifo.tail {
            NONE => fifo.head = slot,
            tail => self.get_mut(tail).next = slot,
        }
        fifo.tail = slot;
        slot
    }

    /// Removes a request from its list.
    #[inline]
    pub fn remove(&mut self, fifo: &mut Fifo, slot: u16) {
        debug_assert!(self.iter(*fifo).any(|queued| queued == slot), "a request of another list");
        let next = self.get(slot).next;
        let mut before = NONE;
        if fifo.head == slot {
            fifo.head = next;
        } else {
            before = fifo.head;
            while self.get(before).next != slot {
                before = self.get(before).next;
            }
            self.get_mut(before).next = next;
        }
        if fifo.tail == slot {
            fifo.tail = before;
        }
        self.free.push(slot);
    }

    /// The oldest request for a row in a list.
    #[inline]
    pub fn first_of_row(&self, fifo: Fifo, row: u32) -> Option<u16> {
        self.iter(fifo).find(|&slot| self.get(slot).row == row)
    }

    /// Whether a list has a request for a line.
    #[inline]
    pub fn has_line(&self, fifo: Fifo, place: Place) -> bool {
        self.iter(fifo).any(|slot| (self.get(slot).row, self.get(slot).column) == (place.row, place.column))
    }

    /// A list's slots, oldest first.
    #[inline]
    pub fn iter(&self, fifo: Fifo) -> impl Iterator<Item = u16> + '_ {
        let known = |slot: u16| (slot != NONE).then_some(slot);
        std::iter::successors(known(fifo.head), move |&slot| known(self.get(slot).next))
    }

    /// Age of the next request.
    pub fn next_age(&self) -> u32 {
        self.next_age
    }

    /// Moves the base of ages forward by `by`, at most the lowest one in use.
    pub fn rebase_ages(&mut self, by: u32) {
        debug_assert!(by <= self.next_age, "an age that was not assigned");
        self.next_age -= by;
        for slot in &mut self.slots {
            slot.age = slot.age.saturating_sub(by);
        }
    }
}

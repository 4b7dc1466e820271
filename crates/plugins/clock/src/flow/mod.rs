//! When the values that a virtual CPU computes with are known: dependences through registers, flags and
//! memory.
//!
//! A load's value is known when its line is there and its address is; a computed value when all are that it
//! is made of. An access waits for its address:
//!
//! ```text
//! mov rcx, [rax]        rcx at 300 ns, a miss
//! mov [rsp+8], rcx      word rsp+8 at 300 ns
//! mov rdx, [rsp+8]      rdx at 300 ns, a hit: store to load forwarding
//! mov rbx, [rdx]        begins at 300 ns
//! ```
//!
//! Times are kept for each register, for the loads of the current [`Segment`], for stored words and for lines
//! in flight. Only times after the CPU's own matter: the CPU is *busy* until the last one has come, and only
//! then its blocks and hits are followed. This changes no result, as an access never begins before its CPU's
//! time. A CPU becomes busy within a segment, with all other values known.
//!
//! Words and lines have few places each, and a later one takes the place of an earlier one with the same low
//! bits: the earlier one is then known at once.

use std::ptr::NonNull;

use memtide_core::Time;
use memtide_dataflow::REGISTERS;

use crate::lab::Took;
use crate::op::{Block, Op, REGISTER_SLOTS, SLOTS, Segment, Slots};

/// Places of stored words; a power of two.
const WORDS: usize = 256;

/// Places of lines in flight; a power of two.
const LINES: usize = 256;

/// Where an operand is.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Guest-physical address / 8.
    pub word: u64,
    /// Whether it is stored.
    pub write: bool,
}

impl Place {
    /// The operand at an address of a line.
    #[inline]
    pub fn new(line: u64, address: u64, write: bool) -> Place {
        Place { word: (line << 3) | ((address >> 3) % 8), write }
    }

    /// Its line.
    #[inline]
    pub fn line(self) -> u64 {
        self.word >> 3
    }
}

/// Times at which a virtual CPU's values are known.
#[derive(Debug)]
pub struct Flow {
    /// The segment that it executes while it is busy.
    segment: Option<NonNull<Segment>>,
    /// No value and no line comes later.
    until: Time,
    /// The CPU's time at its block.
    now: Time,
    /// Slots of the segment whose values came later than `now` when they were set.
    pending: Slots,
    /// No pending value comes before.
    next: Time,
    /// When they come.
    values: [Time; SLOTS],
    /// When those come that a segment changes, in their order, while the next one is begun.
    new: [Time; REGISTERS],
    words: [(u64, Time); WORDS],
    lines: [(u64, Time); LINES],
}

impl Flow {
    /// Of a CPU that is not busy.
    pub const fn new() -> Flow {
        Flow {
            segment: None,
            until: Time::ZERO,
            now: Time::ZERO,
            pending: 0,
            next: Time::NEVER,
            values: [Time::ZERO; SLOTS],
            new: [Time::ZERO; REGISTERS],
            words: [(u64::MAX, Time::ZERO); WORDS],
            lines: [(u64::MAX, Time::ZERO); LINES],
        }
    }

    /// Whether some value or line may come after the CPU's time.
    #[inline(always)]
    pub fn is_busy(&self) -> bool {
        self.segment.is_some()
    }

    /// Forgets everything.
    pub fn reset(&mut self) {
        self.segment = None;
        self.until = Time::ZERO;
    }

    /// The CPU starts a block at a time; returns whether it is still busy.
    #[inline]
    pub fn block(&mut self, block: &Block, now: Time) -> bool {
        if self.until <= now {
            self.segment = None;
        }
        let Some(segment) = self.segment else { return false };
        self.now = now;
        if self.next <= now {
            self.settle();
        }
        // SAFETY: blocks live until `Blocks::clear`, before which the flow is reset.
        self.leave(unsafe { segment.as_ref() }, block.first);
        true
    }

    /// When the address of an access is known; zero if it is already.
    #[inline]
    pub fn address(&mut self, op: &Op, write: bool) -> Time {
        if !self.is_busy() {
            return Time::ZERO;
        }
        self.reach(op);
        self.of(if write { op.store_address } else { op.load_address })
    }

    /// When a line arrives in the private caches; zero if it has.
    #[inline]
    pub fn arrival(&self, line: u64) -> Time {
        let (held, at) = self.lines[line as usize % LINES];
        if held == line { at } else { Time::ZERO }
    }

    /// An access took time. Returns whether the CPU became busy.
    pub fn ends(&mut self, op: &Op, place: Place, took: Took) -> bool {
        let Took { now, end, missed } = took;
        let begins = !self.is_busy() && end > now;
        if begins {
            (self.now, self.pending, self.next) = (now, 0, Time::NEVER);
            self.segment = Some(op.segment);
        }
        if missed {
            self.lines[place.line() as usize % LINES] = (place.line(), end);
            self.until = self.until.max(end);
        }
        if self.is_busy() {
            self.transfer(op, place, end);
        }
        begins
    }

    /// An access of a busy CPU hits the first cache.
    #[inline(never)]
    pub fn hits(&mut self, op: &Op, place: Place) {
        self.reach(op);
        self.transfer(op, place, self.arrival(place.line()));
    }

    /// Moves an access's value, given when its line is there.
    #[inline(always)]
    fn transfer(&mut self, op: &Op, place: Place, end: Time) {
        let words = place.word..place.word + u64::from(op.words);
        if place.write {
            let value = self.of(op.stored);
            words.for_each(|word| self.words[word as usize % WORDS] = (word, value));
            return;
        }
        let Some(load) = op.load() else { return };
        let stored = words.map(|word| match self.words[word as usize % WORDS] {
            (held, at) if held == word => at,
            _ => Time::ZERO,
        });
        let value = stored.fold(end.max(self.of(op.combined)), Time::max);
        if value > self.now {
            // QEMU reports a wide operand in pieces.
            self.set(load, value.max(self.of(1 << load)));
        }
    }

    /// Goes on to the segment of an access.
    #[inline]
    fn reach(&mut self, op: &Op) {
        if let Some(segment) = self.segment
            && segment != op.segment
        {
            // SAFETY: as in `block`.
            self.leave(unsafe { segment.as_ref() }, op.segment);
        }
    }

    /// Goes from a segment to the next one, whose loads are still to come.
    #[inline]
    fn leave(&mut self, segment: &Segment, next: NonNull<Segment>) {
        if self.pending & segment.made_of != 0 {
            self.apply(segment);
        } else {
            self.pending &= !segment.changed;
        }
        self.pending &= REGISTER_SLOTS;
        self.segment = Some(next);
    }

    /// Changes a segment's registers at once. Without branches on what is pending, which are hard to
    /// predict.
    #[inline(never)]
    fn apply(&mut self, segment: &Segment) {
        let (mut changed, mut waiting) = (segment.changed, 0);
        for (new, made_of) in self.new.iter_mut().zip(&segment.changes) {
            let pending = made_of & self.pending;
            *new = latest(&self.values, pending);
            waiting |= if pending != 0 { changed & changed.wrapping_neg() } else { 0 };
            changed &= changed.wrapping_sub(1);
        }
        self.pending = self.pending & !segment.changed | waiting;
        let mut new = self.new.iter();
        slots(segment.changed, |register| {
            if let Some(&new) = new.next() {
                self.values[register] = new;
            }
        });
    }

    /// Drops the pending values that have come.
    #[inline(never)]
    fn settle(&mut self) {
        let (mut pending, mut next) = (0, Time::NEVER);
        slots(self.pending, |slot| {
            let time = self.values[slot];
            if time > self.now {
                pending |= 1 << slot;
                next = next.min(time);
            }
        });
        (self.pending, self.next) = (pending, next);
    }

    /// Sets a value that comes later than `now`.
    #[inline]
    fn set(&mut self, slot: usize, time: Time) {
        self.pending |= 1 << slot;
        self.values[slot] = time;
        self.next = self.next.min(time);
        self.until = self.until.max(time);
    }

    /// When a value made of these slots is known; any time up to `now` if it is already.
    #[inline(always)]
    fn of(&self, made_of: Slots) -> Time {
        match made_of & self.pending {
            0 => Time::ZERO,
            pending => latest(&self.values, pending),
        }
    }
}

/// The latest time of a set of slots, mostly one; any if it is empty.
#[inline(always)]
fn latest(values: &[Time; SLOTS], set: Slots) -> Time {
    let mut latest = values[set.trailing_zeros() as usize % SLOTS];
    slots(set & set.wrapping_sub(1), |slot| latest = latest.max(values[slot]));
    latest
}

/// Visits the slots of a set.
#[inline(always)]
fn slots(mut set: Slots, mut visit: impl FnMut(usize)) {
    while set != 0 {
        visit(set.trailing_zeros() as usize % SLOTS);
        set &= set - 1;
    }
}

#[cfg(test)]
mod tests;

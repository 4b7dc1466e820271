//! A core's window of unfinished accesses: which accesses an out-of-order core overlaps, and which it waits
//! for.
//!
//! Not an instruction-by-instruction pipeline: each access is handled once, when it is dispatched, in program
//! order. Its end is a time if known, and otherwise a time after the end of a slot's miss. Five limits apply
//! to the overlap:
//!
//! ```text
//!          dispatch           place           begin_miss          shared levels
//! program ---------> reorder -------> slots -----------> miss registers ----> resolve(slot, end)
//!  order             buffer, store     ^       \ queue:    as many as the   ready:   |
//!                    queue (leave      |        \ none free core has misses by time  |
//!                    in order)         |         `-> waits                           |
//!                                      |                  waiters begin               |
//!                                      `---------------------------------------------'
//! ```
//!
//! - *Reorder buffer*: an instruction is dispatched only once the load that is `reorder_buffer` instructions
//!   older has ended. An access may come later than that instruction: those between them follow the wait.
//! - *Store queue*: a store is dispatched only once the store that is `store_queue` stores older has left:
//!   its line and those of all older stores are there.
//! - *Slots*: open misses. An [`End`] names slot and generation, so a miss whose slot has been reused counts
//!   as ended long ago, and needs no notification. Hits take none: their ends follow from those of misses.
//! - *Miss registers*: a miss, or the posted write of a line, without one waits in `queue`, first come, first
//!   served, and inherits the end of the miss that frees one.
//! - *Dependences*: an access with a loaded address begins when that load ends. Waiters need no lists:
//!   `waiting` has a bit per slot, and each waiting slot names the one slot it is `on`.
//!
//! Invariants: a slot is in exactly one of `waiting`, `queue`, `ready` and the shared levels as long as its
//! end is [`Time::NEVER`], and in none otherwise; `held` counts the registers that are [`Time::NEVER`];
//! `ready` is in time order. If a result is not known yet, a method returns `None` and `awaited` names the
//! slot: the core stops, and resumes once that slot is resolved.
//!
//! Why: ends become known in any order, and mostly long after the access, but the core's own work does not
//! depend on them until it reaches one of the five limits. So it runs ahead of the memory system, as far as a
//! real core would.

use std::collections::VecDeque;

use memtide_core::Time;
use memtide_core::machine;

use super::Clock;
use super::in_order::InOrder;

/// Maximum open accesses of a core.
const SLOTS: usize = 64;

/// Maximum distance of a dependence in accesses; older loads have ended, since no reorder buffer holds more.
const RECENT: usize = 256;

/// The end of an access: a time and, while that is not known, another one after the end of a slot's miss; the
/// later of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    floor: Time,
    /// Picoseconds after the end of the miss.
    offset: u32,
    /// Generation and slot of the miss, or [`KNOWN`].
    miss: u32,
}

const KNOWN: u32 = u32::MAX;

impl End {
    pub const fn at(time: Time) -> End {
        End { floor: time, offset: 0, miss: KNOWN }
    }

    /// Whether the end is known and not after `time`.
    #[inline]
    pub fn is_before(self, time: Time) -> bool {
        self.is_known() && self.floor <= time
    }

    fn of_miss(slot: u8, generation: u32) -> End {
        End { floor: Time::ZERO, offset: 0, miss: generation << 8 | u32::from(slot) }
    }

    #[inline]
    fn is_known(self) -> bool {
        self.miss == KNOWN
    }

    #[inline]
    fn slot(self) -> u8 {
        self.miss as u8
    }

    /// The end of what begins then, but not before `earliest`, and takes a time.
    #[inline]
    pub(super) fn then(self, earliest: Time, takes: Time) -> End {
        let floor = self.floor.max(earliest) + takes;
        if self.is_known() {
            return End::at(floor);
        }
        End { floor, offset: self.offset.saturating_add(takes.0 as u32), ..self }
    }

    /// The later of two ends; of two misses, the first one's.
    #[inline]
    pub(super) fn and(self, other: End) -> End {
        let floor = self.floor.max(other.floor);
        if self.is_known() { End { floor, ..other } } else { End { floor, ..self } }
    }
}

/// A miss without a known end in the past.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Its end; [`Time::NEVER`] while unknown.
    end: Time,
    generation: u32,
    /// The slot that it waits for, if it is in `waiting`, and how long after its end it begins.
    on: u8,
    offset: u32,
    /// Its earliest start.
    earliest: Time,
    /// It goes to the shared levels this long after its start, once its address is translated.
    translation: Time,
    /// Its miss register.
    register: u8,
    /// Whether it is the posted write of a line, instead of an access.
    posted: bool,
    /// Whether it is a store.
    store: bool,
    line: u64,
}

/// The window. Its time never decreases, but ends become known in any order.
#[derive(Debug)]
pub(crate) struct Window {
    slots: [Slot; SLOTS],
    next_slot: u8,
    waiting: u64,
    /// The reorder buffer: loads that may not have ended.
    instructions: InOrder,
    /// The last instruction that it held up, and until when.
    held_up: (u64, Time),
    /// When the instruction was dispatched that was held up with it.
    held_until: Time,
    /// When the last of the instructions and stores that are in neither queue any more ended.
    retired: Time,
    left: Time,
    /// The store queue: stores whose line may not have arrived.
    stores: InOrder,
    recent: [End; RECENT],
    position: usize,
    /// When each miss register becomes free.
    registers: Vec<Time>,
    /// Number of registers for which that is unknown.
    held: usize,
    /// Misses that wait for a register.
    queue: VecDeque<u8>,
    /// Misses to send to the shared levels, in time order.
    ready: VecDeque<(Time, u8)>,
    /// The slot that must be resolved before the next dispatch.
    awaited: u8,
    /// The last miss of each group of lines with equal low bits.
    lines: [(u64, End); SLOTS],
    /// See [`Window::be_lenient`].
    is_lenient: bool,
}

const NO_REGISTER: u8 = u8::MAX;

impl Window {
    pub fn new(core: &machine::Core) -> Window {
        let free = Slot {
            end: Time::ZERO,
            generation: 0,
            on: 0,
            offset: 0,
            earliest: Time::ZERO,
            translation: Time::ZERO,
            register: NO_REGISTER,
            posted: false,
            store: false,
            line: 0,
        };
        Window {
            slots: [free; SLOTS],
            next_slot: 0,
            waiting: 0,
            instructions: InOrder::new(core.reorder_buffer.into()),
            held_up: (0, Time::ZERO),
            held_until: Time::ZERO,
            retired: Time::ZERO,
            left: Time::ZERO,
            stores: InOrder::new(core.store_queue.into()),
            recent: [End::at(Time::ZERO); RECENT],
            position: 0,
            registers: vec![Time::ZERO; core.outstanding_misses.min(SLOTS as u16).into()],
            held: 0,
            queue: VecDeque::with_capacity(SLOTS),
            awaited: 0,
            ready: VecDeque::with_capacity(SLOTS),
            lines: [(u64::MAX, End::at(Time::ZERO)); SLOTS],
            is_lenient: false,
        }
    }

    /// A hit with both its address and its line on their way always waits for its address alone, not only as
    /// long as both ends are unknown: so it ends no later than in any other run.
    pub fn be_lenient(&mut self) {
        self.is_lenient = true;
    }

    /// Earliest start of an instruction at or after the clock's time, given the reorder buffer; `None` while
    /// unknown. The instruction that waits is the one `reorder_buffer` after the load; those between it and
    /// this one follow at the core's full rate.
    #[inline]
    pub fn dispatch(&mut self, instruction: u64, clock: &Clock) -> Option<Time> {
        let mut now = clock.now();
        // Unless the clock has gone past it, that wait is still to come.
        if self.held_until > now {
            let (held_up, until) = self.held_up;
            now = now.max(until + clock.takes(instruction - held_up));
        }
        while let Some((first, end)) = self.instructions.before(instruction) {
            let until = self.known(end)?;
            let held = until + clock.takes(instruction - first);
            if held > now {
                (now, self.held_until, self.held_up) = (held, held, (first, until));
            }
            self.instructions.pop();
        }
        Some(now)
    }

    /// The last instruction that the reorder buffer held up.
    #[inline]
    pub fn held_up(&self) -> u64 {
        self.held_up.0
    }

    /// Earliest dispatch of a store at or after `now`, given the store queue; `None` while unknown. If an
    /// earlier store has waited, `since` says how long before this one that was dispatched.
    #[inline]
    pub fn dispatch_store(&mut self, number: u64, now: Time, since: impl Fn(u64) -> Time) -> Option<Time> {
        while let Some((first, end)) = self.stores.before(number) {
            self.left = self.left.max(self.known(end)? + since(number - first));
            self.stores.pop();
        }
        Some(now.max(self.left))
    }

    /// When everything dispatched so far has retired, and not before `now`; `None` while unknown.
    pub fn drain(&mut self, now: Time) -> Option<Time> {
        while let Some((_, end)) = self.instructions.before(u64::MAX) {
            self.retired = self.retired.max(self.known(end)?);
            self.instructions.pop();
        }
        Some(now.max(self.retired))
    }

    /// When also all stores have ended; `None` while unknown.
    pub fn drain_stores(&mut self, now: Time) -> Option<Time> {
        let mut now = now;
        for (number, slot) in (0..).zip(&self.slots) {
            if slot.end == Time::NEVER {
                self.awaited = number;
                return None;
            }
            now = now.max(slot.end);
        }
        Some(now)
    }

    /// Earliest dispatch of an access at or after `now`, given the slots; `None` while unknown. If all are
    /// open, the access takes the one that has been open longest.
    #[inline]
    pub fn place(&mut self, now: Time) -> Option<Time> {
        let next = usize::from(self.next_slot);
        let mut in_turn = (next..SLOTS).chain(0..next);
        if let Some(ended) = in_turn.find(|&slot| self.slots[slot].end <= now) {
            self.next_slot = ended as u8;
            return Some(now);
        }
        self.awaited = self.next_slot;
        let free = self.slots[next].end;
        (free != Time::NEVER).then(|| now.max(free))
    }

    /// Whether the last access can be dispatched now.
    #[inline]
    pub fn can_go_on(&self) -> bool {
        self.slots[usize::from(self.awaited)].end != Time::NEVER
    }

    /// The end of the access `distance` accesses ago; 0 and distances beyond the limit have ended.
    #[inline]
    pub fn producer(&self, distance: u32) -> End {
        match distance as usize {
            0 => End::at(Time::ZERO),
            distance if distance > RECENT => End::at(Time::ZERO),
            distance => self.recent[(self.position + RECENT - distance) % RECENT],
        }
    }

    /// The end of an access that hits a private cache. If both its address and its line are on their way, it
    /// waits for its address.
    #[inline]
    pub fn hit(&mut self, line: u64, earliest: Time, latency: Time, producer: End) -> End {
        let produced = if self.is_lenient { producer } else { self.settled(producer) };
        let own = produced.then(earliest, latency);
        let (held, filled) = &self.lines[line as usize % SLOTS];
        if *held != line || self.is_lenient && !own.is_known() {
            return own;
        }
        own.and(self.settled(*filled))
    }

    /// Adds an access that misses the private caches, after its address is known and translated; returns its
    /// end.
    pub fn miss(&mut self, line: u64, earliest: Time, translation: Time, producer: End) -> End {
        let end = self.open(line, earliest, translation, producer, false);
        self.lines[line as usize % SLOTS] = (line, end);
        end
    }

    /// Adds the posted write of a write-combining buffer's line. No access waits for it, but it takes a slot
    /// and a miss register until its node has accepted it.
    pub fn write(&mut self, line: u64, earliest: Time, translation: Time, producer: End) {
        self.open(line, earliest, translation, producer, true);
    }

    /// Records the end of the last access, for dependent ones.
    #[inline]
    pub fn remember(&mut self, end: End) {
        self.recent[self.position] = end;
        self.position = (self.position + 1) % RECENT;
    }

    /// Delays retirement of a load's instruction until the load has ended.
    #[inline]
    pub fn must_retire(&mut self, instruction: u64, end: End) {
        self.instructions.push(instruction, end);
    }

    /// Keeps a store, and all later ones, in the store queue until its line has arrived.
    #[inline]
    pub fn must_leave(&mut self, store: u64, end: End) {
        if !end.is_known() {
            self.slots[usize::from(end.slot())].store = true;
        }
        self.stores.push(store, end);
    }

    /// Clears dependences: another thread runs from here on.
    pub fn forget(&mut self) {
        self.recent = [End::at(Time::ZERO); RECENT];
    }

    /// When the next miss goes to the shared levels.
    #[inline]
    pub fn next_miss(&self) -> Time {
        self.ready.front().map_or(Time::NEVER, |&(time, _)| time)
    }

    /// Takes the next miss.
    pub fn take_miss(&mut self) -> Option<(Time, u8)> {
        self.ready.pop_front()
    }

    /// The line of a slot's access, and whether that is a posted write.
    pub fn line_of(&self, slot: u8) -> (u64, bool) {
        let Slot { line, posted, .. } = self.slots[usize::from(slot)];
        (line, posted)
    }

    /// Whether a slot's access is a store.
    pub fn is_store(&self, slot: u8) -> bool {
        self.slots[usize::from(slot)].store
    }

    /// Sets the end of a slot's access, and starts all that waited for it.
    pub fn resolve(&mut self, slot: u8, end: Time) {
        debug_assert!(self.slots[usize::from(slot)].end == Time::NEVER, "an access ends twice");
        debug_assert!(self.waiting >> slot & 1 == 0, "an access ends that has not begun");
        self.slots[usize::from(slot)].end = end;
        self.release_register(slot);
        let mut left = self.waiting;
        while left != 0 {
            let other = left.trailing_zeros() as u8;
            left &= left - 1;
            let waiter = &self.slots[usize::from(other)];
            if waiter.on == slot {
                self.waiting &= !(1 << other);
                let begin = waiter.earliest.max(end + Time(waiter.offset.into()));
                self.begin_miss(other, begin + waiter.translation);
            }
        }
    }

    /// An end's time; `None`, and the slot is awaited, while unknown.
    #[inline]
    fn known(&mut self, end: End) -> Option<Time> {
        let end = self.settled(end);
        if end.is_known() {
            return Some(end.floor);
        }
        self.awaited = end.slot();
        None
    }

    /// An end as a time, if it is known by now.
    #[inline]
    fn settled(&self, end: End) -> End {
        if end.is_known() {
            return end;
        }
        let slot = &self.slots[usize::from(end.slot())];
        if slot.generation != end.miss >> 8 {
            return End::at(end.floor);
        }
        if slot.end == Time::NEVER { end } else { End::at(end.floor.max(slot.end + Time(end.offset.into()))) }
    }

    fn open(&mut self, line: u64, earliest: Time, translation: Time, producer: End, posted: bool) -> End {
        debug_assert!(self.slots[usize::from(self.next_slot)].end != Time::NEVER);
        let produced = self.settled(producer);
        let new = self.next_slot;
        self.next_slot = (new + 1) % SLOTS as u8;
        let slot = &mut self.slots[usize::from(new)];
        let generation = slot.generation.wrapping_add(1) & 0x00ff_ffff;
        let earliest = earliest.max(produced.floor);
        *slot = Slot {
            end: Time::NEVER,
            generation,
            on: produced.slot(),
            offset: produced.offset,
            earliest,
            translation,
            register: NO_REGISTER,
            posted,
            store: false,
            line,
        };
        if produced.is_known() {
            self.begin_miss(new, earliest + translation);
        } else {
            debug_assert!(produced.slot() != new, "nothing would wake it");
            self.waiting |= 1 << new;
        }
        End::of_miss(new, generation)
    }

    fn begin_miss(&mut self, slot: u8, time: Time) {
        self.slots[usize::from(slot)].earliest = time;
        if self.held == self.registers.len() {
            return self.queue.push_back(slot);
        }
        let unused = self.registers.iter().position(|&free| free <= time);
        let first = || (0..self.registers.len()).min_by_key(|&register| self.registers[register]);
        if let Some(register) = unused.or_else(first) {
            self.take_register(slot, register as u8, self.registers[register]);
        }
    }

    fn take_register(&mut self, slot: u8, register: u8, free: Time) {
        debug_assert!(self.registers[usize::from(register)] != Time::NEVER, "a register with two misses");
        self.registers[usize::from(register)] = Time::NEVER;
        self.held += 1;
        let taken = &mut self.slots[usize::from(slot)];
        taken.register = register;
        let time = taken.earliest.max(free);
        self.ready.push_back((time, slot));
        let mut at = self.ready.len() - 1;
        while at > 0 && self.ready[at - 1].0 > time {
            self.ready.swap(at - 1, at);
            at -= 1;
        }
    }

    fn release_register(&mut self, slot: u8) {
        let Slot { register, end, .. } = self.slots[usize::from(slot)];
        if register == NO_REGISTER {
            return;
        }
        self.registers[usize::from(register)] = end;
        debug_assert!(self.held > 0, "a register is freed twice");
        self.held -= 1;
        if let Some(next) = self.queue.pop_front() {
            self.take_register(next, register, end);
        }
    }
}

#[cfg(test)]
mod tests;

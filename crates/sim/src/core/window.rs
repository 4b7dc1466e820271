//! A core's window of unfinished accesses: which accesses an out-of-order core overlaps, and which it waits
//! for.
//!
//! Not an instruction-by-instruction pipeline: each access is handled once, when it is dispatched, in program
//! order. Its end is a time if known, and otherwise the slot that will know it. Five limits apply to the
//! overlap:
//!
//! ```text
//!          dispatch           place           begin_miss          shared levels
//! program ---------> reorder -------> slots -----------> miss registers ----> resolve(slot, end)
//!  order             buffer, store     ^       \ queue:    as many as the   ready:   |
//!                    queue (leave      |        \ none free core has misses by time  |
//!                    in order)         |         `-> waits                           |
//!                                      |      waiters begin: hits end, misses go on  |
//!                                      `---------------------------------------------'
//! ```
//!
//! - *Reorder buffer*: an instruction is dispatched only once the load that is `reorder_buffer` instructions
//!   older has ended. An access may come later than that instruction: those between them follow the wait.
//! - *Store queue*: a store is dispatched only once the store that is `store_queue` stores older has left:
//!   its line and those of all older stores are there.
//! - *Slots*: open accesses. An [`End`] names slot and generation, so an access whose slot has been reused
//!   counts as ended long ago, and needs no notification.
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

/// The end of an access: a time, or the slot that will know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End(u64);

const OPEN: u64 = 1 << 63;

impl End {
    pub fn at(time: Time) -> End {
        End(time.0)
    }

    /// Whether the end is known and not after `time`.
    #[inline]
    pub fn is_before(self, time: Time) -> bool {
        self.0 <= time.0
    }

    fn open(slot: u8, generation: u32) -> End {
        End(OPEN | u64::from(generation) << 8 | u64::from(slot))
    }
}

/// An access without a known end in the past.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Its end; [`Time::NEVER`] while unknown.
    end: Time,
    generation: u32,
    /// The slot that it waits for, if it is in `waiting`.
    on: u8,
    /// Its earliest start.
    earliest: Time,
    kind: Kind,
    /// Its miss register.
    register: u8,
    /// Whether it is the posted write of a line, instead of an access.
    posted: bool,
    line: u64,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Ends this long after its start.
    Hit(Time),
    /// Goes to the shared levels this long after its start, once its address is translated.
    Miss(Time),
}

/// The window. Its time never decreases, but ends become known in any order.
#[derive(Debug)]
pub(crate) struct Window {
    slots: [Slot; SLOTS],
    next_slot: u8,
    waiting: u64,
    /// The reorder buffer: loads that may not have ended.
    instructions: InOrder,
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
}

const NO_REGISTER: u8 = u8::MAX;

impl Window {
    pub fn new(core: &machine::Core) -> Window {
        let free = Slot {
            end: Time::ZERO,
            generation: 0,
            on: 0,
            earliest: Time::ZERO,
            kind: Kind::Miss(Time::ZERO),
            register: NO_REGISTER,
            posted: false,
            line: 0,
        };
        Window {
            slots: [free; SLOTS],
            next_slot: 0,
            waiting: 0,
            instructions: InOrder::new(core.reorder_buffer.into()),
            stores: InOrder::new(core.store_queue.into()),
            recent: [End::at(Time::ZERO); RECENT],
            position: 0,
            registers: vec![Time::ZERO; core.outstanding_misses.min(SLOTS as u16).into()],
            held: 0,
            queue: VecDeque::with_capacity(SLOTS),
            awaited: 0,
            ready: VecDeque::with_capacity(SLOTS),
            lines: [(u64::MAX, End::at(Time::ZERO)); SLOTS],
        }
    }

    /// Earliest start of an instruction at or after the clock's time, given the reorder buffer; `None` while
    /// unknown. The instruction that waits is the one `reorder_buffer` after the load; those between it and
    /// this one follow at the core's full rate.
    #[inline]
    pub fn dispatch(&mut self, instruction: u64, clock: &Clock) -> Option<Time> {
        let mut now = clock.now();
        while let Some((first, end)) = self.instructions.before(instruction) {
            now = now.max(self.known(end)? + clock.takes(instruction - first));
            self.instructions.pop();
        }
        Some(now)
    }

    /// Earliest dispatch of a store at or after `now`, given the store queue; `None` while unknown.
    #[inline]
    pub fn dispatch_store(&mut self, number: u64, mut now: Time) -> Option<Time> {
        while let Some((_, end)) = self.stores.before(number) {
            now = now.max(self.known(end)?);
            self.stores.pop();
        }
        Some(now)
    }

    /// When everything dispatched so far has retired, and not before `now`; `None` while unknown.
    pub fn drain(&mut self, mut now: Time) -> Option<Time> {
        while let Some((_, end)) = self.instructions.before(u64::MAX) {
            now = now.max(self.known(end)?);
            self.instructions.pop();
        }
        Some(now)
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

    /// Adds an access that hits a private cache; returns its end.
    #[inline]
    pub fn hit(&mut self, line: u64, earliest: Time, latency: Time, producer: End) -> End {
        let filled = match self.lines[line as usize % SLOTS] {
            (held, end) if held == line => self.settled(end),
            _ => Ok(Time::ZERO),
        };
        match (self.settled(producer), filled) {
            (Ok(produced), Ok(filled)) => End::at((earliest.max(produced) + latency).max(filled)),
            (Ok(_), Err(slot)) => self.end_of(slot),
            (Err(slot), _) => {
                let new = self.open(line, earliest, Kind::Hit(latency));
                self.wait(new, slot);
                self.end_of(new)
            }
        }
    }

    /// Adds an access that misses the private caches, after its address is known and translated; returns its
    /// end.
    pub fn miss(&mut self, line: u64, earliest: Time, translation: Time, producer: End) -> End {
        let new = self.open(line, earliest, Kind::Miss(translation));
        match self.settled(producer) {
            Ok(produced) => self.begin_miss(new, earliest.max(produced) + translation),
            Err(slot) => self.wait(new, slot),
        }
        let end = self.end_of(new);
        self.lines[line as usize % SLOTS] = (line, end);
        end
    }

    /// Adds the posted write of a write-combining buffer's line. No access waits for it, but it takes a slot
    /// and a miss register until its node has accepted it.
    pub fn write(&mut self, line: u64, earliest: Time, translation: Time, producer: End) {
        let new = self.open(line, earliest, Kind::Miss(translation));
        self.slots[usize::from(new)].posted = true;
        match self.settled(producer) {
            Ok(produced) => self.begin_miss(new, earliest.max(produced) + translation),
            Err(slot) => self.wait(new, slot),
        }
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

    /// Sets the end of a slot's access, and starts all that waited for it.
    pub fn resolve(&mut self, slot: u8, end: Time) {
        debug_assert!(self.slots[usize::from(slot)].end == Time::NEVER, "an access ends twice");
        debug_assert!(self.waiting >> slot & 1 == 0, "an access ends that has not begun");
        let mut known = [0; SLOTS];
        known[0] = slot;
        let mut count = 1;
        self.slots[usize::from(slot)].end = end;
        while count > 0 {
            count -= 1;
            let slot = known[count];
            self.release_register(slot);
            let end = self.slots[usize::from(slot)].end;
            let mut left = self.waiting;
            while left != 0 {
                let other = left.trailing_zeros() as u8;
                left &= left - 1;
                let waiter = &mut self.slots[usize::from(other)];
                if waiter.on != slot {
                    continue;
                }
                self.waiting &= !(1 << other);
                let begin = waiter.earliest.max(end);
                match waiter.kind {
                    Kind::Hit(latency) => {
                        waiter.end = begin + latency;
                        known[count] = other;
                        count += 1;
                    }
                    Kind::Miss(translation) => self.begin_miss(other, begin + translation),
                }
            }
        }
    }

    /// An end's time; `None`, and the slot is awaited, while unknown.
    #[inline]
    fn known(&mut self, end: End) -> Option<Time> {
        self.settled(end).map_err(|slot| self.awaited = slot).ok()
    }

    #[inline]
    fn settled(&self, end: End) -> Result<Time, u8> {
        if end.0 & OPEN == 0 {
            return Ok(Time(end.0));
        }
        let slot = self.slots[(end.0 & 0xff) as usize];
        if slot.generation != (end.0 >> 8) as u32 {
            return Ok(Time::ZERO);
        }
        if slot.end == Time::NEVER { Err(end.0 as u8) } else { Ok(slot.end) }
    }

    fn end_of(&self, slot: u8) -> End {
        End::open(slot, self.slots[usize::from(slot)].generation)
    }

    fn open(&mut self, line: u64, earliest: Time, kind: Kind) -> u8 {
        debug_assert!(self.slots[usize::from(self.next_slot)].end != Time::NEVER);
        let new = self.next_slot;
        self.next_slot = (new + 1) % SLOTS as u8;
        let slot = &mut self.slots[usize::from(new)];
        let generation = slot.generation.wrapping_add(1) & 0x00ff_ffff;
        *slot = Slot {
            end: Time::NEVER,
            generation,
            on: 0,
            earliest,
            kind,
            register: NO_REGISTER,
            posted: false,
            line,
        };
        new
    }

    fn wait(&mut self, slot: u8, on: u8) {
        debug_assert!(slot != on && self.slots[usize::from(on)].end == Time::NEVER, "nothing would wake it");
        self.slots[usize::from(slot)].on = on;
        self.waiting |= 1 << slot;
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
mod tests {
    use super::*;

    fn window(misses: u16) -> Window {
        Window::new(&core(misses))
    }

    /// An instruction takes 1000 ps.
    fn core(misses: u16) -> machine::Core {
        machine::Core {
            clock_mhz: 1000.0,
            instructions_per_cycle: 1.0,
            reorder_buffer: 10,
            store_queue: 8,
            outstanding_misses: misses,
            write_streaming_lines: 0,
        }
    }

    const START: End = End(0);

    #[test]
    fn dependent_miss_begins_when_its_producer_ends() {
        let mut w = window(4);
        let first = w.miss(1, Time(5), Time::ZERO, START);
        w.remember(first);
        let second = w.miss(2, Time(6), Time::ZERO, w.producer(1));
        assert_eq!(w.take_miss(), Some((Time(5), 0)));
        assert_eq!(w.next_miss(), Time::NEVER);
        w.resolve(0, Time(100));
        assert_eq!(w.take_miss(), Some((Time(100), 1)));
        assert_eq!(w.settled(second), Err(1));
        w.resolve(1, Time(200));
        assert_eq!(w.settled(second), Ok(Time(200)));
    }

    #[test]
    fn misses_wait_for_first_free_register() {
        let mut w = window(2);
        for line in 0..3 {
            w.miss(line, Time(line), Time::ZERO, START);
        }
        assert_eq!(
            (w.take_miss(), w.take_miss(), w.take_miss()),
            (Some((Time(0), 0)), Some((Time(1), 1)), None)
        );
        w.resolve(1, Time(70));
        assert_eq!(w.take_miss(), Some((Time(70), 2)));
        w.miss(9, Time(3), Time::ZERO, START);
        assert_eq!(w.take_miss(), None);
    }

    #[test]
    fn full_slots_block_until_oldest_access_ends() {
        let mut w = window(SLOTS as u16);
        for line in 0..SLOTS as u64 {
            assert_eq!(w.place(Time(3)), Some(Time(3)));
            w.miss(line, Time(line), Time::ZERO, START);
        }
        assert_eq!(w.place(Time(3)), None);
        w.resolve(0, Time(70));
        assert_eq!(w.place(Time(3)), Some(Time(70)));
        w.resolve(5, Time(60));
        assert_eq!(w.place(Time(65)), Some(Time(65)), "an access that ends out of order makes room");
    }

    #[test]
    fn stores_leave_their_queue_in_order() {
        let mut w = window(4);
        let [first, second] = [1, 2].map(|line| w.miss(line, Time(0), Time::ZERO, START));
        w.must_leave(1, first);
        w.must_leave(2, second);
        w.resolve(1, Time(40));
        assert_eq!(w.dispatch_store(8, Time(50)), Some(Time(50)));
        assert_eq!(w.dispatch_store(9, Time(50)), None, "the first has not ended");
        w.resolve(0, Time(90));
        assert_eq!(w.dispatch_store(9, Time(50)), Some(Time(90)));
        assert_eq!(w.dispatch_store(10, Time(95)), Some(Time(95)));
    }

    #[test]
    fn reorder_buffer_limits_run_ahead() {
        let mut w = window(4);
        let mut clock = Clock::new(&core(4));
        let end = w.miss(1, Time(0), Time::ZERO, START);
        w.must_retire(1, end);
        clock.run(10);
        assert_eq!(w.dispatch(10, &clock), Some(Time(10_000)));
        clock.run(1);
        assert_eq!(w.dispatch(11, &clock), None);
        w.resolve(0, Time(50_000));
        assert_eq!(w.dispatch(11, &clock), Some(Time(50_000)));
    }

    #[test]
    fn instructions_beyond_reorder_buffer_follow_wait() {
        let mut w = window(4);
        let mut clock = Clock::new(&core(4));
        let end = w.miss(1, Time(0), Time::ZERO, START);
        w.must_retire(1, end);
        w.resolve(0, Time(50_000));
        clock.run(31);
        assert_eq!(w.dispatch(31, &clock), Some(Time(70_000)), "20 instructions after the one that waits");
        let end = w.miss(2, Time(70_000), Time::ZERO, START);
        w.must_retire(31, end);
        w.resolve(1, Time(75_000));
        clock.run(60);
        assert_eq!(w.dispatch(91, &clock), Some(Time(125_000)), "50 after that");
    }

    #[test]
    fn hit_on_line_in_flight_waits_for_it() {
        let mut w = window(4);
        let miss = w.miss(1, Time(0), Time::ZERO, START);
        assert_eq!(w.hit(1, Time(2), Time(4), START), miss);
        w.resolve(0, Time(50));
        assert_eq!(w.hit(1, Time(2), Time(4), START), End::at(Time(50)));
        assert_eq!(w.hit(1, Time(60), Time(4), START), End::at(Time(64)));
    }

    #[test]
    fn chained_hits_behind_miss_end_in_sequence() {
        let mut w = window(4);
        let miss = w.miss(1, Time(0), Time::ZERO, START);
        w.remember(miss);
        for _ in 0..3 {
            let end = w.hit(7, Time(1), Time(4), w.producer(1));
            w.remember(end);
        }
        w.resolve(0, Time(50));
        assert_eq!(w.settled(w.producer(1)), Ok(Time(62)));
    }
}

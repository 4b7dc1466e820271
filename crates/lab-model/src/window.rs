//! A virtual CPU's unfinished accesses.

use std::collections::VecDeque;

use memtide_core::Time;
use memtide_core::machine::Core;

/// Maximum open misses, as in the simulator.
const OPEN: usize = 64;

/// Limits of outstanding accesses: the reorder buffer behind an unfinished load, the store queue behind an
/// unfinished store, open misses, the miss registers.
#[derive(Clone, Debug)]
pub(super) struct Window {
    reorder_buffer: u64,
    /// Loads and stores not known to have retired, and when they can.
    loads: VecDeque<(u64, Time)>,
    store_queue: u64,
    /// Retired stores whose lines may not be there, and when they are.
    stores: VecDeque<(u64, Time)>,
    /// End times of the last misses.
    open: [Time; OPEN],
    next_open: usize,
    registers: Vec<Time>,
    latest_line: Time,
}

impl Window {
    pub fn new(core: &Core) -> Window {
        Window {
            reorder_buffer: core.reorder_buffer.into(),
            loads: VecDeque::new(),
            store_queue: core.store_queue.into(),
            stores: VecDeque::new(),
            open: [Time::ZERO; OPEN],
            next_open: 0,
            registers: vec![Time::ZERO; usize::from(core.outstanding_misses)],
            latest_line: Time::ZERO,
        }
    }

    /// Visits, oldest first, each load that must end before `instruction` can start: calls `wait(first, end)`
    /// with the first instruction that waits, and its end time.
    #[inline]
    pub fn retire(&mut self, instruction: u64, mut wait: impl FnMut(u64, Time)) {
        while let Some(&(load, end)) = self.loads.front()
            && load + self.reorder_buffer <= instruction
        {
            wait(load + self.reorder_buffer, end);
            self.loads.pop_front();
        }
    }

    /// When a store can enter the store queue, which stores leave in order.
    #[inline]
    pub fn enter(&mut self, store: u64) -> Time {
        let mut free = Time::ZERO;
        while let Some(&(oldest, end)) = self.stores.front()
            && oldest + self.store_queue <= store
        {
            free = free.max(end);
            self.stores.pop_front();
        }
        free
    }

    /// Keeps a store, and all later ones, in the store queue until its line is there.
    #[inline]
    pub fn must_leave(&mut self, store: u64, end: Time) {
        self.stores.push_back((store, end));
    }

    /// When everything has ended.
    pub fn drain(&mut self) -> Time {
        let end = self.loads.iter().map(|&(_, end)| end).max().unwrap_or(Time::ZERO);
        self.loads.clear();
        end
    }

    /// Finds a place for a miss at `now`; returns when it is free. If all misses are open, that is the place
    /// of the one that has been open longest.
    #[inline]
    pub fn place(&mut self, now: Time) -> Time {
        let mut in_turn = (self.next_open..OPEN).chain(0..self.next_open);
        if let Some(ended) = in_turn.find(|&place| self.open[place] <= now) {
            self.next_open = ended;
        }
        self.open[self.next_open]
    }

    /// Sets the end time of the miss in the place found, when its line arrives.
    #[inline]
    pub fn opened(&mut self, end: Time) {
        self.latest_line = self.latest_line.max(end);
        self.posted(end);
    }

    /// Sets the end time of the posted write in the place found, when its node has accepted it: no line
    /// arrives.
    pub fn posted(&mut self, end: Time) {
        self.open[self.next_open] = end;
        self.next_open = (self.next_open + 1) % OPEN;
    }

    /// Records when an instruction can retire: a load when it has ended, a store when its address is known.
    #[inline]
    pub fn must_retire(&mut self, instruction: u64, end: Time) {
        self.loads.push_back((instruction, end));
    }

    /// The miss register that is free first, and when.
    #[inline]
    pub fn register(&self) -> (usize, Time) {
        let mut first = (0, Time::NEVER);
        for (index, &free) in self.registers.iter().enumerate() {
            if free < first.1 {
                first = (index, free);
            }
        }
        first
    }

    #[inline]
    pub fn hold(&mut self, register: usize, until: Time) {
        self.registers[register] = until;
    }

    /// Arrival time of the last line.
    #[inline]
    pub fn latest_line(&self) -> Time {
        self.latest_line
    }
}

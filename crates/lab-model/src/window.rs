//! A virtual CPU's unfinished loads.

use std::collections::VecDeque;

use memtide_core::Time;
use memtide_core::machine::Core;

/// Entries of the load and store queue, as in the simulator.
const OPEN: usize = 64;

/// Limits of outstanding accesses: the reorder buffer behind an unfinished load, the load and store queue,
/// the miss registers.
#[derive(Clone, Debug)]
pub(super) struct Window {
    reorder_buffer: u64,
    /// Loads and stores not known to have retired, and when they can.
    loads: VecDeque<(u64, Time)>,
    /// End times of the last queued accesses.
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

    /// When everything has ended.
    pub fn drain(&mut self) -> Time {
        let end = self.loads.iter().map(|&(_, end)| end).max().unwrap_or(Time::ZERO);
        self.loads.clear();
        end
    }

    /// Allocates an entry of the load and store queue; returns when it is free.
    #[inline]
    pub fn place(&self) -> Time {
        self.open[self.next_open]
    }

    /// Sets the end time of the miss in the entry, when its line arrives.
    #[inline]
    pub fn opened(&mut self, end: Time) {
        self.latest_line = self.latest_line.max(end);
        self.posted(end);
    }

    /// Sets the end time of the posted write in the entry, when its node has accepted it: no line arrives.
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

//! A virtual CPU's unfinished loads.

use std::collections::VecDeque;

use memtide_core::Time;
use memtide_core::machine::Core;

/// Accesses that a core may have open at once (its load and store queue), as in the simulator.
const OPEN: usize = 64;

/// Lines whose arrival is remembered; a power of two.
const LINES: usize = 256;

/// What holds a core up: the reorder buffer behind a load that has not ended, the load and store queue, the miss
/// registers.
#[derive(Clone, Debug)]
pub(super) struct Window {
    reorder_buffer: u64,
    /// Instruction and end of loads that are not known to have retired.
    loads: VecDeque<(u64, Time)>,
    /// Ends of the last accesses that were open.
    open: [Time; OPEN],
    next_open: usize,
    registers: Vec<Time>,
    lines: Vec<(u64, Time)>,
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
            lines: vec![(u64::MAX, Time::ZERO); LINES],
            latest_line: Time::ZERO,
        }
    }

    /// Visits, oldest first, each load that must have ended before `instruction` may begin: `wait(first, end)` is told the first
    /// instruction that had to wait, and until when.
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

    /// Takes a place in the load and store queue; gives when it is free.
    #[inline]
    pub fn place(&self) -> Time {
        self.open[self.next_open]
    }

    /// The access that took the place ends then.
    #[inline]
    pub fn opened(&mut self, end: Time) {
        self.open[self.next_open] = end;
        self.next_open = (self.next_open + 1) % OPEN;
    }

    /// A load ends then.
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

    /// Notes when a line comes to the private caches.
    #[inline]
    pub fn line_comes(&mut self, line: u64, at: Time) {
        self.lines[line as usize % LINES] = (line, at);
        self.latest_line = self.latest_line.max(at);
    }

    /// When the last of all lines comes.
    #[inline]
    pub fn latest_line(&self) -> Time {
        self.latest_line
    }

    /// When a line that the private caches hold came, or comes; long ago if that was forgotten.
    #[inline]
    pub fn line_came(&self, line: u64) -> Time {
        let (held, at) = self.lines[line as usize % LINES];
        if held == line { at } else { Time::ZERO }
    }
}

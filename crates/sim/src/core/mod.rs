//! Simulated cores.

mod clock;
mod front;
mod in_order;
mod replay;
mod window;

use std::collections::VecDeque;
use std::iter;

use memtide_core::machine::Machine;
use memtide_core::{CpuId, Then, Time};
use memtide_memory::{
    Ahead, PageKey, PageWalkers, Prefetcher, PrivateCaches, Tlb, Translation, Uncore, Waiter, WriteCombining,
    WriteStream,
};

pub(crate) use self::clock::Clock;
pub(crate) use self::front::{Stop, Trap};
use self::replay::Replayed;
use self::window::End;
pub(crate) use self::window::Window;
use crate::thread::Thread;

/// A core: dispatches the accesses of its thread as fast as its window allows, and sends private cache misses
/// to the uncore when due.
pub(crate) struct Core {
    pub cpu: CpuId,
    pub clock: Clock,
    pub tlb: Tlb,
    pub window: Window,
    /// The running thread, and those waiting for the CPU.
    pub running: Option<usize>,
    pub ready: VecDeque<usize>,
    pub slice_end: Time,
    /// Whether the running thread is to give up the CPU.
    pub must_leave: bool,
    /// Whether the running thread waits for memory.
    pub blocked: bool,
    /// The running thread's trap, handled once its earlier accesses have ended.
    pub trap: Option<Trap>,
    /// When the running thread is due again.
    pub resume: Time,
    private: PrivateCaches,
    prefetcher: Option<Prefetcher>,
    /// Whether prefetched lines go into the first cache.
    fills_first: bool,
    write_stream: WriteStream,
    combining: WriteCombining<End>,
    walkers: PageWalkers,
    /// Latency of an access that does not stall its thread.
    hidden: Time,
    /// The page whose TLB miss has been counted: its next walk ignores the mark.
    pub counted: Option<PageKey>,
    /// The page accessed last: another lookup would change nothing in the TLB.
    last_page: Option<(PageKey, Translation)>,
    instructions: u64,
    stores: u64,
    spilled: Vec<u64>,
    replayed: Replayed,
}

/// A miss that was sent to the shared levels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub line: u64,
    pub time: Time,
    /// Its slot in the window.
    pub slot: u8,
    /// Whether it waits for its line: no cache has it.
    pub waits: bool,
}

impl Core {
    pub fn new(machine: &Machine, cpu: CpuId) -> Core {
        Core {
            cpu,
            clock: Clock::new(&machine.core),
            tlb: Tlb::new(machine),
            window: Window::new(&machine.core),
            running: None,
            ready: VecDeque::new(),
            slice_end: Time::ZERO,
            must_leave: false,
            blocked: false,
            trap: None,
            resume: Time::NEVER,
            private: PrivateCaches::new(machine),
            prefetcher: machine.prefetcher.as_ref().map(Prefetcher::new),
            fills_first: machine.prefetcher.as_ref().is_some_and(|prefetcher| prefetcher.first_cache),
            write_stream: WriteStream::new(machine.core.write_streaming_lines),
            combining: WriteCombining::new(machine.core.outstanding_misses),
            walkers: PageWalkers::new(machine),
            hidden: machine.hidden_latency(),
            counted: None,
            last_page: None,
            instructions: 0,
            stores: 0,
            spilled: Vec::new(),
            replayed: Replayed::default(),
        }
    }

    /// Time of this core's next action.
    pub fn next_time(&self) -> Time {
        self.resume.min(self.window.next_miss())
    }

    /// Whether the running thread waited for memory and can resume.
    pub fn can_go_on(&self) -> bool {
        self.blocked && self.window.can_go_on()
    }

    /// Pauses the running thread, which is ahead of the other actors. It resumes when they have caught up,
    /// unless its time slice is over and another thread waits for the CPU, or it must leave it.
    pub fn pause(&mut self, thread: &mut Thread) {
        self.resume = self.clock.now();
        self.leave_if_due(thread);
    }

    /// Lets the running thread leave the CPU if it must, or if its time slice is over and another waits;
    /// returns whether it does.
    pub fn leave_if_due(&mut self, thread: &mut Thread) -> bool {
        let is_due = self.must_leave || self.clock.now() >= self.slice_end && !self.ready.is_empty();
        if is_due {
            self.trap = Some(Trap::Yield);
            self.resume = Time::NEVER;
            self.drain(thread);
        }
        is_due
    }

    /// Lets the running thread's trap be handled once all its earlier accesses have ended; stores count if
    /// other threads may depend on them, or the thread itself on another CPU. Write-combining buffers are
    /// sent, as the trap serialises.
    pub fn drain(&mut self, thread: &mut Thread) {
        while !self.combining.is_empty() {
            let Some(begin) = self.window.place(self.clock.now()) else {
                self.blocked = true;
                return;
            };
            thread.spent.stall += self.clock.wait_until(begin);
            if let Some(buffer) = self.combining.take_oldest() {
                self.window.write(buffer.line, begin, Time::ZERO, buffer.last);
            }
        }
        let stores = matches!(self.trap, Some(Trap::Then(Then::Barrier | Then::OnCpu(_) | Then::End)));
        let loaded = self.window.drain(self.clock.now());
        match loaded.and_then(|time| if stores { self.window.drain_stores(time) } else { Some(time) }) {
            None => self.blocked = true,
            Some(time) => {
                thread.spent.stall += self.clock.wait_until(time);
                self.resume = self.clock.now();
            }
        }
    }

    /// Drops translations: one page's, or all.
    pub fn invalidate(&mut self, page: Option<PageKey>) {
        self.last_page = None;
        self.replayed.frames.invalidate(page);
        match page {
            Some(page) => self.tlb.invalidate(page),
            None => self.tlb.flush(),
        }
    }

    /// Sends the earliest miss to the uncore.
    pub fn send_miss(&mut self, uncore: &mut Uncore) -> Option<Sent> {
        let (time, slot) = self.window.take_miss()?;
        let (line, posted) = self.window.line_of(slot);
        let waiter = Waiter(u32::from(self.cpu.0) << 8 | u32::from(slot));
        if posted {
            if let Some(end) = uncore.write_past(self.cpu, line, time, Some(waiter)) {
                self.window.resolve(slot, end);
            }
            return Some(Sent { line, time, slot, waits: false });
        }
        let fetched = self.fills_first && self.prefetcher.as_ref().is_some_and(|p| p.has_fetched(line));
        let end = match fetched {
            true => uncore.demand_prefetched(self.cpu, line, time, waiter),
            false => uncore.demand(self.cpu, line, time, waiter),
        };
        if let Some(end) = end {
            self.window.resolve(slot, end);
        }
        let sent = Sent { line, time, slot, waits: end.is_none() };
        let Some(prefetcher) = &mut self.prefetcher else { return Some(sent) };
        let ahead = [prefetcher.see(line), prefetcher.see_next(line)];
        for ahead in ahead.into_iter().flatten().flat_map(Ahead::lines) {
            uncore.prefetch(self.cpu, ahead, time);
        }
        Some(sent)
    }

    /// Hits of each private level, nearest to the core first.
    pub fn cache_hits(&self) -> impl Iterator<Item = u64> + '_ {
        let replayed = self.replayed.hits.iter().copied().chain(iter::repeat(0));
        self.private.hits().zip(replayed).map(|(own, replayed)| own + replayed)
    }
}

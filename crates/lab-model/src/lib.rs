//! The lab's timing model: memory stall time of a virtual CPU, whose instructions an emulator executes.
//!
//! The emulator reports the line and the instruction number of each access; the model returns how long the
//! CPU waits. Unlike the simulator's channels, nodes are loaded-latency curves whose time is shared out in
//! buckets, because virtual CPUs run in slices, one after the other.
//!
//! Modelled: private and shared caches, write streaming, write-combining buffers, TLB, stream prefetcher,
//! overlap of independent misses within the reorder buffer, miss registers, dependent loads (as far as the
//! caller knows them), links, nodes. Not modelled: instruction fetch, memory traffic of page walks, the
//! latency of dependent hits in the first cache, prefetching past a page's end.

mod buckets;
mod node;
mod prepare;
mod pressure;
mod reach;
mod shared;
mod walker;
mod window;

use memtide_core::machine::Machine;
use memtide_core::{CpuId, NodeId, Time};
use memtide_lab_protocol::Counts;
use memtide_lab_protocol::clock::Config;
pub use memtide_memory::{Access as CacheAccess, Cache, PageKey, Victim, WriteStream};
use memtide_memory::{Ahead, Prefetcher, PrivateCaches, WriteCombining};

pub use node::CurveNode;
pub use prepare::{Prepared, prepare};
pub use reach::Lookup;
use reach::Reach;
use shared::Shared;
use walker::Walker;
use window::Window;

/// Fractional bits of a picosecond in clocks.
const FRACTION: u32 = 8;

/// The timing model of a machine.
#[derive(Clone, Debug)]
pub struct Curve {
    cpus: Vec<Cpu>,
    shared: Shared,
    /// Access time hidden by the CPU: shorter accesses do not stall it.
    hidden: Time,
    write_stream: WriteStream,
}

#[derive(Clone, Debug)]
struct Cpu {
    clock: Clock,
    private: PrivateCaches,
    first_hit: Time,
    window: Window,
    reach: Reach,
    prefetcher: Option<Prefetcher>,
    /// Whether prefetched lines go into the first cache.
    fills_first: bool,
    walker: Walker,
    combining: WriteCombining<()>,
    spilled: Vec<u64>,
}

/// A CPU's time, as a function of the instructions it has executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Wait time so far, with the offset of rate changes; wraps around.
    pub offset: Time,
    /// Time of an instruction, in 2^-8 ps.
    pub per_instruction: u64,
}

/// Where a line was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touched {
    /// In the first cache: no time beyond the instruction's, except for translation.
    First,
    /// In another private cache, with this latency.
    Private(Time),
    /// In none.
    Missed,
}

/// A CPU's demand reads from a node.
#[derive(Clone, Copy, Debug)]
pub struct Reads {
    /// The node.
    pub node: NodeId,
    /// Lines.
    pub lines: u64,
    /// The sum of their latencies.
    pub latency: Time,
}

/// An access that takes time.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Instructions that the CPU has executed before it.
    pub instruction: u64,
    /// Stores that the CPU has executed, itself included.
    pub stores: u64,
    /// Guest-physical address / 64.
    pub line: u64,
    /// Whether it is a store.
    pub write: bool,
    /// Whether it begins to overwrite a line that need not be fetched: [`WriteStream::see`].
    pub overwritten: bool,
    /// When its address is known, if later than its dispatch.
    pub ready: Time,
    /// When its line arrives in the private caches, if they contain it but it is in flight.
    pub arrival: Time,
    /// Time of the address translation.
    pub translation: Time,
}

impl Clock {
    /// Time after `instruction` instructions.
    #[inline]
    pub fn at(&self, instruction: u64) -> Time {
        Time(self.offset.0.wrapping_add((instruction * self.per_instruction) >> FRACTION))
    }

    #[inline]
    fn wait(&mut self, instruction: u64, until: Time) {
        self.offset.0 = self.offset.0.wrapping_add(until.since(self.at(instruction)).0);
    }

    fn change_rate(&mut self, instruction: u64, per_instruction: u64) {
        let now = self.at(instruction);
        self.per_instruction = per_instruction;
        // Wraps below zero if the new rate alone would already be past `now`; `at` wraps back.
        self.offset = Time(now.0.wrapping_sub((instruction * per_instruction) >> FRACTION));
    }
}

impl Curve {
    /// A prepared machine (all nodes fixed) with one CPU per entry of `config.vcpu_initiators`. Clocks run at
    /// `config.boot_ps` an instruction until [`Curve::change_rate`].
    pub fn new(machine: &Machine, config: &Config) -> Curve {
        let cpu = |_| Cpu {
            clock: Clock { offset: Time::ZERO, per_instruction: config.boot_ps << FRACTION },
            private: PrivateCaches::new(machine),
            first_hit: machine.caches.first().map_or(Time::ZERO, |c| machine.core.cycles(c.latency_cycles)),
            window: Window::new(&machine.core),
            reach: Reach::new(machine),
            prefetcher: machine.prefetcher.as_ref().map(Prefetcher::new),
            fills_first: machine.prefetcher.as_ref().is_some_and(|prefetcher| prefetcher.first_cache),
            walker: Walker::default(),
            combining: WriteCombining::new(machine.core.outstanding_misses),
            spilled: Vec::new(),
        };
        Curve {
            cpus: config.vcpu_initiators.iter().map(cpu).collect(),
            shared: Shared::new(machine, &config.vcpu_initiators, &config.memory),
            hidden: machine.hidden_latency(),
            write_stream: WriteStream::new(machine.core.write_streaming_lines),
        }
    }

    /// A CPU's clock after `instruction` instructions, including reorder buffer waits up to then.
    #[inline]
    pub fn clock(&mut self, cpu: CpuId, instruction: u64) -> Clock {
        let cpu = &mut self.cpus[cpu.index()];
        cpu.settle(instruction);
        cpu.clock
    }

    /// A CPU's clock without pending waits.
    #[inline]
    pub fn clock_as_is(&self, cpu: CpuId) -> Clock {
        self.cpus[cpu.index()].clock
    }

    /// Idles the CPU until a time.
    pub fn idle_until(&mut self, cpu: CpuId, instruction: u64, until: Time) {
        self.cpus[cpu.index()].clock.wait(instruction, until);
    }

    /// Sets the time per instruction, in ps, from this instruction on.
    pub fn change_rate(&mut self, cpu: CpuId, instruction: u64, ps: f64) {
        let rate = libm::round(ps * f64::from(1u32 << FRACTION)) as u64;
        self.cpus[cpu.index()].clock.change_rate(instruction, rate.max(1));
    }

    /// Sends the CPU's write-combining buffers, as what serialises does.
    pub fn send_stores(&mut self, cpu: CpuId, instruction: u64) {
        let c = &mut self.cpus[cpu.index()];
        while let Some(buffer) = c.combining.take_oldest() {
            let now = c.clock.at(instruction);
            c.post(&mut self.shared, cpu, buffer.line, instruction, now);
        }
    }

    /// Waits for all outstanding accesses before the next instruction, for instance before the clock is read.
    pub fn drain(&mut self, cpu: CpuId, instruction: u64) {
        self.send_stores(cpu, instruction);
        let cpu = &mut self.cpus[cpu.index()];
        let end = cpu.window.drain();
        cpu.clock.wait(instruction, end);
    }

    /// Whether a line belongs to a node.
    pub fn is_memory(&self, line: u64) -> bool {
        self.shared.map.node_of(line).is_some()
    }

    /// For a caller to pass each store of a CPU to.
    pub fn write_stream(&self) -> WriteStream {
        self.write_stream.clone()
    }

    /// Looks a page up in the CPU's TLB.
    #[inline]
    pub fn translate(&mut self, cpu: CpuId, page: PageKey) -> Lookup {
        self.cpus[cpu.index()].reach.lookup(page)
    }

    /// Drops all pages from the CPU's TLB.
    pub fn flush(&mut self, cpu: CpuId) {
        self.cpus[cpu.index()].reach.flush();
    }

    /// Takes a CPU's first cache, for a caller that looks lines up there itself; `None` if it has none.
    pub fn take_first_cache(&mut self, cpu: CpuId) -> Option<Cache> {
        self.cpus[cpu.index()].private.take_first()
    }

    /// As [`Curve::touch`], for a line that missed the first cache taken out, which replaced `victim` by it.
    #[inline]
    pub fn missed_first(&mut self, cpu: CpuId, line: u64, victim: Option<Victim>) -> Touched {
        let cpu = &mut self.cpus[cpu.index()];
        let latency = cpu.private.missed_first(line, victim, &mut cpu.spilled);
        cpu.touched(latency)
    }

    /// Looks a line up in the CPU's private caches, and inserts it.
    #[inline]
    pub fn touch(&mut self, cpu: CpuId, line: u64, write: bool) -> Touched {
        let cpu = &mut self.cpus[cpu.index()];
        let latency = cpu.private.access(line, write, &mut cpu.spilled);
        cpu.touched(latency)
    }

    /// Performs an access that takes longer than a first-cache hit, or whose translation takes time. Returns
    /// when it ends: a load's value is known, or a store's line is there.
    pub fn open(&mut self, cpu: CpuId, access: Access, touched: Touched) -> Time {
        let Curve { cpus, shared, hidden, .. } = self;
        let c = &mut cpus[cpu.index()];
        let Access { instruction, stores, line, write, overwritten, .. } = access;
        c.settle(instruction);
        if touched == Touched::Missed {
            if !c.combining.is_empty() && c.combining.take(line).is_some() {
                let now = c.clock.at(instruction);
                c.post(shared, cpu, line, instruction, now);
            }
            if !overwritten {
                let now = c.clock.at(instruction);
                c.clock.wait(instruction, c.window.place(now));
            }
        }
        if write {
            c.clock.wait(instruction, c.window.enter(stores));
        }
        let now = c.clock.at(instruction);
        let begin = c.translated(now, access);
        let end = match touched {
            Touched::First => (begin + c.first_hit).max(access.arrival),
            Touched::Private(latency) => (begin + latency).max(access.arrival),
            Touched::Missed if overwritten => begin,
            Touched::Missed => c.miss(shared, cpu, line, begin),
        };
        for line in c.spilled.drain(..) {
            shared.spill(cpu, line, begin);
        }
        // A store retires once its address is translated, and its line comes later.
        let retires = if write { begin } else { end };
        if retires > now + *hidden {
            c.window.must_retire(instruction, retires);
        }
        if write && end > now + *hidden {
            c.window.must_leave(stores, end);
        }
        end
    }

    /// Performs a non-temporal store of `bytes` bytes from `offset` on within its line. It goes past the
    /// caches by way of a write-combining buffer, as in the simulator: no level has the line from then on. Of
    /// the first cache, if taken out, the caller drops it.
    pub fn store_past(&mut self, cpu: CpuId, access: Access, offset: u64, bytes: u64) {
        let Curve { cpus, shared, hidden, .. } = self;
        let c = &mut cpus[cpu.index()];
        let Access { instruction, line, .. } = access;
        c.settle(instruction);
        let now = c.clock.at(instruction);
        let begin = c.translated(now, access);
        let combined = c.combining.store(line, offset, bytes, ());
        if combined.opens {
            c.private.evict(line);
        }
        if let Some(buffer) = combined.sent {
            c.post(shared, cpu, buffer.line, instruction, begin);
        }
        if begin > now + *hidden {
            c.window.must_retire(instruction, begin);
        }
    }

    /// What a CPU has read by demand from the node of a line; `None` if it is no node's.
    #[inline]
    pub fn reads(&self, cpu: CpuId, line: u64) -> Option<Reads> {
        let node = self.shared.map.node_of(line)?;
        let counts = &self.shared.counts[cpu.index()].nodes[node.index()];
        Some(Reads { node, lines: counts.reads, latency: counts.latency })
    }

    /// A CPU's counters: misses, page walks and node traffic. The emulator counts instructions.
    pub fn counts(&self, cpu: CpuId) -> Counts {
        Counts { page_walks: self.cpus[cpu.index()].reach.walks, ..self.shared.counts[cpu.index()].clone() }
    }
}

impl Cpu {
    /// Where a line was found, given the latency of the private level that has it.
    #[inline]
    fn touched(&self, latency: Option<Time>) -> Touched {
        match latency {
            Some(latency) if latency <= self.first_hit => Touched::First,
            Some(latency) => Touched::Private(latency),
            None => Touched::Missed,
        }
    }

    #[inline]
    fn settle(&mut self, instruction: u64) {
        let clock = &mut self.clock;
        self.window.retire(instruction, |first, end| clock.wait(first, end));
    }

    /// When the translation of an access's address is done.
    fn translated(&mut self, now: Time, access: Access) -> Time {
        let begin = now.max(access.ready);
        if access.translation == Time::ZERO {
            return begin;
        }
        self.walker.walk(now, begin, access.translation)
    }

    /// Sends a write-combining buffer's line, which holds a register until its node has accepted it.
    fn post(&mut self, shared: &mut Shared, cpu: CpuId, line: u64, instruction: u64, begin: Time) {
        let now = self.clock.at(instruction);
        self.clock.wait(instruction, self.window.place(now));
        let (register, free) = self.window.register();
        let accepted = shared.write_past(cpu, line, begin.max(free));
        self.window.hold(register, accepted);
        self.window.posted(accepted);
    }

    fn miss(&mut self, shared: &mut Shared, cpu: CpuId, line: u64, begin: Time) -> Time {
        let (register, free) = self.window.register();
        let at = begin.max(free);
        let alone = self.window.latest_line() <= at;
        let fetched = self.fills_first && self.prefetcher.as_ref().is_some_and(|p| p.has_fetched(line));
        let end = match fetched {
            true => shared.demand_prefetched(cpu, line, at, alone),
            false => shared.demand(cpu, line, at, alone),
        };
        self.window.hold(register, end);
        self.window.opened(end);
        let ahead = self.prefetcher.as_mut().and_then(|prefetcher| prefetcher.see(line));
        for line in ahead.into_iter().flat_map(Ahead::lines) {
            shared.prefetch(cpu, line, at);
        }
        end
    }
}

#[cfg(test)]
mod tests;

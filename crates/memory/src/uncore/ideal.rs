//! Memory without queues, for lower bounds of time.
//!
//! A read that misses the last level takes the least latency that any node offers its CPU, and writes take
//! none: no run on the machine is served earlier, wherever its pages are. Beside it, `lines` counts what any
//! run must move at least:
//!
//! ```text
//!   read by cores -> fetched: the last level without prefetching ----------> read
//!   spilled lines that it contains --> become dirty there, are evicted ----> written
//!   non-temporal stores that wait for a node, unless recently written -----> written
//! ```
//!
//! Not counted: what the prefetcher reads beyond that, and writes of lines that were never read (write
//! streaming): no core waits for them, so that a run can end before them.

use memtide_core::machine::Machine;
use memtide_core::{CpuId, InitiatorId, NodeId, Time};

use super::page_use::{PageUse, PageUses};
use super::routes::Routes;
use super::shared_level::{Class, SharedLevel};
use crate::cache::{Access, Cache};

/// Capacity and associativity of `recent`: 4096 lines, more than all write queues of a machine contain.
const RECENT_KIB: u64 = 256;
const RECENT_WAYS: u16 = 64;

/// What replaces nodes and links.
pub(super) struct Ideal {
    /// Of a read that misses every cache, by CPU.
    latency: Vec<Time>,
    /// Of a read that a write queue answers, and of the acceptance of a write.
    nearest: Time,
    fetched: Option<SharedLevel>,
    /// Lines that may still be in a write queue, which answers reads and merges writes.
    recent: Cache,
    pub lines: IdealLines,
    /// Initiator of each CPU.
    initiators: Vec<InitiatorId>,
    pages: PageUses,
}

/// Lines that any run moves at least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdealLines {
    /// Read from memory.
    pub read: u64,
    /// Written to memory.
    pub written: u64,
}

impl Ideal {
    /// For a machine whose nodes and links are the real ones.
    pub fn of(machine: &Machine, routes: &Routes, fetched: Option<SharedLevel>) -> Ideal {
        let of_initiator = |from: InitiatorId| {
            machine.node_ids().map(|node| least_latency(machine, from, node)).min().unwrap_or_default()
        };
        let cpus = (0..machine.cpus()).map(CpuId::from);
        Ideal {
            latency: cpus.clone().map(|cpu| of_initiator(machine.initiator_of(cpu))).collect(),
            nearest: routes.out(),
            fetched,
            recent: Cache::new(RECENT_KIB, RECENT_WAYS),
            lines: IdealLines::default(),
            initiators: cpus.map(|cpu| machine.initiator_of(cpu)).collect(),
            pages: PageUses::new(machine.nodes.iter().map(|node| node.pages()).sum()),
        }
    }

    /// The class of a CPU's accesses from now on.
    pub fn runs(&mut self, cpu: CpuId, class: Class) {
        if let Some(fetched) = &mut self.fetched {
            fetched.runs(cpu, class);
        }
    }

    /// Counts an access that missed the private caches.
    pub fn count_read(&mut self, cpu: CpuId, line: u64) {
        let Some(fetched) = &mut self.fetched else {
            self.lines.read += 1;
            return self.pages.read(line, self.initiators[cpu.index()]);
        };
        if let Access::Miss(victim) = fetched.of(cpu).access(line, false) {
            self.lines.read += 1;
            self.pages.read(line, self.initiators[cpu.index()]);
            self.lines.written += u64::from(victim.is_some_and(|victim| victim.dirty));
        }
    }

    /// Counts a demand read that no cache contains.
    pub fn count_miss(&mut self, line: u64) {
        self.pages.miss(line);
    }

    /// The frames read since the last call, in order, with their use.
    pub fn take_pages(&mut self) -> Vec<(u32, PageUse)> {
        self.pages.take()
    }

    /// Latency of a line that no cache contains.
    pub fn read(&self, cpu: CpuId, line: u64) -> Time {
        if self.recent.holds(line) { self.nearest } else { self.latency[cpu.index()] }
    }

    /// Takes a dirty line from the private caches.
    pub fn spill(&mut self, cpu: CpuId, line: u64) {
        if let Some(fetched) = &mut self.fetched
            && fetched.of(cpu).holds(line)
        {
            fetched.of(cpu).write_back(line);
        }
    }

    /// Writes a line; if `waits`, past the caches, by a core that waits for the time returned.
    pub fn write(&mut self, cpu: CpuId, line: u64, waits: bool) -> Time {
        let is_new = self.recent.access(line, true) != Access::Hit;
        if waits {
            self.lines.written += u64::from(is_new);
            if let Some(fetched) = &mut self.fetched {
                fetched.of(cpu).evict(line);
            }
        }
        self.nearest
    }
}

/// Least latency of a read from a node, load to use: of a dram node, that of an open row.
fn least_latency(machine: &Machine, from: InitiatorId, to: NodeId) -> Time {
    let idle = machine.idle_latency(from, to);
    let dram = machine.nodes[to.index()].dram.as_ref();
    let activate = dram.map_or(Time::ZERO, |dram| dram.cycles(dram.rcd.into()));
    // A link's latency is halved, and each half rounded down.
    let rounding = machine.topology.hops(from, to).len() as u64;
    Time(idle.0.saturating_sub(activate.0 + rounding))
}

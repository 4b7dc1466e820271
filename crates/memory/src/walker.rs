//! A core's page walks.
//!
//! A walk ends with the read of a page table entry. Eight of them share a cache line, and these lines compete
//! with data for the private caches: a walk takes `walk_cycles` if its lines are there, else
//! `cold_walk_cycles`. In a virtual machine (`nested_walks`), the hypervisor's entry is read too: each page
//! takes twice the space. The upper levels of the tables are taken to be in the walker's own caches, and the
//! shared caches and channels do not carry what a cold walk reads.

use memtide_core::machine::Machine;
use memtide_core::{LINE_BYTES, PAGE_BYTES, Time};

use crate::private::PrivateCaches;
use crate::tlb::PageKey;

/// Entries of 8 bytes in a line of a page table.
const ENTRIES: u64 = LINE_BYTES / 8;

/// Lines kept for all page tables: those of 8 TiB in base pages. Tables of more memory share lines.
const LINES: u64 = 1 << 28;

/// The page walkers of a core.
#[derive(Clone, Debug)]
pub struct PageWalkers {
    /// Time of a walk whose lines are in a private cache, or of any walk without `tables`.
    warm: Time,
    tables: Option<Tables>,
    /// When each walker is free.
    free: Vec<Time>,
}

/// Page tables in memory.
#[derive(Clone, Debug)]
struct Tables {
    /// Time of a walk with a line in no private cache.
    cold: Time,
    /// The first line after the nodes' memory.
    first_line: u64,
    /// Lines read per walk.
    lines: u64,
}

/// When a walk begins, and how long it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walk {
    /// Its start.
    pub from: Time,
    /// Its duration.
    pub takes: Time,
}

impl PageWalkers {
    /// The idle walkers of a core of the machine.
    pub fn new(machine: &Machine) -> PageWalkers {
        let last = machine.tlbs.last();
        let cycles = |cycles: f64| machine.core.cycles(cycles);
        let tables = last.and_then(|tlb| {
            Some(Tables {
                cold: cycles(tlb.cold_walk_cycles?),
                first_line: data_lines(machine),
                lines: if tlb.nested_walks { 2 } else { 1 },
            })
        });
        PageWalkers {
            warm: cycles(last.map_or(0.0, |tlb| tlb.walk_cycles)),
            tables,
            free: vec![Time::ZERO; last.map_or(1, |tlb| tlb.walkers.into())],
        }
    }

    /// The first line number after all that walks of this machine read: a cache must be able to hold it.
    pub fn line_limit(machine: &Machine) -> u64 {
        match machine.tlbs.last() {
            Some(tlb) if tlb.cold_walk_cycles.is_some() => data_lines(machine) + 2 * LINES,
            _ => data_lines(machine),
        }
    }

    /// Walks to a page's entry, at `now` or when a walker is free. Dirty lines evicted from the last private
    /// level are appended to `spilled`.
    pub fn walk(
        &mut self,
        key: PageKey,
        now: Time,
        caches: &mut PrivateCaches,
        spilled: &mut Vec<u64>,
    ) -> Walk {
        let takes = match &self.tables {
            None => self.warm,
            Some(tables) => {
                let first = tables.first_line + key.table_line(ENTRIES, LINES) * tables.lines;
                // Both lines are read, whether or not the first was there.
                let read = |line| u64::from(!caches.read_table(line, spilled));
                match (first..first + tables.lines).map(read).sum() {
                    0 => self.warm,
                    _ => tables.cold,
                }
            }
        };
        self.walk_for(now, takes)
    }

    /// A walk of known duration, at `now` or when a walker is free.
    pub fn walk_for(&mut self, now: Time, takes: Time) -> Walk {
        let first_free = self.free.iter_mut().min().expect("a walker");
        let from = now.max(*first_free);
        *first_free = from + takes;
        Walk { from, takes }
    }

    /// Duration of a walk whose lines are in a private cache.
    pub fn warm(&self) -> Time {
        self.warm
    }
}

/// Lines of all nodes.
fn data_lines(machine: &Machine) -> u64 {
    machine.nodes.iter().map(|node| node.pages() * (PAGE_BYTES / LINE_BYTES)).sum()
}

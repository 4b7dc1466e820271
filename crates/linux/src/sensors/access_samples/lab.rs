//! Samples of the lab's clock plugin, which names the process by its page table.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;

use memtide_core::{NodeId, ThreadId, VirtAddr};
use memtide_lab_protocol::mark::{SAMPLE, mark};
use memtide_lab_protocol::samples::Sample;
use rustix::process::Pid;

use super::clock::Clock;
use super::{Sampled, Source};
use crate::counters::{Counters, CountersError};
use crate::sensors::{Watched, task};
use crate::sys::pagemap::{self, ENTRY_BYTES, frames};

/// Samples of a page table that are looked at in an epoch to find its process: the page of each may have
/// moved since.
const TRIES: usize = 8;

/// The samples of the guest that this process runs in.
#[derive(Debug)]
pub(super) struct Lab {
    counters: Counters,
    /// Number of the next sample to read.
    next: u64,
    /// Samples since the last but one reading.
    taken: u64,
    period: u32,
    /// Processes by page table.
    roots: BTreeMap<u64, Pid>,
    clock: Clock,
}

impl Lab {
    pub(super) fn open() -> Result<Lab, CountersError> {
        let counters = Counters::open()?;
        let (_, next) = counters.samples(u64::MAX)?;
        Ok(Lab { counters, next, taken: 0, period: 0, roots: BTreeMap::new(), clock: Clock::default() })
    }

    /// Finds the processes of unknown page tables: those that have the sampled page in the sampled frame. Of
    /// memory that processes share, several may have it: the page table is theirs that have most of its
    /// sampled pages, for these samples alone. Returns the processes of all page tables that are known then.
    fn find_processes(&mut self, samples: &[Sample], watched: &Watched) -> BTreeMap<u64, Pid> {
        let mut tries: BTreeMap<u64, Vec<&Sample>> = BTreeMap::new();
        for sample in samples.iter().rev().filter(|sample| !self.roots.contains_key(&sample.root)) {
            let of_root = tries.entry(sample.root).or_default();
            if of_root.len() < TRIES {
                of_root.push(sample);
            }
        }
        let mut found = BTreeMap::new();
        for (root, samples) in tries {
            let has = |pid, sample: &&&Sample| frame(pid, sample.address) == Some(sample.frame);
            let pages_of = |pid| samples.iter().filter(|sample| has(pid, sample)).count();
            let counted = watched.processes.iter().map(|process| (process.pid, pages_of(process.pid)));
            let mut having: Vec<(Pid, usize)> = counted.filter(|(_, pages)| *pages > 0).collect();
            // The first of those with most.
            having.sort_by_key(|(_, pages)| Reverse(*pages));
            match having[..] {
                [] => {}
                [(pid, _)] => _ = self.roots.insert(root, pid),
                [(pid, _), ..] => _ = found.insert(root, pid),
            }
        }
        found.extend(&self.roots);
        found
    }
}

impl Source for Lab {
    fn describe(&self) -> String {
        format!("the lab's samples, one of {} misses", self.period)
    }

    fn set_period(&mut self, period: u32) -> io::Result<u32> {
        if self.period != period {
            self.period = period;
            mark(SAMPLE, period.into());
        }
        Ok(period)
    }

    fn taken(&self) -> u64 {
        self.taken
    }

    fn read(&mut self, watched: &Watched) -> io::Result<Vec<Sampled>> {
        let (samples, next) = self.counters.samples(self.next).map_err(io::Error::other)?;
        self.taken = next.saturating_sub(self.next);
        self.next = next;
        self.roots.retain(|_, pid| watched.processes.iter().any(|process| process.pid == *pid));
        let roots = self.find_processes(&samples, watched);
        self.clock.see(samples.last().map(|last| last.guest_ns), watched.now);
        let sampled = samples.iter().filter_map(|sample| {
            let pid = *roots.get(&sample.root)?;
            Some(Sampled {
                pid,
                thread: ThreadId(task(pid).0),
                address: VirtAddr(sample.address),
                time: self.clock.own(sample.guest_ns),
                node: watched.number(NodeId(u8::try_from(sample.node).ok()?))?,
                latency: Some(sample.latency),
                period: sample.period,
                write: sample.write,
            })
        });
        Ok(sampled.collect())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if self.period > 0 {
            mark(SAMPLE, 0);
        }
    }
}

/// The page frame of an address of a process, if it is resident and this process may know.
fn frame(pid: Pid, address: u64) -> Option<u64> {
    let pagemap = pagemap::open(pid).ok()?;
    frames(&pagemap, VirtAddr(address).page().0, &mut [0; ENTRY_BYTES]).ok()?.next()?
}

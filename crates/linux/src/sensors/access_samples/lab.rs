//! Samples of the lab's clock plugin, which names the process by its page table.

use std::collections::BTreeMap;
use std::fs::File;

use memtide_core::{NodeId, Time, VirtAddr};
use memtide_lab_protocol::mark::{SAMPLE, mark};
use memtide_lab_protocol::samples::Sample;
use rustix::process::Pid;

use super::super::Watched;
use super::Sampled;
use crate::counters::{Counters, CountersError};
use crate::sys::pagemap::{ENTRY_BYTES, frames};

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
    /// How far the daemon's clock, which began after the guest's, is behind it.
    behind: Time,
}

impl Lab {
    pub(super) fn open() -> Result<Lab, CountersError> {
        let counters = Counters::open()?;
        let (_, next) = counters.samples(u64::MAX)?;
        Ok(Lab { counters, next, taken: 0, period: 0, roots: BTreeMap::new(), behind: Time::ZERO })
    }

    /// Samples one of this many misses from here on.
    pub(super) fn set_period(&mut self, period: u32) {
        if self.period != period {
            self.period = period;
            mark(SAMPLE, period.into());
        }
    }

    /// Number of samples taken before the last reading, of any process.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// The samples of watched processes since the last reading, oldest first.
    pub(super) fn read(&mut self, watched: &Watched) -> Result<Vec<Sampled>, CountersError> {
        let (samples, next) = self.counters.samples(self.next)?;
        self.taken = next.saturating_sub(self.next);
        self.next = next;
        self.roots.retain(|_, pid| watched.processes.iter().any(|process| process.pid == *pid));
        self.find_processes(&samples, watched);
        if let Some(last) = samples.last() {
            // The last sample is not in the future.
            self.behind = self.behind.max(Time::from_ns(last.guest_ns as f64).since(watched.now));
        }
        let sampled = samples.iter().filter_map(|sample| {
            Some(Sampled {
                pid: *self.roots.get(&sample.root)?,
                address: VirtAddr(sample.address),
                time: Time::from_ns(sample.guest_ns as f64).since(self.behind),
                node: watched.number(NodeId(u8::try_from(sample.node).ok()?))?,
                latency: sample.latency,
                period: sample.period,
                write: sample.write,
            })
        });
        Ok(sampled.collect())
    }

    /// Finds the processes of unknown page tables: those that have the sampled page in the sampled frame.
    fn find_processes(&mut self, samples: &[Sample], watched: &Watched) {
        let mut tries: BTreeMap<u64, Vec<&Sample>> = BTreeMap::new();
        for sample in samples.iter().rev().filter(|sample| !self.roots.contains_key(&sample.root)) {
            let of_root = tries.entry(sample.root).or_default();
            if of_root.len() < TRIES {
                of_root.push(sample);
            }
        }
        for (root, samples) in tries {
            let is_of = |pid| samples.iter().any(|sample| frame(pid, sample.address) == Some(sample.frame));
            let found = watched.processes.iter().map(|process| process.pid).find(|&pid| is_of(pid));
            self.roots.extend(found.map(|pid| (root, pid)));
        }
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
    let pagemap = File::open(format!("/proc/{}/pagemap", pid.as_raw_nonzero())).ok()?;
    frames(&pagemap, VirtAddr(address).page().0, &mut [0; ENTRY_BYTES]).ok()?.next()?
}

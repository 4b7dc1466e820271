//! Accesses without DAMON: the share of each mapping referenced since the bits were cleared
//! (proc_pid_smaps(5), proc_pid_clear_refs(5)).

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use memtide_core::policy::RegionSampling;
use rustix::process::Pid;

use super::{CLEARED_MAX, Found, RegionMonitor};
use crate::mappings::{self, Usage};
use crate::processes::{self, Identity, Process};

/// Monitoring takes at most 1/N of the time.
const DUTY_DIVISOR: u32 = 100;

/// Maximum time per call: the remaining processes are scanned in the next one.
const TIME_MAX: Duration = Duration::from_millis(100);

/// A mapping is idle if less than 1/N of it was accessed.
const IDLE: u64 = 20;

/// Watches whole mappings. A scan takes time in proportion to the memory, so the longer it takes, the less
/// often it is done.
#[derive(Debug)]
pub struct Smaps {
    needs: RegionSampling,
    watched: Vec<(Identity, Vec<Mapping>)>,
    /// The next process to scan, and when.
    next: usize,
    due: Instant,
}

/// The state of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mapping {
    start: u64,
    pages: u64,
    accesses: u32,
    /// Since when its access count is unchanged.
    since: Instant,
}

impl Smaps {
    /// Whether it can be used.
    ///
    /// # Errors
    /// If the kernel lacks it.
    pub fn check() -> io::Result<()> {
        let opened = File::open("/proc/self/smaps")
            .and_then(|_| OpenOptions::new().write(true).open("/proc/self/clear_refs"));
        opened.map(drop).map_err(|error| {
            let why = "this kernel has no /proc/PID/smaps and clear_refs (CONFIG_PROC_PAGE_MONITOR)";
            io::Error::new(error.kind(), format!("{why}: {error}"))
        })
    }

    /// The monitor, without processes to watch.
    pub fn new(needs: &RegionSampling) -> Smaps {
        Smaps { needs: *needs, watched: Vec::new(), next: 0, due: Instant::now() }
    }

    /// Scans processes in turn, for a sampling interval each, until all are done or the time limit is
    /// reached.
    fn scan(&mut self) {
        let sampling = Duration::from_nanos(self.needs.sampling.as_ns() as u64);
        let (begin, mut slept) = (Instant::now(), Duration::ZERO);
        for _ in 0..self.watched.len() {
            self.next = (self.next + 1) % self.watched.len();
            let ((pid, _), known) = &mut self.watched[self.next];
            // A process that has exited, belongs to another user, or is too large has nothing to report.
            let found = scan_process(*pid, sampling);
            *known =
                found.map_or_else(|_| Vec::new(), |(long, short)| judge(known, &long, &short, &self.needs));
            slept += sampling;
            if begin.elapsed() > TIME_MAX {
                break;
            }
        }
        self.due = Instant::now() + begin.elapsed().saturating_sub(slept) * DUTY_DIVISOR;
    }

    fn found(&self, mapping: &Mapping) -> Found {
        let Mapping { start, pages, accesses, since } = *mapping;
        let age = since.elapsed().as_nanos() as f64 / self.needs.aggregation.as_ns();
        Found { start, pages, accesses, age: age as u32 }
    }
}

impl RegionMonitor for Smaps {
    fn watch(&mut self, processes: &[Process]) -> io::Result<()> {
        let mut known: HashMap<Identity, Vec<Mapping>> =
            std::mem::take(&mut self.watched).into_iter().collect();
        let of = |process: &Process| {
            let identity = process.identity();
            (identity, known.remove(&identity).unwrap_or_default())
        };
        self.watched = processes.iter().map(of).collect();
        Ok(())
    }

    fn read(&mut self) -> io::Result<Vec<Vec<Found>>> {
        if Instant::now() >= self.due {
            self.scan();
        }
        let all = |mappings: &Vec<Mapping>| mappings.iter().map(|mapping| self.found(mapping)).collect();
        Ok(self.watched.iter().map(|(_, mappings)| all(mappings)).collect())
    }
}

/// A process's accesses since the last scan, and within a sampling interval from now on.
fn scan_process(pid: Pid, sampling: Duration) -> io::Result<(Usages, Usages)> {
    if processes::one(pid).is_none_or(|process| process.resident_pages > CLEARED_MAX) {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let long = usages(pid)?;
    fs::write(format!("/proc/{}/clear_refs", pid.as_raw_nonzero()), "1")?;
    thread::sleep(sampling);
    Ok((long, usages(pid)?))
}

/// Mappings by start address, with their ends.
type Usages = BTreeMap<u64, (u64, Usage)>;

fn usages(pid: Pid) -> io::Result<Usages> {
    let all = mappings::usages(pid)?;
    Ok(all.into_iter().map(|(addresses, usage)| (addresses.start, (addresses.end, usage))).collect())
}

/// The current mappings' state; if there are too many, the largest are kept.
fn judge(before: &[Mapping], long: &Usages, short: &Usages, needs: &RegionSampling) -> Vec<Mapping> {
    let samples = (needs.aggregation.0 / needs.sampling.0).max(1);
    let there = short.iter().filter(|(_, (_, usage))| usage.resident > 0);
    let mut there: Vec<(&u64, &(u64, Usage))> = there.collect();
    there.sort_by_key(|(start, (_, usage))| (std::cmp::Reverse(usage.resident), **start));
    there.truncate(needs.regions_max as usize);
    there.sort_by_key(|(start, _)| **start);
    let judged = there.into_iter().map(|(start, (end, usage))| {
        let accesses = (samples * usage.referenced).div_ceil(usage.resident).min(samples) as u32;
        let known = before.iter().find(|known| known.start == start / 4096);
        let alike = |known: &&Mapping| u64::from(known.accesses.abs_diff(accesses)) <= samples / 10;
        let meanwhile = long.get(start).is_some_and(|(_, usage)| usage.referenced * IDLE >= usage.resident);
        let holds = known.filter(alike).filter(|_| accesses > 0 || !meanwhile);
        let since = holds.map_or_else(Instant::now, |known| known.since);
        Mapping { start: start / 4096, pages: (end - start) / 4096, accesses, since }
    });
    judged.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtide_core::Time;

    const NEEDS: RegionSampling = RegionSampling {
        sampling: Time::from_ms(5),
        aggregation: Time::from_ms(100),
        regions_max: 3,
        writes: false,
        budget_bp: None,
    };

    /// Mappings of 100 pages at these pages, with these numbers of resident and referenced pages.
    fn usages(all: &[(u64, u64, u64)]) -> Usages {
        let usage = |&(page, resident, referenced): &(u64, u64, u64)| {
            let end = (page + 100) * 4096;
            (page * 4096, (end, Usage { resident: resident * 4096, referenced: referenced * 4096 }))
        };
        all.iter().map(usage).collect()
    }

    #[test]
    fn accessed_share_counts_and_mapping_used_at_times_stays_young() {
        let since = Instant::now().checked_sub(Duration::from_secs(9)).expect("a time");
        let known = |start, accesses| Mapping { start, pages: 100, accesses, since };
        let before = [known(0, 20), known(200, 0), known(400, 0)];
        let long = usages(&[(0, 100, 100), (200, 100, 4), (400, 100, 5), (600, 0, 0)]);
        let short = usages(&[(0, 100, 91), (200, 100, 0), (400, 100, 0), (600, 0, 0)]);
        let after = judge(&before, &long, &short, &NEEDS);
        let told: Vec<(u64, u32, bool)> =
            after.iter().map(|mapping| (mapping.start, mapping.accesses, mapping.since == since)).collect();
        assert_eq!(told, [(0, 19, true), (200, 0, true), (400, 0, false)]);
        let short = usages(&[(0, 100, 51), (200, 10, 1), (400, 7, 0), (800, 100, 100)]);
        let told: Vec<(u64, u32, bool)> = judge(&after, &long, &short, &NEEDS)
            .iter()
            .map(|mapping| (mapping.start, mapping.accesses, mapping.since == since))
            .collect();
        assert_eq!(told, [(0, 11, false), (200, 2, true), (800, 20, false)], "the smallest is left out");
    }

    #[test]
    fn this_process_shows_its_accesses() {
        let me = crate::processes::one(rustix::process::getpid()).expect("this process");
        let mut smaps = Smaps::new(&NEEDS);
        smaps.watch(&[me]).expect("this process");
        let memory = vec![1u8; 32 << 20];
        let found = smaps.read().expect("mappings");
        let page = memory.as_ptr() as u64 / 4096 + 1;
        assert!(
            found[0].iter().any(|found| (found.start..found.start + found.pages).contains(&page)),
            "{found:?}"
        );
        assert_eq!((found.len(), found[0].len() <= 3), (1, true));
    }
}

//! Written pages, by the kernel's soft-dirty bits (Documentation/admin-guide/mm/soft-dirty.rst).

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::CLEARED_MAX;
use crate::processes::{Identity, Process, resident_pages};
use crate::sys::pagemap;

/// The soft-dirty bit of a /proc/PID/pagemap entry.
const SOFT_DIRTY: u64 = 1 << 55;

/// Clearing and the faults it causes take 1/N of the time.
const DUTY_DIVISOR: f64 = 100.0;

/// Cost of the write fault after clearing, relative to clearing the page's bit (`lab/monitors.rs` measures
/// both).
const FAULT: f64 = 24.0;

/// Detects writes. Clearing the bits write-protects all of a process's memory for a moment and makes each
/// page's next write a fault, so the longer it takes, the less often it is done.
#[derive(Debug, Default)]
pub struct SoftDirty {
    /// When each process's bits are next cleared.
    due: HashMap<Identity, Instant>,
}

impl SoftDirty {
    /// Whether it can be used.
    ///
    /// # Errors
    /// If the kernel lacks it.
    pub fn check() -> io::Result<()> {
        let mut page = vec![0u8; 2 << 12];
        std::hint::black_box(&mut page).fill(1);
        let number = (page.as_ptr() as u64 >> 12) + 1;
        match pages_written(rustix::process::getpid(), &[number])?[..] {
            [true] => Ok(()),
            _ => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this kernel does not track written pages (CONFIG_MEM_SOFT_DIRTY)",
            )),
        }
    }

    /// Forgets all other processes.
    pub fn keep(&mut self, processes: &[Process]) {
        self.due.retain(|known, _| processes.iter().any(|process| process.identity() == *known));
    }

    /// Whether each base page was written since the bits were last cleared. Clears them if that is due.
    ///
    /// # Errors
    /// The kernel's. Until the bits have been cleared once, no page counts as written.
    pub fn written(&mut self, process: &Process, pages: &[u64]) -> io::Result<Vec<bool>> {
        let due = self.due.get(&process.identity()).copied();
        let written = match due {
            Some(_) => pages_written(process.pid, pages)?,
            None => vec![false; pages.len()],
        };
        let is_small = || resident_pages(process.pid.as_raw_nonzero().get()) <= Some(CLEARED_MAX);
        if due.is_none_or(|due| Instant::now() >= due) && is_small() {
            let share = written.iter().filter(|written| **written).count() as f64 / pages.len().max(1) as f64;
            let begin = Instant::now();
            fs::write(format!("/proc/{}/clear_refs", process.pid.as_raw_nonzero()), "4")?;
            let took = begin.elapsed();
            let others = self.due.len() as u32;
            self.due.insert(process.identity(), Instant::now() + pause(took, share) * others.max(1));
        }
        Ok(written)
    }
}

/// How long to wait after clearing one process's bits, given the time it took and the share of pages that
/// fault again.
fn pause(took: Duration, share: f64) -> Duration {
    took.mul_f64(DUTY_DIVISOR * (1.0 + FAULT * share))
}

fn pages_written(pid: Pid, pages: &[u64]) -> io::Result<Vec<bool>> {
    let pagemap = pagemap::open(pid)?;
    let written = |page: &u64| {
        let mut entry = [0; 8];
        pagemap.read_exact_at(&mut entry, page * 8)?;
        Ok(u64::from_ne_bytes(entry) & SOFT_DIRTY != 0)
    };
    pages.iter().map(written).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clearing_interval_grows_with_cost() {
        for (ms, share, pause_ms) in [(1, 0.0, 100), (1, 1.0, 2500), (20, 0.5, 26_000)] {
            let pause = pause(Duration::from_millis(ms), share);
            assert!(pause.as_millis().abs_diff(pause_ms) <= 1, "{pause:?}");
        }
    }
}

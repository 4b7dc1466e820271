//! Which pages are written, by the kernel's soft-dirty bits (Documentation/admin-guide/mm/soft-dirty.rst).

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::CLEARED_MAX;
use crate::processes::{Identity, Process};

/// The bit of a page's entry in /proc/PID/pagemap.
const SOFT_DIRTY: u64 = 1 << 55;

/// Clearing, and what follows from it, takes one part of the time in so many.
const SPARED: f64 = 100.0;

/// What the fault of the next write to a page costs, in times of what clearing its bit costs (`lab/monitors.rs` measures both).
const FAULT: f64 = 24.0;

/// Watches writes. To clear the bits makes the whole of a process's memory read-only for a moment and each page's next write a fault, so
/// they are cleared the less often the longer that takes.
#[derive(Debug, Default)]
pub struct SoftDirty {
    /// When each process's bits are to be cleared again.
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

    /// Forgets all processes but these.
    pub fn keep(&mut self, processes: &[Process]) {
        self.due.retain(|known, _| processes.iter().any(|process| process.identity() == *known));
    }

    /// Whether each of some base pages was written since the bits were last cleared. They are cleared then, if that is due.
    ///
    /// # Errors
    /// The kernel's. Until bits have been cleared once, no page counts as written.
    pub fn written(&mut self, process: &Process, pages: &[u64]) -> io::Result<Vec<bool>> {
        let due = self.due.get(&process.identity()).copied();
        let written = match due {
            Some(_) => pages_written(process.pid, pages)?,
            None => vec![false; pages.len()],
        };
        if process.resident_pages <= CLEARED_MAX && due.is_none_or(|due| Instant::now() >= due) {
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

/// How long to wait after bits of the only process were cleared, which took so long and has so large a share of pages fault again.
fn pause(took: Duration, share: f64) -> Duration {
    took.mul_f64(SPARED * (1.0 + FAULT * share))
}

fn pages_written(pid: Pid, pages: &[u64]) -> io::Result<Vec<bool>> {
    let pagemap = File::open(format!("/proc/{}/pagemap", pid.as_raw_nonzero()))?;
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
    fn the_more_it_costs_the_less_often() {
        for (ms, share, pause_ms) in [(1, 0.0, 100), (1, 1.0, 2500), (20, 0.5, 26_000)] {
            let pause = pause(Duration::from_millis(ms), share);
            assert!(pause.as_millis().abs_diff(pause_ms) <= 1, "{pause:?}");
        }
    }
}

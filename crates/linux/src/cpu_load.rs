//! How much of the CPUs' time other processes take.

use std::path::Path;
use std::time::Duration;

use procfs::{Current, Uptime};

use crate::sys::time::process_time;
use crate::topology::sysfs::Sysfs;

/// Shortest time to measure a share of: the kernel shows hundredths of a second.
const MEASURED_MIN: Duration = Duration::from_millis(50);

/// What CPUs did since the system's start, together.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Times {
    /// From the system's start.
    uptime: Duration,
    idle: Duration,
    /// In this process.
    own: Duration,
}

/// The load since the last measurement.
#[derive(Debug, Default)]
pub struct CpuLoad {
    last: Option<Times>,
}

impl CpuLoad {
    /// Share of the CPUs' time that other processes took since the last call that returned one, in 1/100 %;
    /// `None` at first, if that was too short a time to measure by, and where the kernel does not show it.
    pub fn busy_bp(&mut self) -> Option<u16> {
        let online = Sysfs(Path::new("/sys")).online_cpus().ok()?;
        (!online.is_empty()).then(|| self.end(Times::now()?, online.len()))?
    }

    fn end(&mut self, now: Times, cpus: usize) -> Option<u16> {
        let last = *self.last.get_or_insert(now);
        let passed = now.uptime.saturating_sub(last.uptime);
        if passed < MEASURED_MIN {
            return None;
        }
        self.last = Some(now);
        let free = now.idle.saturating_sub(last.idle) + now.own.saturating_sub(last.own);
        let share = 1.0 - free.as_secs_f64() / (passed.as_secs_f64() * cpus as f64);
        Some((share.clamp(0.0, 1.0) * 10_000.0) as u16)
    }
}

impl Times {
    fn now() -> Option<Times> {
        let Uptime { uptime, idle, .. } = Uptime::current().ok()?;
        let time = |seconds| Duration::try_from_secs_f64(seconds).ok();
        Some(Times { uptime: time(uptime)?, idle: time(idle)?, own: process_time() })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn times(uptime: u64, idle: u64, own: u64) -> Times {
        let [uptime, idle, own] = [uptime, idle, own].map(Duration::from_millis);
        Times { uptime, idle, own }
    }

    #[test]
    fn own_time_is_as_good_as_idle() {
        let mut load = CpuLoad::default();
        assert_eq!(load.end(times(5000, 9000, 10), 4), None);
        assert_eq!(load.end(times(5040, 9040, 10), 4), None, "too short");
        // Of 4 s, 1 s was idle and 1 s this process's.
        assert_eq!(load.end(times(6000, 10_000, 1010), 4), Some(5000));
        assert_eq!(load.end(times(7000, 15_000, 1010), 4), Some(0), "CPUs went offline");
        assert_eq!(load.end(times(8000, 15_000, 1010), 4), Some(10_000));
        assert_eq!(load.end(times(9000, 14_000, 1010), 4), Some(10_000), "idle times may step back");
    }

    #[test]
    fn system_shows_its_times() {
        let first = Times::now().expect("/proc/uptime");
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(20) {}
        let second = Times::now().expect("/proc/uptime");
        assert!(second.own > first.own && second.uptime >= first.uptime);
        assert!(first.uptime > Duration::ZERO);
    }
}

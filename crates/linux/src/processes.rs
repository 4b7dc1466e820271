//! The processes of this system.

use std::time::Duration;
use std::{fs, io};

use procfs::ProcError;
use procfs::process::{self, ProcState};
use rustix::process::Pid;
use rustix::time::{ClockId, clock_gettime};

/// Why a process's memory may not be looked at.
pub const FORBIDDEN: &str = "without CAP_SYS_PTRACE the kernel shows only one's own processes, and of those none that has more privileges";

/// A process that has memory of its own: no thread of the kernel, nothing that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: Pid,
    /// When it started, in ticks since boot: tells it from a later one of the same number.
    pub started_ticks: u64,
    /// Base pages of it that are in memory.
    pub resident_pages: u64,
    /// The name of its program, at most 15 bytes (proc_pid_comm(5)).
    pub name: String,
    /// Its user: who it acts as.
    pub uid: u32,
    /// Its control group in the unified hierarchy; `/` if there is none.
    pub cgroup: String,
}

/// What tells a process from all others since boot: its number, and when it started.
pub type Identity = (Pid, u64);

impl Process {
    /// Which process it is.
    pub fn identity(&self) -> Identity {
        (self.pid, self.started_ticks)
    }

    /// How long it has lived.
    pub fn age(&self) -> Duration {
        let now = clock_gettime(ClockId::Boottime);
        let now = Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32);
        let per_second = procfs::ticks_per_second();
        now.saturating_sub(Duration::from_millis(self.started_ticks * 1000 / per_second))
    }
}

/// All processes that have so many base pages in memory, by number. Those that end meanwhile are left out. Of the others no more is
/// read than how large they are.
///
/// # Errors
/// If /proc cannot be read.
pub fn all(least_pages: u64) -> io::Result<Vec<Process>> {
    let numbers =
        fs::read_dir("/proc")?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let large = numbers.filter(|&pid| resident_pages(pid).is_some_and(|pages| pages >= least_pages));
    let mut processes: Vec<Process> = large.filter_map(|pid| one(Pid::from_raw(pid)?)).collect();
    processes.sort_by_key(|process| process.pid.as_raw_nonzero());
    Ok(processes)
}

/// The second figure of proc_pid_statm(5); a thread of the kernel has none in memory.
fn resident_pages(pid: i32) -> Option<u64> {
    let figures = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    figures.split(' ').nth(1)?.parse().ok()
}

/// A process by its number; none if there is no such process with memory.
pub fn one(pid: Pid) -> Option<Process> {
    process::Process::new(pid.as_raw_nonzero().get()).ok().and_then(|found| known(&found).ok()?)
}

fn known(found: &process::Process) -> Result<Option<Process>, ProcError> {
    let stat = found.stat()?;
    let Some(pid) = Pid::from_raw(stat.pid) else { return Ok(None) };
    if stat.vsize == 0 || matches!(stat.state(), Ok(ProcState::Zombie | ProcState::Dead)) {
        return Ok(None);
    }
    let cgroups = found.cgroups()?.0;
    let unified = cgroups.into_iter().find(|group| group.hierarchy == 0);
    Ok(Some(Process {
        pid,
        started_ticks: stat.starttime,
        resident_pages: stat.rss,
        name: stat.comm,
        uid: found.status()?.euid,
        cgroup: unified.map_or_else(|| "/".to_owned(), |group| group.pathname),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_among_them_and_kernel_threads_are_not() {
        let me = rustix::process::getpid();
        let found = all(1).expect("/proc");
        let mine = found.iter().find(|process| process.pid == me).expect("this process");
        let uid = rustix::process::geteuid().as_raw();
        assert_eq!((mine.uid, one(me).map(|me| me.uid)), (uid, Some(uid)));
        assert!(found.iter().all(|process| process.name != "kthreadd"));
        let more = mine.resident_pages * 16;
        assert!(all(more).expect("/proc").iter().all(|process| process.pid != me));
        assert!(mine.age() < Duration::from_secs(3600) && mine.age() < found[0].age(), "{mine:?}");
    }
}

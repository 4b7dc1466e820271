//! The processes of this system.

use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};
use std::{fs, io};

use procfs::FromRead;
use procfs::ProcError;
use procfs::process::{self, ProcState, Status};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use rustix::time::{ClockId, clock_gettime};

use crate::cpu_budget::CpuBudget;
use crate::sys::time::thread_time;

/// Why a process's memory is not accessible.
pub const FORBIDDEN: &str =
    "without CAP_SYS_PTRACE the kernel shows only your own processes without extra privileges";

/// A user and a primary group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// A process with its own memory: not a kernel thread, not a zombie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Process id.
    pub pid: Pid,
    /// Start time in ticks since boot; with the id it is unique, as ids are reused.
    pub started_ticks: u64,
    /// Resident base pages.
    pub resident_pages: u64,
    /// Program name, at most 15 bytes (proc_pid_comm(5)).
    pub name: String,
    /// Effective user.
    pub uid: u32,
    /// The user who may ptrace(2) it without privileges; `None` if only root may.
    pub ptrace_user: Option<User>,
    /// Its control group in the unified hierarchy; `/` if there is none.
    pub cgroup: String,
}

/// Identifies a process uniquely since boot: its id and start time.
pub type Identity = (Pid, u64);

impl Process {
    /// Its identity.
    pub fn identity(&self) -> Identity {
        (self.pid, self.started_ticks)
    }

    /// Whether a user may read its addresses and move its pages.
    pub fn may_be_accessed_by(&self, user: User) -> bool {
        user.uid == 0 || self.ptrace_user == Some(user)
    }

    /// Its age.
    pub fn age(&self) -> Duration {
        let now = clock_gettime(ClockId::Boottime);
        let now = Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32);
        let per_second = procfs::ticks_per_second();
        now.saturating_sub(Duration::from_millis(self.started_ticks * 1000 / per_second))
    }
}

/// Share of a core that the list of large processes may take. A scan takes some 65 us of a large process, and
/// its size some 4 us (Linux 6.18, an AMD EPYC of Zen 4).
const LISTING_SHARE: f64 = 0.005;

/// The large processes of this system. All are looked at in scans; between them only the sizes of those that
/// were large, or whether they exist.
#[derive(Debug)]
pub struct LargeProcesses {
    last: Option<Scan>,
    budget: CpuBudget,
    begun: Instant,
}

#[derive(Debug)]
struct Scan {
    at: Duration,
    least_pages: u64,
    found: Vec<Process>,
}

impl Default for LargeProcesses {
    fn default() -> LargeProcesses {
        LargeProcesses { last: None, budget: CpuBudget::share(LISTING_SHARE), begun: Instant::now() }
    }
}

impl LargeProcesses {
    /// All processes with at least this many resident base pages, by id. One that has exited is left out; one
    /// that has started, grown, or changed its name, owner or control group is in it so after
    /// `scan_interval`. If the list would take more than half a percent of a core, this and the sizes come
    /// later; until then a process that has exited and was not waited for, or whose id was used again, is
    /// still listed.
    ///
    /// # Errors
    /// If /proc cannot be read.
    pub fn read(&mut self, least_pages: u64, scan_interval: Duration) -> io::Result<Vec<Process>> {
        let (now, begun) = (self.begun.elapsed(), thread_time());
        match self.last.as_mut().filter(|scan| scan.least_pages == least_pages) {
            Some(scan) if !self.budget.is_due(now) => scan.found.retain(|process| exists(process.pid)),
            Some(scan) if now.saturating_sub(scan.at) < scan_interval => {
                scan.found.retain_mut(|process| {
                    let pages = resident_pages(process.pid.as_raw_nonzero().get()).unwrap_or(0);
                    process.resident_pages = pages;
                    pages > 0 && pages >= least_pages
                });
                self.budget.spend(now, thread_time().saturating_sub(begun));
            }
            _ => {
                self.last = Some(Scan { at: now, least_pages, found: scan(least_pages)? });
                self.budget.spend(now, thread_time().saturating_sub(begun));
            }
        }
        Ok(self.last.iter().flat_map(|scan| &scan.found).cloned().collect())
    }
}

/// Whether a process with this id exists.
fn exists(pid: Pid) -> bool {
    test_kill_process(pid) != Err(Errno::SRCH)
}

/// All processes with at least this many resident base pages, by id. For the others only the size is read.
fn scan(least_pages: u64) -> io::Result<Vec<Process>> {
    let numbers =
        fs::read_dir("/proc")?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let sized = numbers.filter_map(|pid| Some((Pid::from_raw(pid)?, resident_pages(pid)?)));
    let mut large: Vec<(Pid, u64)> = sized.filter(|&(_, pages)| pages >= least_pages).collect();
    large.sort_by_key(|(pid, _)| pid.as_raw_nonzero());
    // statm is exact where stat is a sum of some CPUs' counts.
    let found = large.into_iter().map(|(pid, pages)| Some(Process { resident_pages: pages, ..one(pid)? }));
    Ok(found.flatten().collect())
}

/// Processor time of this process.
pub fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

/// Resident base pages of a process: 0 for a kernel thread, `None` if there is no such process.
pub fn resident_pages(pid: i32) -> Option<u64> {
    size(pid, 1)
}

/// Those of them that are pages of files or shared memory.
pub fn shared_pages(pid: Pid) -> Option<u64> {
    size(pid.as_raw_nonzero().get(), 2)
}

/// A field of proc_pid_statm(5), the first being 0.
fn size(pid: i32, field: usize) -> Option<u64> {
    let figures = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    figures.split(' ').nth(field)?.parse().ok()
}

/// A process by its id; `None` if there is no such process with memory.
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
    let file = found.open_relative("status")?;
    let owner = file.metadata().map_err(ProcError::from)?;
    let status = Status::from_read(file)?;
    let owner = User { uid: owner.uid(), gid: owner.gid() };
    Ok(Some(Process {
        pid,
        started_ticks: stat.starttime,
        resident_pages: stat.rss,
        name: stat.comm,
        uid: status.euid,
        ptrace_user: ptrace_user(&status, owner),
        cgroup: unified.map_or_else(|| "/".to_owned(), |group| group.pathname),
    }))
}

/// The kernel's rule (`__ptrace_may_access` in kernel/ptrace.c) for a user without capabilities: all user ids
/// and group ids are the user's, the process has no capabilities, and it is dumpable. `owner` is the owner of
/// its files in /proc: root if it is not dumpable (its directory there always has the effective ids).
/// Stricter than the kernel in one case: a user may trace processes with capabilities in their own user
/// namespace.
fn ptrace_user(status: &Status, owner: User) -> Option<User> {
    let Status { ruid, euid, suid, rgid, egid, sgid, capprm, .. } = *status;
    let user = User { uid: euid, gid: egid };
    let one_user = ruid == euid && suid == euid && rgid == egid && sgid == egid;
    (one_user && capprm == 0 && owner == user).then_some(user)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    use super::*;

    const USER: User = User { uid: 1000, gid: 100 };

    /// The status of a process, with [`USER`]'s lines replaced by these.
    fn status(lines: &[&str]) -> Status {
        let mut text = fs::read_to_string("/proc/self/status").expect("this process's status");
        let own = ["Uid:\t1000\t1000\t1000\t1000", "Gid:\t100\t100\t100\t100", "CapPrm:\t0000000000000000"];
        for line in own.iter().chain(lines) {
            let (key, _) = line.split_once('\t').expect("a key");
            let old = text.lines().find(|old| old.starts_with(key)).expect("the line").to_owned();
            text = text.replacen(&old, line, 1);
        }
        Status::from_read(text.as_bytes()).expect("a status")
    }

    #[test]
    fn only_process_with_one_user_and_no_privileges_is_accessible() {
        assert_eq!(ptrace_user(&status(&[]), USER), Some(USER));
        for line in [
            "Uid:\t0\t1000\t1000\t1000",
            "Uid:\t1000\t1000\t0\t1000",
            "Uid:\t1000\t0\t0\t0",
            "Gid:\t42\t100\t100\t100",
            "Gid:\t100\t100\t42\t100",
            "Gid:\t100\t42\t42\t42",
            "CapPrm:\t0000000000000400",
        ] {
            assert_eq!(ptrace_user(&status(&[line]), USER), None, "{line}");
        }
        for (uid, gid) in [(0, 0), (0, 100), (1000, 0)] {
            assert_eq!(ptrace_user(&status(&[]), User { uid, gid }), None, "not dumpable: {uid} {gid}");
        }
    }

    #[test]
    fn process_is_accessible_to_its_user_and_group_and_to_root() {
        let me = one(rustix::process::getpid()).expect("this process");
        let (root, nobody) = (User { uid: 0, gid: 0 }, User { uid: 65534, gid: 65534 });
        let mut command = Command::new("cat");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // Only root can start another user's process.
        let user = if me.uid == 0 { nobody } else { User { uid: me.uid, gid: egid() } };
        if me.uid == 0 {
            command.uid(user.uid).gid(user.gid);
        }
        let mut child = command.spawn().expect("cat");
        // After its first output it has passed exec.
        let mut pipe = child.stdin.take().expect("a pipe");
        io::Write::write_all(&mut pipe, b"!").expect("its input");
        child.stdout.take().expect("a pipe").read_exact(&mut [0]).expect("its output");
        let found = one(Pid::from_child(&child)).expect("a process");
        assert_eq!((found.uid, found.ptrace_user), (user.uid, Some(user)));
        let other_group = User { gid: user.gid - 1, ..user };
        let other_user = User { uid: user.uid - 1, ..user };
        let may = [user, root, other_group, other_user].map(|user| found.may_be_accessed_by(user));
        assert_eq!(may, [true, true, false, user.uid == 1]);
        drop(pipe);
        child.wait().expect("its end");
    }

    fn egid() -> u32 {
        rustix::process::getegid().as_raw()
    }

    const INTERVAL: Duration = Duration::from_secs(3600);

    #[test]
    fn list_contains_this_process_and_no_kernel_thread() {
        let me = rustix::process::getpid();
        let mut large = LargeProcesses::default();
        let found = large.read(1, INTERVAL).expect("/proc");
        let mine = found.iter().find(|process| process.pid == me).expect("this process");
        let uid = rustix::process::geteuid().as_raw();
        assert_eq!((mine.uid, one(me).map(|me| me.uid)), (uid, Some(uid)));
        assert!(found.iter().all(|process| process.name != "kthreadd"));
        let more = mine.resident_pages * 16;
        assert!(large.read(more, INTERVAL).expect("/proc").iter().all(|process| process.pid != me));
        assert!(mine.age() < Duration::from_secs(3600) && mine.age() < found[0].age(), "{mine:?}");
    }

    #[test]
    fn process_that_exited_since_the_last_scan_is_left_out() {
        // Right after a scan only existence is checked; without a budget, the size is read.
        for (budget, least) in
            [(CpuBudget::share(LISTING_SHARE), 1), (CpuBudget::default(), 1), (CpuBudget::default(), 0)]
        {
            let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("cat");
            let pid = Pid::from_child(&child);
            let mut large = LargeProcesses { budget, ..LargeProcesses::default() };
            let mut is_found =
                || large.read(least, INTERVAL).expect("/proc").iter().any(|process| process.pid == pid);
            assert!(is_found());
            child.stdin.take();
            child.wait().expect("its end");
            assert!(!is_found());
        }
    }

    #[test]
    fn listing_waits_for_its_budget() {
        let me = rustix::process::getpid();
        let mut large = LargeProcesses::default();
        let size = |large: &mut LargeProcesses| {
            let scan = large.last.as_mut().expect("a scan");
            scan.found.iter_mut().for_each(|process| process.resident_pages = u64::MAX);
            let found = large.read(1, Duration::ZERO).expect("/proc");
            found.iter().find(|process| process.pid == me).expect("this process").resident_pages
        };
        large.read(1, Duration::ZERO).expect("/proc");
        large.budget.spend(large.begun.elapsed(), Duration::from_secs(1));
        assert_eq!(size(&mut large), u64::MAX, "as it was");
        large.budget = CpuBudget::share(LISTING_SHARE);
        assert!(size(&mut large) < u64::MAX);
    }
}

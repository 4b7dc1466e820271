//! System calls injected into a stopped thread.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, WaitOptions, WaitStatus, pidfd_getfd, pidfd_open, waitpid,
};

use super::maps;
use crate::placement::stat;
use crate::sys::trace::{self, Registers, Resume, SyscallStop, Tid};
use crate::sys::userfaultfd::Userfaultfd;

/// The code segment of 64-bit programs.
const CODE_64: u64 = 0x33;

/// The `syscall` instruction.
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// Signals and exits that arrived during an injected system call, handled after it.
#[derive(Debug, Default)]
pub struct Pending {
    /// Threads that exited.
    pub ended: VecDeque<(Tid, WaitStatus)>,
    signals: Vec<(Tid, i32)>,
}

/// Opens a userfaultfd of a process's address space before its first instruction in it; `None` if it is not a
/// 64-bit program, or has a seccomp filter. Its registers are restored.
///
/// # Errors
/// The kernel's, if the process lacks the permission or has ended.
pub fn open_userfaultfd(pid: Tid, pending: &mut Pending) -> io::Result<Option<Userfaultfd>> {
    let saved = trace::registers(pid)?;
    if saved.cs != CODE_64 || is_sandboxed(pid) {
        return Ok(None);
    }
    let site = syscall_instruction(pid)?;
    let flags = (libc::O_CLOEXEC | libc::O_NONBLOCK) as u64;
    let opened = call(pid, &saved, site, libc::SYS_userfaultfd, flags, pending);
    let taken = opened.and_then(|fd| {
        let taken = take(pid, fd as i32);
        // Close the program's own copy: with it, its faults would wait for ever if this process ended.
        call(pid, &saved, site, libc::SYS_close, fd as u64, pending)?;
        taken
    });
    trace::set_registers(pid, &saved)?;
    for (tid, signal) in pending.signals.drain(..) {
        trace::send(pid, tid, signal)?;
    }
    Userfaultfd::new(taken?).map(Some)
}

/// Resumes a thread that stopped in exec until exec returns.
///
/// # Errors
/// If the thread ends first.
pub fn leave_exec(pid: Tid, pending: &mut Pending) -> io::Result<()> {
    while run_to_syscall(pid, pending)? != SyscallStop::Exit {}
    Ok(())
}

/// Whether a process has more seccomp filters than this one: an injected system call could kill it.
fn is_sandboxed(pid: Tid) -> bool {
    const FILTERS: &str = "Seccomp_filters";
    stat::status(pid, FILTERS) != stat::status(std::process::id() as Tid, FILTERS)
}

fn take(pid: Tid, fd: i32) -> io::Result<OwnedFd> {
    let process = Pid::from_raw(pid).ok_or_else(ended)?;
    let process = pidfd_open(process, PidfdFlags::empty())?;
    Ok(pidfd_getfd(process, fd, PidfdGetfdFlags::empty())?)
}

/// The address of an existing `syscall` instruction: the vDSO has some as fallback.
fn syscall_instruction(pid: Tid) -> io::Result<u64> {
    let range = maps::vdso(pid)?;
    let mut code = vec![0; (range.end - range.start) as usize];
    File::open(format!("/proc/{pid}/mem"))?.read_exact_at(&mut code, range.start)?;
    let at = code.windows(SYSCALL.len()).position(|bytes| bytes == SYSCALL);
    at.map(|at| range.start + at as u64).ok_or_else(|| io::Error::other("the vDSO makes no system call"))
}

/// Makes a thread call a system call with one argument.
fn call(
    tid: Tid,
    saved: &Registers,
    site: u64,
    number: libc::c_long,
    argument: u64,
    pending: &mut Pending,
) -> io::Result<i64> {
    let registers = Registers { rip: site, rax: number as u64, orig_rax: u64::MAX, rdi: argument, ..*saved };
    trace::set_registers(tid, &registers)?;
    while run_to_syscall(tid, pending)? != SyscallStop::Entry {}
    while run_to_syscall(tid, pending)? != SyscallStop::Exit {}
    let returned = trace::registers(tid)?.rax as i64;
    if returned < 0 { Err(io::Error::from_raw_os_error(-returned as i32)) } else { Ok(returned) }
}

/// Resumes a thread until the next entry to or exit from a system call.
fn run_to_syscall(tid: Tid, pending: &mut Pending) -> io::Result<SyscallStop> {
    const SYSCALL_STOP: i32 = libc::SIGTRAP | 0x80;
    let pid = Pid::from_raw(tid).ok_or_else(ended)?;
    loop {
        trace::resume(tid, Resume::ToSyscall, 0)?;
        let waited = waitpid(Some(pid), WaitOptions::from_bits_retain(libc::__WALL as u32))?;
        let (_, status) = waited.ok_or_else(ended)?;
        match (status.stopping_signal(), status.as_raw() >> 16) {
            (None, _) => {
                pending.ended.push_back((tid, status));
                return Err(ended());
            }
            (Some(SYSCALL_STOP), _) => return trace::syscall_stop(tid),
            (Some(signal), 0) => pending.signals.push((tid, signal)),
            _ => {}
        }
    }
}

fn ended() -> io::Error {
    io::Error::from_raw_os_error(libc::ESRCH)
}

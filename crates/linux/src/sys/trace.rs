//! ptrace(2) of another thread, and a signal to it after certain system calls.
//!
//! The ptrace wrapper libraries do not support real-time signals, which programs may receive.

use std::ffi::CStr;
use std::io::{self, PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr::null_mut;

use perf_event::events::Tracepoint;
use perf_event::{Builder, Counter};
use rustix::fs::fstat;
use rustix::io::Errno;

/// A thread id.
pub type Tid = i32;

/// A thread's registers.
pub type Registers = libc::user_regs_struct;

/// How a stopped thread resumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// Until a signal, an exec, or a fork or clone.
    Continue,
    /// The same, or until it enters or leaves a system call.
    ToSyscall,
    /// Stays in group-stop until it receives SIGCONT.
    Listen,
}

/// Which side of a system call a thread has stopped at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyscallStop {
    /// Entry.
    Entry,
    /// Exit.
    Exit,
    /// Neither.
    Neither,
}

/// Attaches to a thread and its future children without stopping it. All of them resume when the tracer
/// exits.
pub fn seize(tid: Tid) -> io::Result<()> {
    let options = libc::PTRACE_O_TRACESYSGOOD
        | libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACECLONE;
    // SAFETY: this request takes no pointer.
    check(unsafe { libc::ptrace(libc::PTRACE_SEIZE, tid, 0_usize, options as usize) })
}

/// Resumes a stopped thread, with a signal unless that is 0.
pub fn resume(tid: Tid, how: Resume, signal: i32) -> io::Result<()> {
    let request = match how {
        Resume::Continue => libc::PTRACE_CONT,
        Resume::ToSyscall => libc::PTRACE_SYSCALL,
        Resume::Listen => libc::PTRACE_LISTEN,
    };
    // SAFETY: these requests take no pointer.
    check(unsafe { libc::ptrace(request, tid, 0_usize, signal as usize) })
}

/// The message of an event stop: the new thread, or the former id of a thread that calls exec.
pub fn event_message(tid: Tid) -> io::Result<Tid> {
    let mut message: libc::c_ulong = 0;
    // SAFETY: the kernel writes one word.
    check(unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, tid, 0_usize, &raw mut message) })?;
    Ok(message as Tid)
}

/// A stopped thread's registers.
pub fn registers(tid: Tid) -> io::Result<Registers> {
    // SAFETY: registers are plain numbers.
    let mut registers: Registers = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes this structure.
    check(unsafe { libc::ptrace(libc::PTRACE_GETREGS, tid, 0_usize, &raw mut registers) })?;
    Ok(registers)
}

/// Sets a stopped thread's registers.
pub fn set_registers(tid: Tid, registers: &Registers) -> io::Result<()> {
    // SAFETY: the kernel reads this structure.
    check(unsafe { libc::ptrace(libc::PTRACE_SETREGS, tid, 0_usize, &raw const *registers) })
}

/// The code of the signal that stopped a thread: its origin (sigaction(2), `si_code`).
pub fn signal_code(tid: Tid) -> io::Result<i32> {
    // SAFETY: any bytes are such a structure.
    let mut signal: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes this structure.
    check(unsafe { libc::ptrace(libc::PTRACE_GETSIGINFO, tid, 0_usize, &raw mut signal) })?;
    Ok(signal.si_code)
}

/// Which side of a system call a thread has stopped at.
pub fn syscall_stop(tid: Tid) -> io::Result<SyscallStop> {
    let mut kind = 0_u8;
    // SAFETY: the kernel writes at most the one byte passed as the length, the structure's first.
    check(unsafe { libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, tid, 1_usize, &raw mut kind) })?;
    Ok(match kind {
        libc::PTRACE_SYSCALL_INFO_ENTRY => SyscallStop::Entry,
        libc::PTRACE_SYSCALL_INFO_EXIT => SyscallStop::Exit,
        _ => SyscallStop::Neither,
    })
}

/// Stops a thread.
pub fn interrupt(tid: Tid) -> io::Result<()> {
    // SAFETY: this request takes no pointer.
    check(unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, tid, 0_usize, 0_usize) })
}

/// Delivers a signal to a stopped thread that had blocked it.
pub fn unblock(tid: Tid, signal: i32) -> io::Result<()> {
    const GET_SIGNAL_MASK: u32 = 0x420a;
    const SET_SIGNAL_MASK: u32 = 0x420b;
    let mut mask = 0_u64;
    // SAFETY: the kernel writes a word.
    check(unsafe { libc::ptrace(GET_SIGNAL_MASK, tid, size_of_val(&mask), &raw mut mask) })?;
    mask &= !(1 << (signal - 1));
    // SAFETY: the kernel reads a word.
    check(unsafe { libc::ptrace(SET_SIGNAL_MASK, tid, size_of_val(&mask), &raw const mask) })
}

/// Signals to this thread, read from a descriptor instead of handled.
#[derive(Debug)]
pub struct Signals(OwnedFd);

impl Signals {
    /// Blocks a signal and reads it from now on.
    pub fn of(signal: i32) -> io::Result<Signals> {
        // SAFETY: a set of signals is plain bits, and an empty one.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: the set is valid, and only these calls read or change it.
        let fd = unsafe {
            libc::sigaddset(&raw mut set, signal);
            check((-libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, null_mut())).into())?;
            libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        check(fd.into())?;
        // SAFETY: a new descriptor without another owner.
        Ok(Signals(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The descriptor that raised the next signal; `None` if no signal is pending.
    pub fn next(&self) -> io::Result<Option<RawFd>> {
        /// `struct signalfd_siginfo` (signalfd(2)), and the offset of the descriptor in it.
        const BYTES: usize = 128;
        const DESCRIPTOR: usize = 20;
        let mut signal = [0; BYTES];
        match rustix::io::read(&self.0, &mut signal) {
            Ok(_) => {
                let descriptor = signal[DESCRIPTOR..].first_chunk().expect("four bytes");
                Ok(Some(RawFd::from_ne_bytes(*descriptor)))
            }
            Err(Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Whether two processes share an address space.
pub fn same_memory(one: Tid, other: Tid) -> io::Result<bool> {
    const KCMP_VM: i32 = 1;
    // SAFETY: this call takes numbers alone.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_VM, 0, 0) };
    check(order.min(0)).map(|()| order == 0)
}

/// Sends a signal to one thread.
pub fn send(process: Tid, tid: Tid, signal: i32) -> io::Result<()> {
    // SAFETY: this call takes numbers alone.
    check(unsafe { libc::syscall(libc::SYS_tgkill, process, tid, signal) })
}

/// Makes a command's process write its process id to the first pipe and wait for a byte from the second one
/// before exec. If the second pipe is closed instead, the command cannot be started.
pub fn hold_before_exec(command: &mut Command) -> io::Result<(PipeReader, PipeWriter)> {
    let ((child_pid, mut report_pid), (mut wait, go)) = (pipe()?, pipe()?);
    let parents = [child_pid.as_raw_fd(), go.as_raw_fd()];
    let hold = move || {
        // Close the child's copies of the other ends: it could not see them closed otherwise.
        close_end_of(parents[0], report_pid.as_fd());
        close_end_of(parents[1], wait.as_fd());
        report_pid.write_all(&rustix::process::getpid().as_raw_nonzero().get().to_ne_bytes())?;
        wait.read_exact(&mut [0])
    };
    // SAFETY: between fork and exec only system calls are made: no allocation, no lock.
    unsafe { command.pre_exec(hold) };
    Ok((child_pid, go))
}

/// Closes a descriptor if it is an end of a pipe. It is another file's if its owner closed it before the
/// fork.
fn close_end_of(fd: RawFd, pipe: BorrowedFd<'_>) {
    // SAFETY: file metadata is plain numbers.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes this structure.
    let is_open = unsafe { libc::fstat(fd, &raw mut found) } == 0;
    let is_end = fstat(pipe).is_ok_and(|pipe| (pipe.st_dev, pipe.st_ino) == (found.st_dev, found.st_ino));
    if is_open && is_end {
        // SAFETY: no value in the child owns this descriptor: its owner is in the parent.
        unsafe { libc::close(fd) };
    }
}

/// Makes the kernel send a signal to a thread at each passage of a tracepoint, until the returned value is
/// dropped. `filter` selects the passages (Linux, Documentation/trace/events.rst).
pub fn signal_on_tracepoint(
    tid: Tid,
    tracepoint: u64,
    filter: &CStr,
    to: Tid,
    signal: i32,
) -> io::Result<Counter> {
    const SET_FILTER: libc::c_ulong = 0x4008_2406;
    let mut event = Builder::new(Tracepoint::with_id(tracepoint))
        .observe_pid(tid)
        .any_cpu()
        .include_kernel()
        .sample_period(1)
        .wakeup_events(1)
        .build()?;
    // SAFETY: the kernel reads a NUL-terminated string.
    check(unsafe { libc::ioctl(event.as_raw_fd(), SET_FILTER, filter.as_ptr()) }.into())?;
    deliver_to(&event, to, signal)?;
    event.enable()?;
    Ok(event)
}

/// `struct f_owner_ex` (fcntl(2)).
#[repr(C)]
struct Owner {
    kind: i32,
    id: i32,
}

/// Sends a descriptor's events to a thread as a signal.
fn deliver_to(event: &Counter, tid: Tid, signal: i32) -> io::Result<()> {
    const SET_OWNER: i32 = 15;
    const SET_SIGNAL: i32 = 10;
    const THREAD: i32 = 0;
    let (fd, owner) = (event.as_raw_fd(), Owner { kind: THREAD, id: tid });
    // SAFETY: the kernel reads this structure; the other two calls take numbers alone.
    unsafe {
        check(libc::fcntl(fd, SET_OWNER, &raw const owner).into())?;
        check(libc::fcntl(fd, SET_SIGNAL, signal).into())?;
        check(libc::fcntl(fd, libc::F_SETFL, libc::O_ASYNC | libc::O_NONBLOCK).into())
    }
}

fn check(returned: libc::c_long) -> io::Result<()> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_process_reports_its_id_and_starts_when_released() {
        let mut command = Command::new("true");
        let (mut child_pid, mut go) = hold_before_exec(&mut command).expect("pipes");
        go.write_all(&[0]).expect("a byte");
        let mut child = command.spawn().expect("true");
        let mut pid = [0; size_of::<Tid>()];
        child_pid.read_exact(&mut pid).expect("its id");
        assert_eq!(u32::from_ne_bytes(pid), child.id());
        assert!(child.wait().expect("its end").success());
    }

    #[test]
    fn reused_descriptors_are_not_closed_in_child() {
        let mut command = Command::new("true");
        let (child_pid, go) = hold_before_exec(&mut command).expect("pipes");
        let _reader = child_pid.try_clone().expect("a descriptor");
        drop((child_pid, go));
        // The standard library's pipe for the child's errors reuses their numbers.
        let started = command.spawn();
        assert_eq!(started.map(|_| ()).map_err(|error| error.kind()), Err(io::ErrorKind::InvalidInput));
    }
}

//! Start and end of a program with exact placement.

use std::fs;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::thread::{self, JoinHandle};

use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, WaitId, WaitIdOptions, getrlimit, setrlimit, waitid};
use rustix::thread::disable_transparent_huge_pages;

use super::placer::Placer;
use super::tracer::Tracer;
use super::{Exact, PlacementCounts};
use crate::placement::KernelPolicy;
use crate::sys::trace::{self, Tid};
use crate::sys::userfaultfd;
use crate::topology::FewInitiators;

/// Id of the tracepoint at system call exit.
pub const TRACEPOINT: &str = "/sys/kernel/tracing/events/raw_syscalls/sys_exit/id";

/// Why exact placement is not possible.
#[derive(Debug, thiserror::Error)]
pub enum ExactError {
    /// The machine does not fit the system.
    #[error(transparent)]
    Initiators(#[from] FewInitiators),
    /// Faults cannot be handled.
    #[error("cannot handle the kernel's faults on the program's behalf (userfaultfd: {0}); be root")]
    Faults(io::Error),
    /// System calls cannot be traced.
    #[error(
        "cannot see new mappings ({TRACEPOINT}: {0}); be root, and mount the kernel's tracing: mount -t \
         tracefs tracefs /sys/kernel/tracing"
    )]
    Mappings(io::Error),
    /// The program cannot be started.
    #[error("cannot be started: {0}")]
    Start(io::Error),
}

/// A running program with exact placement.
#[derive(Debug)]
pub struct Running {
    child: Child,
    tracer: JoinHandle<io::Result<Option<Exit>>>,
}

/// How a program ended, and its page counts.
type Exit = (ExitStatus, PlacementCounts);

impl Exact {
    /// Starts a program and places its pages from its first instruction on. It has no huge pages: each fault
    /// is for one page.
    ///
    /// # Errors
    /// If this process lacks the privilege, or the program cannot be started.
    pub fn start(self, command: Command) -> Result<Running, ExactError> {
        userfaultfd::check_permission().map_err(ExactError::Faults)?;
        let tracepoint = tracepoint().map_err(ExactError::Mappings)?;
        self.start_traced(command, tracepoint).map_err(ExactError::Start)
    }

    fn start_traced(self, mut command: Command, tracepoint: u64) -> io::Result<Running> {
        disable_transparent_huge_pages(true)?;
        let gate = StartGate::before(&mut command)?;
        let tracer = thread::Builder::new().name("placement".to_owned());
        let tracer = tracer.spawn(move || trace(self, tracepoint, gate))?;
        // Under the default policy, NUMA balancing would migrate placed pages.
        let started = KernelPolicy::Local.start(&mut command);
        // Drops the process's ends of the gate: their closing shows that a process ended early.
        drop(command);
        match started {
            Ok(child) => Ok(Running { child, tracer }),
            // If the tracer gave up, its error is the reason.
            Err(error) => Err(joined(tracer).err().unwrap_or(error)),
        }
    }
}

impl Running {
    /// The program's process id.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Waits for the program's end; also returns its page counts, or why placement stopped. Processes that it
    /// leaves running are placed by the kernel from then on.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait(mut self) -> io::Result<(ExitStatus, io::Result<PlacementCounts>)> {
        match joined(self.tracer).and_then(|ended| ended.ok_or(io::ErrorKind::NotFound.into())) {
            Ok((status, outcome)) => Ok((status, Ok(outcome))),
            Err(error) => Ok((self.child.wait()?, Err(error))),
        }
    }
}

fn joined<T>(thread: JoinHandle<io::Result<T>>) -> io::Result<T> {
    thread.join().unwrap_or_else(|_| Err(io::Error::other("the placement thread panicked")))
}

fn tracepoint() -> io::Result<u64> {
    fs::read_to_string(TRACEPOINT)?.trim().parse().map_err(io::Error::other)
}

/// Holds a new process before exec until it is traced: it writes its process id and waits for a byte.
struct StartGate {
    child_pid: PipeReader,
    go: PipeWriter,
}

impl StartGate {
    /// Makes a command's process report its id and wait before exec.
    fn before(command: &mut Command) -> io::Result<StartGate> {
        let (child_pid, go) = trace::hold_before_exec(command)?;
        Ok(StartGate { child_pid, go })
    }
}

/// Places a program's pages until it ends; `None` if it never ran.
fn trace(exact: Exact, tracepoint: u64, mut gate: StartGate) -> io::Result<Option<Exit>> {
    let mut tracer = Tracer::new(Placer::new(exact), tracepoint)?;
    let mut pid = [0; size_of::<Tid>()];
    gate.child_pid.read_exact(&mut pid)?;
    let pid = Tid::from_ne_bytes(pid);
    trace::seize(pid).map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM) => io::Error::other(
            "cannot trace it: a debugger or another memtide traces it, or tracing is not permitted",
        ),
        _ => error,
    })?;
    // Each of the program's threads needs three descriptors here; the program's own limit is unchanged.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    tracer.add(pid, None)?;
    gate.go.write_all(&[0])?;
    drop(gate);
    if !begins(pid)? {
        return Ok(None);
    }
    let status = tracer.watch(pid)?;
    Ok(Some((ExitStatus::from_raw(status.as_raw()), tracer.counts())))
}

/// Waits until a process stops in exec. If it ended instead, it is not reaped: its parent needs its status.
fn begins(pid: Tid) -> io::Result<bool> {
    let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::NotFound)?;
    let options = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
    match waitid(WaitId::Pid(pid), options) {
        Ok(status) => Ok(status.is_some_and(|status| status.trapped() || status.stopped())),
        Err(Errno::CHILD) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

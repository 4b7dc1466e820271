//! Traces a program and its descendants with ptrace: new address spaces and newly mapped ranges are handed to
//! the placer.

use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::{Rc, Weak};

use memtide_core::ThreadId;
use memtide_core::policy::RuleState;
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::process::{WaitOptions, WaitStatus, wait};

use super::PlacementCounts;
use super::address_space::AddressSpace;
use super::inject::{self, Pending};
use super::placer::{Placer, SyscallSignals, Thread};
use crate::placement::stat;
use crate::sys::trace::{self, Resume, Signals, Tid};

/// Sent to a thread that has mapped memory. Ignored by default, in case the tracer dies first. Programs do
/// not send it to their own threads, whereas Go preempts its threads with SIGURG, and of two equal signals
/// the kernel keeps the first.
const MAPPED: i32 = libc::SIGWINCH;

/// The code of a signal for a descriptor's event (sigaction(2)).
const POLL_IN: i32 = 1;

/// The system calls that map memory, among those at the tracepoint raw_syscalls:sys_exit: mmap, brk and
/// mremap.
const MAPS: &CStr = c"id == 9 || id == 12 || id == 25";

/// The system call that changes a thread's signal mask: rt_sigprocmask.
const MASKS: &CStr = c"id == 14";

/// Event data of stopped threads and of changed signal masks; that of an address space is its descriptor.
const CHILD_STOPPED: u64 = u64::MAX;
const MASK_CHANGED: u64 = u64::MAX - 1;

/// Traces a program.
#[derive(Debug)]
pub struct Tracer {
    placer: Placer,
    /// Programs that are not placed.
    unwatched: u64,
    /// Threads created so far.
    seen: usize,
    tracepoint: u64,
    events: OwnedFd,
    child_stops: UnixStream,
    mask_changes: Signals,
    spaces: HashMap<u64, Weak<AddressSpace>>,
    /// Threads whose first stop came before their parents' clone events.
    stopped_early: HashSet<Tid>,
    pending: Pending,
}

impl Tracer {
    pub fn new(placer: Placer, tracepoint: u64) -> io::Result<Tracer> {
        let (child_stops, sender) = UnixStream::pair()?;
        child_stops.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(libc::SIGCHLD, sender)?;
        let mask_changes = Signals::of(libc::SIGRTMIN())?;
        let events = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (source, data) in [(child_stops.as_fd(), CHILD_STOPPED), (mask_changes.as_fd(), MASK_CHANGED)] {
            epoll::add(&events, source, epoll::EventData::new_u64(data), epoll::EventFlags::IN)?;
        }
        Ok(Tracer {
            placer,
            unwatched: 0,
            seen: 0,
            tracepoint,
            events,
            child_stops,
            mask_changes,
            spaces: HashMap::new(),
            stopped_early: HashSet::new(),
            pending: Pending::default(),
        })
    }

    /// The page counts so far.
    pub fn counts(&self) -> PlacementCounts {
        let placer = &self.placer;
        let placed: u64 = placer.placed.iter().sum();
        // Minor and major faults of the reaped children, including those handled here.
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let faults: u64 = [11, 13].into_iter().filter_map(|number| stat::field(&stat, number)).sum();
        PlacementCounts {
            placed: placer.exact.nodes.iter().copied().zip(placer.placed.iter().copied()).collect(),
            left: placer.left,
            others: faults.saturating_sub(placed + placer.left),
            unwatched: self.unwatched,
        }
    }

    /// Records a new thread.
    pub fn add(&mut self, tid: Tid, space: Option<Rc<AddressSpace>>) -> io::Result<()> {
        let number = ThreadId::from(self.seen);
        let thread = self.thread(tid, number, space)?;
        self.seen += 1;
        let before = self.placer.threads.insert(tid, thread);
        debug_assert!(before.is_none(), "thread {tid} is added twice");
        Ok(())
    }

    fn thread(&mut self, tid: Tid, number: ThreadId, space: Option<Rc<AddressSpace>>) -> io::Result<Thread> {
        let exact = &self.placer.exact;
        let watch = self
            .signal_on_syscalls(tid)
            .map_err(|error| self.unwatched += u64::from(!has_exited(&error)))
            .ok();
        Ok(Thread {
            number,
            state: RuleState::new(&exact.rule, exact.seed, number),
            space,
            stat: File::open(format!("/proc/{tid}/task/{tid}/stat"))?,
            has_run: false,
            watch,
        })
    }

    fn signal_on_syscalls(&self, tid: Tid) -> io::Result<SyscallSignals> {
        let me = rustix::thread::gettid().as_raw_nonzero().get();
        Ok(SyscallSignals {
            _maps: trace::signal_on_tracepoint(tid, self.tracepoint, MAPS, tid, MAPPED)?,
            masks: trace::signal_on_tracepoint(tid, self.tracepoint, MASKS, me, libc::SIGRTMIN())?,
        })
    }

    /// Traces until the process ends; returns its status.
    pub fn watch(&mut self, main: Tid) -> io::Result<WaitStatus> {
        let mut ready = Vec::with_capacity(16);
        loop {
            match epoll::wait(&self.events, spare_capacity(&mut ready), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in ready.drain(..) {
                match event.data.u64() {
                    CHILD_STOPPED => {
                        if let Some(status) = self.stopped(main)? {
                            return Ok(status);
                        }
                    }
                    MASK_CHANGED => self.masks_changed()?,
                    space => {
                        if let Some(space) = self.spaces.get(&space).and_then(Weak::upgrade) {
                            self.placer.resolve(&space)?;
                        }
                    }
                }
            }
        }
    }

    /// Handles all stops and exits; returns the main process's status if it ended.
    fn stopped(&mut self, main: Tid) -> io::Result<Option<WaitStatus>> {
        // The content does not matter, as it is read before waiting: what comes later is reported again.
        while matches!(self.child_stops.read(&mut [0; 64]), Ok(1..)) {}
        while let Some((tid, status)) = self.next_stop()? {
            let handled = match status.stopping_signal() {
                Some(signal) => self.stop(tid, signal, status.as_raw() >> 16),
                None => {
                    self.stopped_early.remove(&tid);
                    self.placer.threads.remove(&tid);
                    self.spaces.retain(|_, space| space.strong_count() > 0);
                    if tid == main {
                        return Ok(Some(status));
                    }
                    Ok(())
                }
            };
            ignore_exited(handled)?;
        }
        Ok(None)
    }

    fn next_stop(&mut self) -> io::Result<Option<(Tid, WaitStatus)>> {
        if let Some(ended) = self.pending.ended.pop_front() {
            return Ok(Some(ended));
        }
        let options = WaitOptions::from_bits_retain(libc::__WALL as u32) | WaitOptions::NOHANG;
        match wait(options) {
            Ok(waited) => Ok(waited.map(|(pid, status)| (pid.as_raw_nonzero().get(), status))),
            Err(rustix::io::Errno::CHILD) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn stop(&mut self, tid: Tid, signal: i32, event: i32) -> io::Result<()> {
        const STOP: i32 = 128;
        match event {
            libc::PTRACE_EVENT_EXEC => self.exec_done(tid)?,
            libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => {
                let made = trace::event_message(tid)?;
                ignore_exited(self.thread_created(tid, made))?;
            }
            STOP if signal != libc::SIGTRAP => return trace::resume(tid, Resume::Listen, 0),
            STOP => match self.placer.threads.get(&tid) {
                Some(thread) if thread.has_run => {
                    trace::unblock(tid, MAPPED)?;
                    let missed = thread.space.as_ref().filter(|_| is_in(tid, "SigPnd", MAPPED));
                    missed.into_iter().try_for_each(|space| space.register_all(tid))?;
                }
                Some(_) => return self.begin(tid),
                None => {
                    self.stopped_early.insert(tid);
                    return Ok(());
                }
            },
            0 => {
                let is_ours = signal == MAPPED && trace::signal_code(tid)? == POLL_IN;
                if let Some(space) = self.placer.threads.get(&tid).and_then(|thread| thread.space.as_ref()) {
                    space.signalled(tid, is_ours)?;
                }
                return trace::resume(tid, Resume::Continue, if is_ours { 0 } else { signal });
            }
            _ => {}
        }
        trace::resume(tid, Resume::Continue, 0)
    }

    /// A thread has made another one, or a process.
    fn thread_created(&mut self, maker: Tid, tid: Tid) -> io::Result<()> {
        let space = self.placer.threads.get(&maker).and_then(|thread| thread.space.clone());
        let shared = space.filter(|_| trace::same_memory(maker, tid).unwrap_or(false));
        self.add(tid, shared)?;
        if self.stopped_early.remove(&tid) { self.begin(tid) } else { Ok(()) }
    }

    /// A thread runs its first instruction: in a new address space, unless it already has one.
    fn begin(&mut self, tid: Tid) -> io::Result<()> {
        let Some(thread) = self.placer.threads.get_mut(&tid) else { return Ok(()) };
        thread.has_run = true;
        // It inherits its parent's signal mask.
        trace::unblock(tid, MAPPED)?;
        if thread.space.is_none() {
            self.attach_userfaultfd(tid)?;
        }
        trace::resume(tid, Resume::Continue, 0)
    }

    /// Stops threads that have blocked [`MAPPED`], to unblock it again.
    fn masks_changed(&mut self) -> io::Result<()> {
        while let Some(fd) = self.mask_changes.next()? {
            let is =
                |thread: &Thread| thread.watch.as_ref().is_some_and(|watch| watch.masks.as_raw_fd() == fd);
            let thread = self.placer.threads.iter().find(|(_, thread)| is(thread));
            let Some((&tid, _)) = thread else { continue };
            if is_in(tid, "SigBlk", MAPPED) {
                // If it has ended, its exit is reported separately.
                let _ = trace::interrupt(tid);
            }
        }
        Ok(())
    }

    /// A process has called exec; of its threads, the calling one remains.
    fn exec_done(&mut self, pid: Tid) -> io::Result<()> {
        let former = trace::event_message(pid)?;
        let before = self.placer.threads.remove(&former);
        let number = before.map_or(ThreadId::from(self.seen), |thread| thread.number);
        let thread = self.thread(pid, number, None)?;
        self.placer.threads.insert(pid, Thread { has_run: true, ..thread });
        inject::leave_exec(pid, &mut self.pending)?;
        trace::unblock(pid, MAPPED)?;
        self.attach_userfaultfd(pid)
    }

    /// Opens the userfaultfd of a process's address space.
    fn attach_userfaultfd(&mut self, pid: Tid) -> io::Result<()> {
        let Ok(Some(userfaultfd)) = inject::open_userfaultfd(pid, &mut self.pending) else {
            // Fails if the process was killed, which does not count as unwatched.
            trace::registers(pid)?;
            self.unwatched += 1;
            return Ok(());
        };
        let space = Rc::new(AddressSpace::of(pid, userfaultfd)?);
        let key = space.userfaultfd.as_fd().as_raw_fd() as u64;
        let data = epoll::EventData::new_u64(key);
        epoll::add(&self.events, &space.userfaultfd, data, epoll::EventFlags::IN)?;
        space.register_all(pid)?;
        self.spaces.insert(key, Rc::downgrade(&space));
        if let Some(thread) = self.placer.threads.get_mut(&pid) {
            thread.space = Some(space);
        }
        Ok(())
    }
}

/// Whether a signal is in one of a thread's signal sets, by its name in proc_pid_status(5).
fn is_in(tid: Tid, set: &str, signal: i32) -> bool {
    let set = stat::status(tid, set).and_then(|set| u64::from_str_radix(&set, 16).ok());
    set.is_some_and(|set| set >> (signal - 1) & 1 == 1)
}

/// Whether an operation failed because a stopped thread was killed, which is reported separately.
fn has_exited(error: &io::Error) -> bool {
    [Some(libc::ESRCH), Some(libc::ENOENT)].contains(&error.raw_os_error())
}

fn ignore_exited(done: io::Result<()>) -> io::Result<()> {
    done.or_else(|error| if has_exited(&error) { Ok(()) } else { Err(error) })
}

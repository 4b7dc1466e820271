//! Pipes from the guest: QEMU writes to FIFOs, the lab reads.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::fs::{CWD, FileType, Mode, OFlags, fcntl_setfl, mknodat};
use rustix::pipe::fcntl_setpipe_size;

use crate::error::LabError;

/// Pipe capacity: only when it is full does the guest wait for the reader, so that its time depends on the
/// host. The maximum that Linux allows unprivileged users.
const PIPE_BYTES: usize = 1 << 20;

/// Creates a FIFO and opens both ends, so that it stays open across QEMU's lifetime.
fn pipe(path: &Path) -> Result<(File, File), LabError> {
    let made = mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0);
    made.map_err(io::Error::from).map_err(LabError::file(path, "make a pipe of that name"))?;
    let open = || -> io::Result<(File, File)> {
        let reader = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
        let writer = OpenOptions::new().write(true).open(path)?;
        // A smaller pipe works, too.
        let _ = fcntl_setpipe_size(&reader, PIPE_BYTES);
        Ok((reader, writer))
    };
    open().map_err(LabError::file(path, "open it"))
}

/// Forwards a pipe in its own thread: the reader of the output may be slow.
pub struct Pump {
    thread: JoinHandle<()>,
    shared: Arc<Shared>,
    writer: Option<File>,
}

#[derive(Default)]
struct Shared {
    bytes: AtomicU64,
    failed: AtomicBool,
    failure: Mutex<Option<io::Error>>,
}

impl Pump {
    /// Creates the pipe and starts the thread.
    pub fn start(path: &Path, to: Box<dyn Write + Send>) -> Result<Pump, LabError> {
        let (reader, writer) = pipe(path)?;
        fcntl_setfl(&reader, OFlags::empty())
            .map_err(io::Error::from)
            .map_err(LabError::file(path, "wait for it"))?;
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            if let Err(error) = pass_on(reader, to, &of_thread.bytes) {
                *of_thread.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                of_thread.failed.store(true, Ordering::Release);
            }
        });
        Ok(Pump { thread, shared, writer: Some(writer) })
    }

    /// Bytes forwarded so far.
    pub fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Acquire)
    }

    /// An error if forwarding has failed.
    pub fn check(&self) -> Result<(), LabError> {
        if !self.shared.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        let failure = self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        Err(LabError::Output(failure.unwrap_or_else(|| ErrorKind::BrokenPipe.into())))
    }

    /// Waits until everything is forwarded; QEMU must have exited.
    pub fn finish(mut self) -> Result<(), LabError> {
        self.writer = None;
        // A panicked thread has no error to report.
        let _ = self.thread.join();
        match self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(LabError::Output(error)),
            None => Ok(()),
        }
    }
}

fn pass_on(mut from: File, mut to: Box<dyn Write + Send>, bytes: &AtomicU64) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => {
                to.write_all(&buffer[..length])?;
                to.flush()?;
                bytes.fetch_add(length as u64, Ordering::Release);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// First line of a kernel panic; the stack trace after it is left out.
const PANIC: &str = "Kernel panic";

/// The tail of a pipe's output.
pub struct Tail {
    reader: File,
    _writer: Option<File>,
    kept: Vec<u8>,
    most: usize,
}

impl Tail {
    /// Creates a FIFO; keeps the last `most` bytes.
    pub fn named(path: &Path, most: usize) -> Result<Tail, LabError> {
        let (reader, writer) = pipe(path)?;
        Ok(Tail { reader, _writer: Some(writer), kept: Vec::new(), most })
    }

    /// Reads an existing pipe.
    pub fn of(reader: File, most: usize) -> io::Result<Tail> {
        fcntl_setfl(&reader, OFlags::NONBLOCK)?;
        Ok(Tail { reader, _writer: None, kept: Vec::new(), most })
    }

    /// Reads what is available.
    pub fn read(&mut self) {
        let mut buffer = [0; 16 << 10];
        while let Ok(length @ 1..) = self.reader.read(&mut buffer) {
            self.kept.extend_from_slice(&buffer[..length]);
            let over = self.kept.len().saturating_sub(self.most);
            self.kept.drain(..over);
        }
    }

    /// Takes the next complete line, if any.
    pub fn line(&mut self) -> Option<String> {
        let end = self.kept.iter().position(|&byte| byte == b'\n')?;
        let line = self.kept.drain(..=end).collect::<Vec<u8>>();
        Some(String::from_utf8_lossy(&line).trim_end().to_owned())
    }

    /// The last lines up to a kernel panic, if any, without control characters.
    pub fn last(&self, lines: usize) -> String {
        let text = String::from_utf8_lossy(&self.kept);
        let clean = text.replace(|c: char| c.is_control() && c != '\n', "");
        let all: Vec<&str> = clean.lines().filter(|line| !line.trim().is_empty()).collect();
        let panic = all.iter().position(|line| line.contains(PANIC));
        let end = panic.map_or(all.len(), |at| at + 1);
        all[end.saturating_sub(lines)..end].join("\n")
    }

    /// For polling.
    pub fn reader(&self) -> impl AsFd + '_ {
        &self.reader
    }
}

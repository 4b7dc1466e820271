//! The QEMU machine protocol (QMP): commands to a running QEMU, and its events, one JSON object per line.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::run_dir;

/// Host time limit for an answer; QEMU serves one client at a time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(300);

/// Longest accepted message.
const MOST_BYTES: usize = 1 << 20;

/// A connection to a running QEMU.
pub struct Qmp {
    stream: UnixStream,
    read: Vec<u8>,
    events: VecDeque<Value>,
}

impl Qmp {
    /// Connects to the QEMU running in this folder.
    pub fn connect(folder: &Path) -> io::Result<Qmp> {
        // A socket's path is limited to 107 bytes; /proc/self/fd keeps it short.
        let here = File::open(folder)?;
        let path = format!("/proc/self/fd/{}/{}", here.as_raw_fd(), run_dir::QMP_SOCKET);
        let stream = UnixStream::connect(path)?;
        let mut qmp = Qmp { stream, read: Vec::new(), events: VecDeque::new() };
        let greeting = qmp.message(Instant::now() + ANSWER_TIMEOUT)?;
        if greeting.is_none_or(|greeting| greeting.get("QMP").is_none()) {
            return Err(io::Error::new(ErrorKind::TimedOut, "it is busy with another command"));
        }
        qmp.execute("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    /// Executes a command; returns its result.
    pub fn execute(&mut self, command: &str, arguments: Value) -> io::Result<Value> {
        let asked = json!({ "execute": command, "arguments": arguments });
        self.stream.write_all(format!("{asked}\n").as_bytes())?;
        let until = Instant::now() + ANSWER_TIMEOUT;
        loop {
            let Some(mut message) = self.message(until)? else {
                return Err(io::Error::new(ErrorKind::TimedOut, format!("no answer to {command}")));
            };
            if let Some(error) = message.get("error") {
                let what = error["desc"].as_str().unwrap_or("an error without a text");
                return Err(io::Error::other(format!("{command}: {what}")));
            }
            match message.get_mut("return") {
                Some(returned) => return Ok(returned.take()),
                None => self.events.push_back(message),
            }
        }
    }

    /// The next event; `None` if none arrives before the deadline.
    pub fn event(&mut self, until: Instant) -> io::Result<Option<Value>> {
        match self.events.pop_front() {
            Some(event) => Ok(Some(event)),
            None => self.message(until),
        }
    }

    fn message(&mut self, until: Instant) -> io::Result<Option<Value>> {
        loop {
            if let Some(end) = self.read.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&line)?));
            }
            if self.read.len() > MOST_BYTES {
                return Err(io::Error::other("it says too much"));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.stream.set_read_timeout(Some(left))?;
            let mut buffer = [0; 4096];
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(io::Error::new(ErrorKind::UnexpectedEof, "it has ended")),
                Ok(length) => self.read.extend_from_slice(&buffer[..length]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

//! Converts recordings of other tools to traces.

mod csv;
mod lackey;

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::mappings::Mappings;
use crate::reader::open_without_waiting;
use crate::{Header, Kind, Row, Totals, TraceError, TraceWriter};

/// Rows of the input per epoch.
const EPOCH_ROWS: usize = 1 << 16;

/// End of the addresses that the simulator accepts.
const ADDRESS_END: u64 = 1 << 48;

/// Format of an imported file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportKind {
    /// The text that `valgrind --tool=lackey --trace-mem=yes --log-file=FILE PROGRAM` writes.
    Lackey,
    /// Comma-separated values with a header line: thread, instructions, address, size, write, and optionally
    /// pc, producer and non_temporal. Numbers are decimal or 0x hexadecimal. Rows are in time order.
    Csv,
}

/// Converts another tool's recording into a trace. Calls `watch` with the share done, several times a second
/// even if the input is slow; if it returns false, the import stops and leaves no file.
///
/// Lackey does not report which load an address depends on: all its loads count as independent.
///
/// # Errors
/// If the input has another format (names the line), the trace cannot be written, or `watch` stops the
/// import.
pub fn import(
    kind: ImportKind,
    input: &Path,
    output: &Path,
    watch: &mut dyn FnMut(f64) -> bool,
) -> Result<Totals, TraceError> {
    let file = open_without_waiting(input).map_err(TraceError::io(input, "read it"))?;
    let found = file.metadata().map_err(TraceError::io(input, "read it"))?;
    if found.is_dir() {
        let what = "a folder; give the file of the recording";
        return Err(TraceError::NotATrace { path: input.to_owned(), what: what.to_owned() });
    }
    if output.canonicalize().is_ok_and(|output| input.canonicalize().is_ok_and(|input| input == output)) {
        return Err(TraceError::io(output, "write it")(io::Error::other("it is the recording itself")));
    }
    let mut stopped = false;
    let watched = Watched { file, bytes: found.len(), read: 0, line: 0, watch, stopped: &mut stopped };
    let source = BufReader::with_capacity(1 << 20, watched);
    let name = match kind {
        ImportKind::Lackey => "valgrind lackey",
        ImportKind::Csv => "CSV",
    };
    let header = Header {
        program: input.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        arch: "unknown".to_owned(),
        recorder: format!("memtide {}, imported from {name}", env!("CARGO_PKG_VERSION")),
        epoch_instructions: 0,
    };
    let mut importer = Importer {
        writer: TraceWriter::create(output, header)?,
        mappings: Mappings::default(),
        threads: Vec::new(),
        rows: 0,
    };
    let read = match kind {
        ImportKind::Lackey => lackey::read(source, input, &mut importer),
        ImportKind::Csv => csv::read(source, input, &mut importer),
    };
    if stopped {
        return Err(TraceError::Interrupted);
    }
    read?;
    importer.finish(input)
}

/// Collects an epoch's rows by thread.
struct Importer {
    writer: TraceWriter,
    mappings: Mappings,
    threads: Vec<Thread>,
    rows: usize,
}

#[derive(Default)]
struct Thread {
    rows: Vec<Row>,
    instructions: u64,
    accesses: u64,
    started: bool,
}

impl Importer {
    /// Adds an access; `row.thread` must be an existing number or the next one.
    ///
    /// # Errors
    /// What is wrong with it (inner), or an error of the output (outer).
    fn access(&mut self, row: Row) -> Result<Result<(), String>, TraceError> {
        if row.thread as usize == self.threads.len() {
            self.threads.push(Thread::default());
        }
        let thread = &mut self.threads[row.thread as usize];
        if !(1..=u64::from(u16::MAX)).contains(&row.size) {
            return Ok(Err(format!("an access of {} bytes; allowed are 1 to 65535", row.size)));
        }
        if row.instructions < thread.instructions || row.instructions > i64::MAX as u64 {
            return Ok(Err(format!(
                "{} instructions after {} of the same thread; the count is of all so far and never falls",
                row.instructions, thread.instructions
            )));
        }
        if row.address.checked_add(row.size).is_none_or(|end| end > ADDRESS_END) {
            return Ok(Err(format!(
                "an access of {} bytes at {:#x}; user addresses end at 2^48 ({ADDRESS_END:#x})",
                row.size, row.address
            )));
        }
        if u64::from(row.producer) > thread.accesses.min(i32::MAX as u64) {
            return Ok(Err(format!(
                "producer {}, but the thread has made {} accesses before",
                row.producer, thread.accesses
            )));
        }
        thread.instructions = row.instructions;
        thread.accesses += 1;
        while let Some((start, bytes)) = self.mappings.missing(row.address, row.size) {
            let name = Some("memory".to_owned());
            let event = Row::event(row.thread, Kind::Map, row.instructions);
            thread.rows.push(Row { address: start, size: bytes, name, ..event });
        }
        thread.rows.push(row);
        self.rows += 1;
        if self.rows == EPOCH_ROWS { self.end_epoch().map(Ok) } else { Ok(Ok(())) }
    }

    fn end_epoch(&mut self) -> Result<(), TraceError> {
        self.rows = 0;
        for number in 1..self.threads.len() {
            if !std::mem::replace(&mut self.threads[number].started, true) {
                let first = self.threads[0].rows.first();
                let instructions = first.map_or(self.threads[0].instructions, |row| row.instructions);
                let event = Row::event(0, Kind::Spawn, instructions);
                self.writer.push(&Row { address: number as u64, ..event })?;
            }
        }
        for thread in &mut self.threads {
            thread.rows.drain(..).try_for_each(|row| self.writer.push(&row))?;
        }
        self.writer.end_epoch()
    }

    fn finish(mut self, input: &Path) -> Result<Totals, TraceError> {
        if self.threads.is_empty() {
            let what = "it has no accesses".to_owned();
            return Err(TraceError::NotATrace { path: input.to_owned(), what });
        }
        for (number, thread) in self.threads.iter_mut().enumerate() {
            thread.rows.push(Row::event(number as u32, Kind::End, thread.instructions));
        }
        self.end_epoch()?;
        self.writer.finish()
    }
}

/// Maximum characters of a wrong text in a message.
const EXCERPT_CHARS: usize = 40;

/// The beginning of a text, quoted and escaped.
fn excerpt(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * EXCERPT_CHARS)]);
    let start: String = text.chars().take(EXCERPT_CHARS).collect();
    let more = if start.len() < bytes.len() { ".." } else { "" };
    format!("{start:?}{more}")
}

/// Maximum bytes of a line.
const MAX_LINE_BYTES: usize = 1 << 20;

/// Interval of progress reports while no input arrives.
const PROGRESS_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// An input that reports progress, and fails if it is stopped or a line is too long.
struct Watched<'a> {
    file: File,
    bytes: u64,
    read: u64,
    /// Bytes of the last line so far.
    line: usize,
    watch: &'a mut dyn FnMut(f64) -> bool,
    stopped: &'a mut bool,
}

impl Watched<'_> {
    fn check(&mut self) -> io::Result<()> {
        let share = self.read as f64 / self.bytes.max(self.read).max(1) as f64;
        *self.stopped = !(self.watch)(share);
        if *self.stopped { Err(ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }

    fn has_input(&self) -> io::Result<bool> {
        match poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&PROGRESS_INTERVAL)) {
            Err(rustix::io::Errno::INTR) => Ok(false),
            ready => Ok(ready? > 0),
        }
    }
}

impl Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = loop {
            if self.has_input()? {
                match self.file.read(buffer) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    read => break read?,
                }
            }
            self.check()?;
        };
        self.read += read as u64;
        self.line = match buffer[..read].iter().rposition(|&byte| byte == b'\n') {
            Some(at) => read - at - 1,
            None => self.line + read,
        };
        if self.line > MAX_LINE_BYTES {
            return Err(io::Error::new(ErrorKind::InvalidData, "a line of more than 1 MiB"));
        }
        self.check()?;
        Ok(read)
    }
}

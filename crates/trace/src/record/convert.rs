//! From the recorder's streams to a trace.

use std::path::{Path, PathBuf};

use memtide_core::PAGE_BYTES;
use memtide_recording::Record;

use super::streams::Stream;
use crate::mappings::Mappings;
use crate::{Header, Kind, Row, Totals, TraceError, TraceWriter};

/// A stream that has become a thread of the trace.
struct Thread {
    stream: Stream,
    /// Index of its address space.
    space: usize,
    instructions: u64,
    /// It asked to become another program, and nothing has been heard of it since.
    exec: bool,
    ended: bool,
}

struct Converter {
    writer: TraceWriter,
    threads: Vec<Thread>,
    spaces: Vec<Mappings>,
    /// Streams whose start nobody has told of yet, in order of starting.
    waiting: Vec<Stream>,
}

/// Writes the trace; `watch` is told the share that is done, and ends it by `false`.
pub fn convert(
    streams: &[PathBuf],
    output: &Path,
    header: Header,
    last_epoch: u64,
    watch: &mut dyn FnMut(f64) -> bool,
) -> Result<Totals, TraceError> {
    let mut waiting = Vec::new();
    for path in streams {
        waiting.extend(Stream::open(path)?);
    }
    let mut converter = Converter {
        writer: TraceWriter::create(output, header)?,
        threads: Vec::new(),
        spaces: vec![Mappings::default()],
        waiting,
    };
    if !converter.waiting.is_empty() {
        let first = converter.waiting.remove(0);
        converter.begin(first, 0);
    }
    while let Some(epoch) = converter.next_epoch() {
        if !watch(epoch as f64 / last_epoch.max(epoch).max(1) as f64) {
            return Err(TraceError::Interrupted);
        }
        converter.epoch(epoch)?;
    }
    converter.writer.finish()
}

impl Converter {
    fn begin(&mut self, stream: Stream, space: usize) {
        self.threads.push(Thread { stream, space, instructions: 0, exec: false, ended: false });
    }

    fn next_epoch(&self) -> Option<u64> {
        self.threads.iter().filter(|thread| !thread.ended).map(|thread| thread.stream.epoch).min()
    }

    fn epoch(&mut self, epoch: u64) -> Result<(), TraceError> {
        let mut number = 0;
        // Threads that start meanwhile are appended, and get their turn.
        while number < self.threads.len() {
            self.thread(number, epoch)?;
            number += 1;
        }
        self.writer.end_epoch()
    }

    /// Writes what a thread did up to the end of an epoch.
    fn thread(&mut self, number: usize, epoch: u64) -> Result<(), TraceError> {
        while !self.threads[number].ended && self.threads[number].stream.epoch <= epoch {
            match self.threads[number].stream.take()? {
                Some(record) => self.record(number, record)?,
                None => self.end(number)?,
            }
        }
        Ok(())
    }

    fn end(&mut self, number: usize) -> Result<(), TraceError> {
        self.threads[number].ended = true;
        if self.threads[number].exec {
            self.event(number, Kind::Exec, 0, 0, None)?;
        }
        self.event(number, Kind::End, 0, 0, None)
    }

    fn record(&mut self, number: usize, record: Record) -> Result<(), TraceError> {
        self.threads[number].exec = matches!(record, Record::Exec);
        let space = self.threads[number].space;
        match record {
            Record::Access(access) => {
                self.threads[number].instructions += access.instructions;
                while let Some((start, bytes)) =
                    self.spaces[space].missing(access.address, access.size.into())
                {
                    self.event(number, Kind::Map, start, bytes, Some("image".to_owned()))?;
                }
                self.writer.push(&Row {
                    thread: number as u32,
                    kind: Kind::Access,
                    instructions: self.threads[number].instructions,
                    address: access.address,
                    size: access.size.into(),
                    write: access.write,
                    pc: access.pc,
                    producer: access.producer,
                    name: None,
                })
            }
            Record::Map { bytes: 0, .. } | Record::Unmap { bytes: 0, .. } => Ok(()),
            Record::Map { start, bytes, name } => {
                if self.spaces[space].map(start, bytes) {
                    self.event(number, Kind::Unmap, start, bytes, None)?;
                }
                self.event(number, Kind::Map, start, bytes, Some(name))
            }
            Record::Unmap { start, bytes } if start.is_multiple_of(PAGE_BYTES) => {
                if self.spaces[space].unmap(start, bytes) {
                    self.event(number, Kind::Unmap, start, bytes, None)?;
                }
                Ok(())
            }
            Record::Spawn { tid } => self.start(number, tid, Kind::Spawn),
            Record::Fork { pid } => self.start(number, pid, Kind::Fork),
            Record::Cpu(cpu) => self.event(number, Kind::Cpu, cpu.into(), 0, None),
            Record::Unmap { .. } | Record::Exec | Record::ExecFailed => Ok(()),
            Record::Start { .. } | Record::Epoch(_) => unreachable!("the stream keeps these to itself"),
        }
    }

    /// The thread with this id begins; it is left out if it did nothing.
    fn start(&mut self, number: usize, tid: u32, kind: Kind) -> Result<(), TraceError> {
        let Some(at) = self.waiting.iter().position(|stream| stream.tid == tid) else { return Ok(()) };
        let stream = self.waiting.remove(at);
        let mut space = self.threads[number].space;
        if kind == Kind::Fork {
            self.spaces.push(self.spaces[space].clone());
            space = self.spaces.len() - 1;
        }
        self.event(number, kind, self.threads.len() as u64, 0, None)?;
        self.begin(stream, space);
        Ok(())
    }

    fn event(
        &mut self,
        number: usize,
        kind: Kind,
        address: u64,
        size: u64,
        name: Option<String>,
    ) -> Result<(), TraceError> {
        let row = Row::event(number as u32, kind, self.threads[number].instructions);
        self.writer.push(&Row { address, size, name, ..row })
    }
}

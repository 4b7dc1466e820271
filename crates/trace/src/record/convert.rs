//! Converts the recorder's streams to a trace.

use std::path::{Path, PathBuf};

use memtide_core::PAGE_BYTES;
use memtide_recording::Record;

use super::streams::Stream;
use crate::mappings::Mappings;
use crate::{Header, Kind, Row, Totals, TraceError, TraceWriter};

/// A stream converted to a thread of the trace.
struct Thread {
    stream: Stream,
    /// Index of its address space.
    space: usize,
    instructions: u64,
    /// Whether its last event was the start of another program.
    exec: bool,
    ended: bool,
}

/// Records between calls of `watch`.
const WATCH_RECORDS: u64 = 1 << 12;

struct Converter<'a> {
    writer: TraceWriter,
    threads: Vec<Thread>,
    spaces: Vec<Mappings>,
    /// Streams whose start was not reported yet, and their threads' ids, in order of start.
    waiting: Vec<(&'a Path, u32)>,
    records: u64,
    /// Share done.
    share: f64,
    watch: &'a mut dyn FnMut(f64) -> bool,
}

/// Writes the trace, unless it would have no access: then `None`. Calls `watch` with the share done, every
/// few thousand records; it stops if that returns false.
///
/// # Errors
/// If a stream cannot be read or is damaged, the trace cannot be written, or `watch` stops it.
pub fn convert(
    streams: &[PathBuf],
    output: &Path,
    header: Header,
    last_epoch: u64,
    watch: &mut dyn FnMut(f64) -> bool,
) -> Result<Option<Totals>, TraceError> {
    let mut waiting = Vec::new();
    for path in streams {
        if !watch(0.0) {
            return Err(TraceError::Interrupted);
        }
        waiting.extend(Stream::thread(path)?.map(|tid| (path.as_path(), tid)));
    }
    let mut converter = Converter {
        writer: TraceWriter::create(output, header)?,
        threads: Vec::new(),
        spaces: vec![Mappings::default()],
        waiting,
        records: 0,
        share: 0.0,
        watch,
    };
    if !converter.waiting.is_empty() {
        converter.begin(0, 0)?;
    }
    while let Some(epoch) = converter.next_epoch() {
        converter.share = epoch as f64 / last_epoch.max(epoch).max(1) as f64;
        converter.check()?;
        converter.epoch(epoch)?;
    }
    if converter.writer.accesses() == 0 {
        return Ok(None);
    }
    converter.writer.finish().map(Some)
}

impl Converter<'_> {
    /// Reports progress; fails if stopped.
    fn check(&mut self) -> Result<(), TraceError> {
        if (self.watch)(self.share) { Ok(()) } else { Err(TraceError::Interrupted) }
    }

    /// Turns a waiting stream into a thread.
    fn begin(&mut self, waiting: usize, space: usize) -> Result<(), TraceError> {
        let (path, _) = self.waiting.remove(waiting);
        let stream = Stream::open(path)?;
        self.threads.push(Thread { stream, space, instructions: 0, exec: false, ended: false });
        Ok(())
    }

    fn next_epoch(&self) -> Option<u64> {
        self.threads.iter().filter(|thread| !thread.ended).map(|thread| thread.stream.epoch).min()
    }

    fn epoch(&mut self, epoch: u64) -> Result<(), TraceError> {
        let mut number = 0;
        // Threads that start meanwhile are appended, and converted in turn.
        while number < self.threads.len() {
            self.thread(number, epoch)?;
            number += 1;
        }
        self.writer.end_epoch()
    }

    /// Converts a thread up to the end of an epoch.
    fn thread(&mut self, number: usize, epoch: u64) -> Result<(), TraceError> {
        while !self.threads[number].ended && self.threads[number].stream.epoch <= epoch {
            self.records += 1;
            if self.records.is_multiple_of(WATCH_RECORDS) {
                self.check()?;
            }
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
                let thread = &mut self.threads[number];
                thread.instructions = thread
                    .instructions
                    .checked_add(access.instructions)
                    .ok_or_else(|| thread.stream.damaged("more than 2^64 instructions"))?;
                while let Some((start, bytes)) =
                    self.spaces[space].missing(access.address, access.size.into())
                {
                    self.event(number, Kind::Map, start, bytes, Some("image".to_owned()))?;
                }
                self.writer.push(&Row {
                    thread: number as u32,
                    kind: if access.non_temporal { Kind::NonTemporalStore } else { Kind::Access },
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
            Record::Mark(mark) => self.event(number, Kind::Mark, mark as u64, 0, None),
            Record::Unmap { .. } | Record::Exec | Record::ExecFailed => Ok(()),
            Record::Start { .. } | Record::Epoch(_) => unreachable!("`Stream` takes these itself"),
        }
    }

    /// Starts the thread with this id; it is left out if it did nothing.
    fn start(&mut self, number: usize, tid: u32, kind: Kind) -> Result<(), TraceError> {
        let Some(at) = self.waiting.iter().position(|&(_, waiting)| waiting == tid) else { return Ok(()) };
        let mut space = self.threads[number].space;
        if kind == Kind::Fork {
            self.spaces.push(self.spaces[space].clone());
            space = self.spaces.len() - 1;
        }
        self.event(number, kind, self.threads.len() as u64, 0, None)?;
        self.begin(at, space)
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

#[cfg(test)]
mod tests {
    use std::fs;

    use memtide_recording::stream::{Buffer, WINDOW_BYTES};
    use memtide_recording::{Encoder, RawAccess, stream_file};

    use super::super::streams::find;
    use super::*;

    const START: Record = Record::Start { pid: 7, tid: 7 };

    fn access(instructions: u64, size: u16) -> Record {
        Record::Access(RawAccess { address: 4096, instructions, size, ..RawAccess::default() })
    }

    /// Converts one stream of these records.
    fn converted(
        records: &[Record],
        watch: &mut dyn FnMut(f64) -> bool,
    ) -> Result<Option<Totals>, TraceError> {
        let dir = tempfile::tempdir().unwrap();
        let mut encoder = Encoder::default();
        let mut stream = Vec::new();
        for record in records {
            let mut buffer = Buffer::default();
            encoder.record(record, &mut buffer);
            stream.extend_from_slice(buffer.as_bytes());
        }
        assert!(stream.len() <= WINDOW_BYTES);
        stream.resize(WINDOW_BYTES, 0);
        fs::write(dir.path().join(stream_file(0)), stream).unwrap();
        let (program, arch, recorder) = (String::new(), String::new(), String::new());
        let header = Header { program, arch, recorder, epoch_instructions: 1 };
        let output = dir.path().join("trace");
        let totals = convert(&find(dir.path()).unwrap(), &output, header, 1, watch);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1 + usize::from(matches!(totals, Ok(Some(_)))));
        totals
    }

    #[test]
    fn stream_that_no_recorder_writes_is_refused() {
        let totals = converted(&[START, access(3, 8), access(4, 8)], &mut |_| true).unwrap().unwrap();
        assert_eq!((totals.accesses, totals.instructions), (2, 7));
        for (records, expected) in [
            (&[START, START][..], "stream-0: damaged recording: a second start record"),
            (&[START, access(1, 8), START], "stream-0: damaged recording: a second start record"),
            (&[access(1, 8)], "stream-0: damaged recording: it does not begin with a start record"),
            (&[START, access(1, 0)], "stream-0: damaged recording: an access of 0 bytes"),
            (&[START, access(u64::MAX, 8), access(1, 8)], "beyond what a trace can hold"),
            (
                &[START, Record::Map { start: u64::MAX, bytes: 4096, name: String::new() }],
                "beyond the address",
            ),
        ] {
            let error = converted(records, &mut |_| true).expect_err(expected).to_string();
            assert!(error.contains(expected), "{error:?} instead of {expected:?}");
        }
    }

    #[test]
    fn recording_without_accesses_makes_no_file() {
        let mapped = Record::Map { start: 4096, bytes: 4096, name: String::new() };
        for records in [&[START][..], &[START, mapped]] {
            assert_eq!(converted(records, &mut |_| true).unwrap(), None);
        }
    }

    #[test]
    fn conversion_can_be_stopped_within_an_epoch() {
        let records = [vec![START], vec![access(0, 8); 3 * WATCH_RECORDS as usize]].concat();
        let mut asked = 0;
        let stopped = converted(&records, &mut |_| {
            asked += 1;
            asked < 5
        });
        assert!(matches!(stopped, Err(TraceError::Interrupted)), "{stopped:?}");
    }

    /// The control page, which contains their number, is not trusted.
    #[test]
    fn stream_count_comes_from_files() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["stream-10", "stream-2", "stream-01", "stream-x", "stream-", "2"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        fs::create_dir(dir.path().join("stream-3")).unwrap();
        assert_eq!(find(dir.path()).unwrap(), ["stream-2", "stream-10"].map(|name| dir.path().join(name)));
    }
}

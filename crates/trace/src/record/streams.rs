//! Reads the recorder's streams.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use memtide_recording::stream::{MAX_RECORD_BYTES, WINDOW_BYTES};
use memtide_recording::{Decoder, Record, stream_file};

use crate::{MAX_THREADS, TraceError};

/// Bytes of a stream held in memory, for each live thread of the recorded program.
const PIECE_BYTES: usize = 8 << 10;

/// The streams in a folder, in the order in which their threads started.
///
/// # Errors
/// If the folder cannot be read, or there are more streams than a trace can have threads.
pub fn find(folder: &Path) -> Result<Vec<PathBuf>, TraceError> {
    let list = || -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.rsplit('-').next()?.parse().ok());
            let Some(number) = number.filter(|&number| *name == *stream_file(number)) else { continue };
            if entry.file_type()?.is_file() {
                numbers.push(number);
            }
        }
        Ok(numbers)
    };
    let mut numbers = list().map_err(TraceError::io(folder, "read it"))?;
    if numbers.len() > MAX_THREADS as usize {
        let what = format!("{} threads; a trace has at most {MAX_THREADS}", numbers.len());
        return Err(TraceError::recording(folder, what));
    }
    numbers.sort_unstable();
    Ok(numbers.into_iter().map(|number| folder.join(stream_file(number))).collect())
}

/// A thread's stream, with one record of lookahead. It is read in pieces, and open only while reading: a
/// program may have more threads than a process may have open files.
pub struct Stream {
    path: PathBuf,
    decoder: Decoder,
    /// The records ahead.
    piece: Vec<u8>,
    /// Decoded bytes of the piece.
    used: usize,
    /// Bytes of the window after the piece.
    window: usize,
    /// End of the piece in the file.
    at: u64,
    /// End of the last whole window.
    end: u64,
    /// The epoch of the next record.
    pub epoch: u64,
    next: Option<Record>,
}

impl Stream {
    /// The thread of this stream; `None` if it ended before it did anything.
    ///
    /// # Errors
    /// If the stream cannot be read, or has no valid start.
    pub fn thread(path: &Path) -> Result<Option<u32>, TraceError> {
        let mut stream = Stream::new(path)?;
        match stream.read()? {
            Some(Record::Start { tid, .. }) => Ok(Some(tid)),
            None => Ok(None),
            Some(_) => Err(TraceError::recording(path, "it does not begin with a start record")),
        }
    }

    /// Opens a stream.
    ///
    /// # Errors
    /// If it cannot be read, or is damaged.
    pub fn open(path: &Path) -> Result<Stream, TraceError> {
        let mut stream = Stream::new(path)?;
        stream.read()?;
        stream.advance()?;
        Ok(stream)
    }

    fn new(path: &Path) -> Result<Stream, TraceError> {
        let bytes = fs::metadata(path).map_err(TraceError::io(path, "read it"))?.len();
        Ok(Stream {
            path: path.to_owned(),
            decoder: Decoder::default(),
            piece: Vec::new(),
            used: 0,
            window: 0,
            at: 0,
            end: bytes - bytes % WINDOW_BYTES as u64,
            epoch: 0,
            next: None,
        })
    }

    /// The error for content that no recorder writes.
    pub fn damaged(&self, what: &str) -> TraceError {
        TraceError::recording(&self.path, what)
    }

    /// Takes the next record.
    pub fn take(&mut self) -> Result<Option<Record>, TraceError> {
        let record = self.next.take();
        if record.is_some() {
            self.advance()?;
        }
        Ok(record)
    }

    fn advance(&mut self) -> Result<(), TraceError> {
        self.next = loop {
            match self.read()? {
                Some(Record::Epoch(epoch)) => self.epoch = epoch,
                Some(Record::Start { .. }) => {
                    return Err(self.damaged("a second start record"));
                }
                record => break record,
            }
        };
        Ok(())
    }

    fn read(&mut self) -> Result<Option<Record>, TraceError> {
        loop {
            let mut rest = &self.piece[self.used..];
            if rest.len() < MAX_RECORD_BYTES && self.window > 0 {
                self.refill().map_err(TraceError::io(&self.path, "read it"))?;
                continue;
            }
            let before = rest.len();
            let record =
                self.decoder.next(&mut rest).map_err(|what| TraceError::recording(&self.path, what))?;
            self.used += before - rest.len();
            if record.is_some() {
                return Ok(record);
            }
            // The rest of the window is empty.
            self.at += self.window as u64;
            self.used = self.piece.len();
            if self.at >= self.end {
                self.window = 0;
                self.piece = Vec::new();
                self.used = 0;
                return Ok(None);
            }
            self.window = WINDOW_BYTES;
        }
    }

    /// Reads further in the window.
    fn refill(&mut self) -> io::Result<()> {
        self.piece.drain(..self.used);
        self.used = 0;
        let more = PIECE_BYTES.min(self.window);
        let kept = self.piece.len();
        self.piece.resize(kept + more, 0);
        File::open(&self.path)?.read_exact_at(&mut self.piece[kept..], self.at)?;
        self.at += more as u64;
        self.window -= more;
        Ok(())
    }
}

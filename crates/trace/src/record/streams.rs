//! Reading the recorder's streams.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use memtide_recording::stream::WINDOW_BYTES;
use memtide_recording::{Decoder, Record};

use crate::TraceError;

/// One thread's stream, with the next record looked up.
pub struct Stream {
    path: PathBuf,
    file: File,
    decoder: Decoder,
    window: Vec<u8>,
    used: usize,
    /// Whose it is.
    pub pid: u32,
    /// Its thread id.
    pub tid: u32,
    /// The epoch of the next record.
    pub epoch: u64,
    next: Option<Record>,
}

impl Stream {
    /// Opens a stream. `None` if its thread was ended before it did anything.
    pub fn open(path: &Path) -> Result<Option<Stream>, TraceError> {
        let file = File::open(path).map_err(TraceError::io(path, "read it"))?;
        let mut stream = Stream {
            path: path.to_owned(),
            file,
            decoder: Decoder::default(),
            window: Vec::new(),
            used: 0,
            pid: 0,
            tid: 0,
            epoch: 0,
            next: None,
        };
        let Some(Record::Start { pid, tid }) = stream.read()? else { return Ok(None) };
        (stream.pid, stream.tid) = (pid, tid);
        stream.advance()?;
        Ok(Some(stream))
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
                record => break record,
            }
        };
        Ok(())
    }

    fn read(&mut self) -> Result<Option<Record>, TraceError> {
        loop {
            let mut rest = &self.window[self.used..];
            let before = rest.len();
            let record =
                self.decoder.next(&mut rest).map_err(|what| TraceError::damaged(&self.path, what))?;
            self.used += before - rest.len();
            if record.is_some() || !self.next_window()? {
                return Ok(record);
            }
        }
    }

    fn next_window(&mut self) -> Result<bool, TraceError> {
        self.window.resize(WINDOW_BYTES, 0);
        self.used = 0;
        match self.file.read_exact(&mut self.window) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                self.window = Vec::new();
                Ok(false)
            }
            Err(error) => Err(TraceError::io(&self.path, "read it")(error)),
        }
    }
}

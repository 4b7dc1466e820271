//! Reads a journal, which is untrusted input.

use std::io::{self, Read};

use zstd::stream::read::Decoder;
use zstd::zstd_safe::{MAGICNUMBER, find_frame_compressed_size};

use super::record::Record;

/// Maximum decompressed size of a record, in bytes.
pub const RECORD_MAX: u64 = 64 << 20;

/// Maximum decompressed size of all records so far, in bytes: this many per byte of the journal, plus a
/// constant. An entry of an epoch takes at least a byte of the journal, and less than 400 bytes of text.
pub const RATIO_MAX: u64 = 512;
const BYTES_FREE: u64 = 16 << 20;

/// Maximum window of a frame, which the decoder allocates, as a binary logarithm of bytes; the writer's is 2
/// MiB.
const WINDOW_LOG_MAX: u32 = 23;

/// The records of a journal, up to the first incomplete one.
#[derive(Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    number: u64,
    /// Decompressed bytes of the records so far.
    decompressed: u64,
}

impl<'a> Reader<'a> {
    /// Reads from the first record on.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0, number: 0, decompressed: 0 }
    }

    /// Offset of the next record.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Bytes of an incomplete last record, as after a crash, once there are no more records.
    pub fn torn(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// An error message about the last record.
    pub fn wrong(&self, what: &str) -> String {
        format!("record {}, which ends at byte {}: {what}", self.number, self.at)
    }

    /// The next record's text; `None` at the end, or if it is incomplete.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn next_text(&mut self) -> Result<Option<Vec<u8>>, String> {
        let rest = &self.bytes[self.at..];
        if rest.is_empty() {
            return Ok(None);
        }
        self.number += 1;
        if self.number == 1 && !is_frame(rest) {
            return Err("not a memtide journal".to_owned());
        }
        // An incomplete frame is at most the rest of the file.
        let length = find_frame_compressed_size(rest).unwrap_or(rest.len());
        let allowed = (self.at + length) as u64 * RATIO_MAX + BYTES_FREE;
        let allowed = allowed.saturating_sub(self.decompressed);
        match frame(rest, allowed) {
            Ok((text, length)) => {
                self.at += length;
                self.decompressed += text.len() as u64;
                Ok(Some(text))
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(format!("record {}, from byte {}: {error}", self.number, self.at)),
        }
    }

    /// The next record; `None` at the end, or if it is incomplete.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn next_record(&mut self) -> Result<Option<Record>, String> {
        let Some(text) = self.next_text()? else { return Ok(None) };
        serde_json::from_slice(&text).map(Some).map_err(|error| {
            let why = self.wrong(&error.to_string());
            match self.number {
                1 => format!("not a memtide journal, or one of another version: {why}"),
                _ => why,
            }
        })
    }
}

/// Whether the bytes start with a frame's magic number, or with as much of it as there are bytes.
fn is_frame(bytes: &[u8]) -> bool {
    MAGICNUMBER.to_le_bytes().iter().zip(bytes).all(|(magic, byte)| magic == byte)
}

/// The content of the first frame in some bytes, at most `allowed` bytes, and the frame's length.
fn frame(bytes: &[u8], allowed: u64) -> io::Result<(Vec<u8>, usize)> {
    let mut decoder = Decoder::with_buffer(bytes)?.single_frame();
    decoder.window_log_max(WINDOW_LOG_MAX)?;
    let mut text = Vec::new();
    let most = allowed.min(RECORD_MAX);
    decoder.by_ref().take(most + 1).read_to_end(&mut text)?;
    if text.len() as u64 > most {
        return Err(io::Error::other(match most {
            RECORD_MAX => format!("larger than {} MiB", RECORD_MAX >> 20),
            _ => format!("the records so far are more than {RATIO_MAX} times as large as their file"),
        }));
    }
    let rest = decoder.finish();
    Ok((text, bytes.len() - rest.len()))
}

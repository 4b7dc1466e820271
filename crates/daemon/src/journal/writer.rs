//! Writes a journal within a size limit.
//!
//! Two files, each with half of the limit: when the current one is full, it replaces the older one. A new
//! file begins with a head that contains the policy's state. The simpler alternatives fail: stopping at the
//! limit would lose the last hours, which matter most; restarting the policy would let the journal change the
//! decisions that it records.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use memtide_core::epoch::Watcher;
use memtide_core::policy::{Completion, Event, Plan, View};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use rustix::process::geteuid;
use zstd::stream::write::Encoder;

use super::reader::{RECORD_MAX, Reader};
use super::record::{Epoch, Head, MOVES_MAX, Record};

/// zstd's default compression level.
const LEVEL: i32 = 3;

/// A journal open for writing.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    /// `None` after a write error.
    pub(super) file: Option<File>,
    bytes: u64,
    /// Maximum bytes per file.
    share: u64,
    trouble: Option<String>,
}

impl Journal {
    /// Appends a part to a journal, whose files may have this many bytes together.
    ///
    /// # Errors
    /// The system's; or if the file is not a journal, or is in use by another daemon.
    pub fn open(path: &Path, limit_bytes: u64, head: Head) -> io::Result<Journal> {
        let (file, bytes) = open(path)?;
        let share = limit_bytes / 2;
        let mut journal = Journal { path: path.to_owned(), file: Some(file), bytes, share, trouble: None };
        journal.start(head)?;
        Ok(journal)
    }

    /// The older file.
    pub fn older(path: &Path) -> PathBuf {
        let mut name = path.as_os_str().to_owned();
        name.push(".old");
        name.into()
    }

    /// Whether a new part must begin: the last record exceeded the limit, or the file was removed.
    pub fn must_rotate(&self) -> bool {
        self.file.is_some() && (self.bytes >= self.share || self.is_lost())
    }

    /// Whether the file at its path is no longer this one.
    fn is_lost(&self) -> bool {
        let here = self.file.as_ref().and_then(|file| file.metadata().ok());
        let there = fs::symlink_metadata(&self.path).ok();
        here.zip(there).is_none_or(|(here, there)| (here.dev(), here.ino()) != (there.dev(), there.ino()))
    }

    /// Sets the maximum size of both files together.
    pub fn set_limit(&mut self, limit_bytes: u64) {
        self.share = limit_bytes / 2;
    }

    /// Whether it is still written to a file.
    pub fn is_in(&self, path: &Path) -> bool {
        self.file.is_some() && self.path == path
    }

    /// Begins a part.
    pub fn begin(&mut self, head: Head) {
        let begun = self.start(head);
        self.end_on_error(begun);
    }

    /// The error that ended it, once.
    pub fn take_trouble(&mut self) -> Option<String> {
        self.trouble.take()
    }

    fn start(&mut self, head: Head) -> io::Result<()> {
        if self.must_rotate() {
            if !self.is_lost() {
                fs::rename(&self.path, Journal::older(&self.path))?;
            }
            (self.file, self.bytes) = open(&self.path).map(|(file, bytes)| (Some(file), bytes))?;
        }
        self.write(&Record::Head(head))
    }

    fn write(&mut self, record: &Record) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut encoder = Encoder::new(Vec::new(), LEVEL)?;
        encoder.include_checksum(true)?;
        let mut text = Bounded { inner: &mut encoder, left: RECORD_MAX };
        serde_json::to_writer(&mut text, record)?;
        text.write_all(b"\n")?;
        let frame = encoder.finish()?;
        file.write_all(&frame)?;
        self.bytes += frame.len() as u64;
        Ok(())
    }

    /// After an error nothing more is written: the existing content stays readable.
    fn end_on_error(&mut self, written: io::Result<()>) {
        if let Err(error) = written {
            self.file = None;
            let path = self.path.display();
            self.trouble =
                Some(format!("journal {path}: {error}; the journal ends here, the daemon continues"));
        }
    }
}

/// Text limited to the reader's maximum.
struct Bounded<W> {
    inner: W,
    /// Remaining bytes.
    left: u64,
}

impl<W: Write> Write for Bounded<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(left) = self.left.checked_sub(bytes.len() as u64) else {
            return Err(io::Error::other(format!("an epoch has more than {} MiB of text", RECORD_MAX >> 20)));
        };
        self.inner.write_all(bytes)?;
        self.left = left;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl Watcher for Journal {
    fn planned(&mut self, events: &[Event], view: &View, plan: &Plan) {
        let moves = plan.actions().len().max(events.len()) as u64;
        let written = if moves > MOVES_MAX {
            Err(io::Error::other(format!("an epoch has {moves} moves; the maximum is {MOVES_MAX}")))
        } else {
            self.write(&Record::Epoch(Box::new(Epoch::new(events, view, plan))))
        };
        self.end_on_error(written);
    }

    fn completed(&mut self, _: &[Completion]) {}
}

/// Opens a journal's file, readable by its owner only, and truncates an incomplete last record left by a
/// crash. Returns its length.
fn open(path: &Path) -> io::Result<(File, u64)> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(flags.bits().cast_signed());
    let mut file = options.open(path).map_err(|error| match fs::symlink_metadata(path) {
        Ok(there) if there.is_symlink() => {
            io::Error::other("it is a symbolic link, which memtide does not follow; name the file itself")
        }
        _ => error,
    })?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    check_owner(&found, geteuid().as_raw())?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
        Errno::WOULDBLOCK => io::Error::new(io::ErrorKind::ResourceBusy, "another daemon writes it"),
        error => error.into(),
    })?;
    let whole = whole(&mut file)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.set_len(whole)?;
    file.seek(SeekFrom::Start(whole))?;
    Ok((file, whole))
}

/// Checks that the file belongs to this user and has no other hard link: the content is this user's alone.
pub(super) fn check_owner(found: &Metadata, me: u32) -> io::Result<()> {
    let (owner, links) = (found.uid(), found.nlink());
    let why = match () {
        () if owner != me => format!("it belongs to user {owner}, and the daemon runs as user {me}"),
        () if links > 1 => format!("it has {links} hard links, and may be another file, too"),
        () => return Ok(()),
    };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why + "; name another file, or remove this one"))
}

/// Bytes of the complete records.
fn whole(file: &mut File) -> io::Result<u64> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let mut reader = Reader::new(&bytes);
    let first = reader.next_record();
    let is_journal = bytes.is_empty() || matches!(first, Ok(Some(Record::Head(_))));
    if !is_journal {
        return Err(io::Error::other("it is not a journal; name another file"));
    }
    while reader.next_text().map_err(io::Error::other)?.is_some() {}
    Ok(reader.at() as u64)
}

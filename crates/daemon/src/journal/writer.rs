//! Writing a journal that keeps within its bound.
//!
//! Of two files each has half of the bound: when the current one is full, it takes the place of the older one. A new file begins
//! with a head that has the policy's state. Two simpler ways are none: to stop at the bound would lose what people ask about, the
//! last hours; to make the policy anew would have the journal change what it tells of.

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

/// zstd's compression level: its default.
const LEVEL: i32 = 3;

/// A journal that is written to.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    /// None once it could not be written any more.
    pub(super) file: Option<File>,
    bytes: u64,
    /// Bytes of the file at most.
    share: u64,
    trouble: Option<String>,
}

impl Journal {
    /// Begins a part of a journal, whose files may have so many bytes together, behind what is there already.
    ///
    /// # Errors
    /// The system's; or if the file is no journal, or another daemon's.
    pub fn open(path: &Path, bound_bytes: u64, head: Head) -> io::Result<Journal> {
        let (file, bytes) = open(path)?;
        let share = bound_bytes / 2;
        let mut journal = Journal { path: path.to_owned(), file: Some(file), bytes, share, trouble: None };
        journal.start(head)?;
        Ok(journal)
    }

    /// The file with what came before the current one.
    pub fn older(path: &Path) -> PathBuf {
        let mut name = path.as_os_str().to_owned();
        name.push(".old");
        name.into()
    }

    /// Whether a new part must begin, or already the last record went beyond the bound or somebody took the file away.
    pub fn must_rotate(&self) -> bool {
        self.file.is_some() && (self.bytes >= self.share || self.is_lost())
    }

    /// Whether its file is not at its path any more.
    fn is_lost(&self) -> bool {
        let here = self.file.as_ref().and_then(|file| file.metadata().ok());
        let there = fs::symlink_metadata(&self.path).ok();
        here.zip(there).is_none_or(|(here, there)| (here.dev(), here.ino()) != (there.dev(), there.ino()))
    }

    /// From now on its files may have so many bytes together.
    pub fn set_bound(&mut self, bound_bytes: u64) {
        self.share = bound_bytes / 2;
    }

    /// Whether it goes on in a file.
    pub fn is_in(&self, path: &Path) -> bool {
        self.file.is_some() && self.path == path
    }

    /// Begins a part.
    pub fn begin(&mut self, head: Head) {
        let begun = self.start(head);
        self.note(begun);
    }

    /// Why it ended, once.
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

    /// After an error nothing more is written: what is there stays readable.
    fn note(&mut self, written: io::Result<()>) {
        if let Err(error) = written {
            self.file = None;
            let path = self.path.display();
            self.trouble =
                Some(format!("journal {path}: {error}; the journal ends here, the daemon continues"));
        }
    }
}

/// Text that stays within what a reader takes.
struct Bounded<W> {
    inner: W,
    /// Bytes that may follow.
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
        self.note(written);
    }

    fn completed(&mut self, _: &[Completion]) {}
}

/// Opens a journal's file, readable by its owner alone, and cuts off what a crash left of a last record. Gives its length.
fn open(path: &Path) -> io::Result<(File, u64)> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
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

/// Checks that nobody but this user, and no other name of the file, can have put something else in it.
pub(super) fn check_owner(found: &Metadata, me: u32) -> io::Result<()> {
    let (owner, links) = (found.uid(), found.nlink());
    let why = match () {
        () if owner != me => format!("it belongs to user {owner}, and the daemon runs as user {me}"),
        () if links > 1 => format!("it has {links} hard links, and may be another file, too"),
        () => return Ok(()),
    };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why + "; name another file, or remove this one"))
}

/// Bytes of the records that are whole.
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

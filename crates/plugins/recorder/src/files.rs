//! Memory-mapped files shared with the recorder: they survive any end of the program.

use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use memtide_recording::control::{self, Word};
use memtide_recording::stream::{Buffer, Encoder, MAX_RECORD_BYTES, WINDOW_BYTES};
use memtide_recording::{CONTROL_FILE, LOCK_FILE, Record, stream_file};

/// The control page; never unmapped.
pub struct Control(&'static [AtomicU64]);

impl Control {
    pub fn open(dir: &Path) -> io::Result<Control> {
        let file = OpenOptions::new().read(true).write(true).open(dir.join(CONTROL_FILE))?;
        if file.metadata()?.len() < control::BYTES as u64 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let page = map(&file, 0, control::BYTES)?;
        // SAFETY: the mapping is page-aligned, that long and never unmapped; all who share it use whole
        // words.
        let words =
            unsafe { std::slice::from_raw_parts(page.cast::<AtomicU64>().as_ptr(), control::BYTES / 8) };
        let control = Control(words);
        if control.get(Word::Magic) == control::MAGIC {
            Ok(control)
        } else {
            Err(io::ErrorKind::InvalidData.into())
        }
    }

    pub fn get(&self, word: Word) -> u64 {
        self.0[word as usize].load(Ordering::Relaxed)
    }

    /// Adds to a word; returns the old value.
    pub fn add(&self, word: Word, more: u64) -> u64 {
        self.0[word as usize].fetch_add(more, Ordering::Relaxed)
    }

    /// Updates a word by `next`; returns the old value.
    pub fn update(&self, word: Word, next: impl Fn(u64) -> u64) -> u64 {
        let updated = self.0[word as usize]
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |value| Some(next(value)));
        updated.unwrap_or_else(|value| value)
    }

    /// Records why recording stopped.
    pub fn fail(&self, error: &io::Error) {
        let errno = error.raw_os_error().unwrap_or(libc::EIO) as u64;
        self.0[Word::Failure as usize].store(errno, Ordering::Relaxed);
    }
}

/// A thread's stream, written through a window that moves along its file. The file is open only while the
/// window moves, so a program that closes every descriptor does no harm.
pub struct Stream {
    path: PathBuf,
    window: NonNull<u8>,
    used: usize,
    windows: u64,
    encoder: Encoder,
    buffer: Buffer,
}

// SAFETY: the window belongs to this stream alone, and a stream to one thread at a time.
unsafe impl Send for Stream {}

impl Stream {
    pub fn create(dir: &Path, number: u64) -> io::Result<Stream> {
        let path = dir.join(stream_file(number));
        let window = window(&path, 0)?;
        Ok(Stream {
            path,
            window,
            used: 0,
            windows: 1,
            encoder: Encoder::default(),
            buffer: Buffer::default(),
        })
    }

    pub fn write(&mut self, record: &Record) -> io::Result<()> {
        self.buffer.clear();
        self.encoder.record(record, &mut self.buffer);
        if self.used + MAX_RECORD_BYTES > WINDOW_BYTES {
            let next = window(&self.path, self.windows)?;
            unmap(std::mem::replace(&mut self.window, next));
            self.windows += 1;
            self.used = 0;
        }
        let bytes = self.buffer.as_bytes();
        // SAFETY: the record fits into the rest of the window, as checked above.
        unsafe {
            let at = self.window.as_ptr().add(self.used);
            std::ptr::copy_nonoverlapping(bytes.as_ptr().add(1), at.add(1), bytes.len() - 1);
            // The tag comes last: a program killed in between leaves no half record.
            std::sync::atomic::compiler_fence(Ordering::Release);
            at.write_volatile(bytes[0]);
        }
        self.used += bytes.len();
        Ok(())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        unmap(self.window);
    }
}

/// Extends the file by a window of zeros and maps it, if the reader is alive.
fn window(path: &Path, number: u64) -> io::Result<NonNull<u8>> {
    check_reader(&path.with_file_name(LOCK_FILE))?;
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    let start = number * WINDOW_BYTES as u64;
    // SAFETY: a plain system call on an open file. It reserves the space: on a full disk, a write to the
    // mapping would kill the recorded program.
    let error = unsafe { libc::posix_fallocate(file.as_raw_fd(), start as i64, WINDOW_BYTES as i64) };
    match error {
        0 => map(&file, start, WINDOW_BYTES),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Fails if the reader, which holds this lock while alive, is gone: the files would grow unbounded and never
/// be removed.
fn check_reader(lock: &Path) -> io::Result<()> {
    let lock = File::open(lock)?;
    // SAFETY: a plain system call on an open file.
    match unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_SH | libc::LOCK_NB) } {
        0 => Err(io::Error::from_raw_os_error(libc::EPIPE)),
        _ => Ok(()),
    }
}

fn map(file: &File, offset: u64, bytes: usize) -> io::Result<NonNull<u8>> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
    let start: *mut c_void = unsafe {
        libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, file.as_raw_fd(), offset as i64)
    };
    match NonNull::new(start) {
        Some(window) if start != libc::MAP_FAILED => Ok(window.cast()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn unmap(window: NonNull<u8>) {
    // SAFETY: `window` is a whole mapping made by `map`, and its owner gives it up.
    unsafe { libc::munmap(window.as_ptr().cast(), WINDOW_BYTES) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_of_a_dead_reader_stops_growing() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().to_owned();
        let lock = File::create(dir.join(LOCK_FILE)).unwrap();
        // SAFETY: a plain system call on an open file.
        assert_eq!(unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) }, 0);
        let mut stream = Stream::create(&dir, 0).unwrap();
        let write = |stream: &mut Stream| (0..WINDOW_BYTES).try_for_each(|_| stream.write(&Record::Exec));
        write(&mut stream).unwrap();
        drop(lock);
        let stopped = write(&mut stream).unwrap_err();
        let bytes = std::fs::metadata(&stream.path).unwrap().len();
        let another = Stream::create(&dir, 1).err().unwrap();
        assert_eq!([stopped, another].map(|error| error.raw_os_error()), [Some(libc::EPIPE); 2]);
        assert_eq!(bytes, 2 * WINDOW_BYTES as u64);
    }
}

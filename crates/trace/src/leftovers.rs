//! Removes leftovers of killed `memtide` processes: working folders and unfinished traces are locked while in
//! use, so unlocked ones can be removed.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use memtide_recording::LOCK_FILE;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tempfile::{NamedTempFile, TempDir};

const FOLDER_PREFIX: &str = ".memtide-record-";
const TRACE_PREFIX: &str = ".memtide-trace-";

/// A locked folder for a recording in progress, removed on drop.
pub(crate) struct WorkFolder {
    folder: TempDir,
    _lock: File,
}

impl WorkFolder {
    /// Creates one in this folder.
    pub fn new(place: &Path) -> io::Result<WorkFolder> {
        let folder = tempfile::Builder::new().prefix(FOLDER_PREFIX).tempdir_in(place)?;
        let _lock = lock_folder(folder.path())?;
        Ok(WorkFolder { folder, _lock })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Locks a folder. The lock file gets its name only once it is locked.
fn lock_folder(folder: &Path) -> io::Result<File> {
    let file = NamedTempFile::new_in(folder)?;
    lock(file.as_file())?;
    Ok(file.persist(folder.join(LOCK_FILE))?)
}

/// Locks a file, if the file system supports locks.
fn lock(file: &File) -> io::Result<()> {
    match flock(file, FlockOperation::LockExclusive) {
        Err(Errno::NOTSUP | Errno::NOSYS | Errno::NOLCK) => Ok(()),
        locked => Ok(locked?),
    }
}

/// A locked file in this folder for an incomplete trace.
pub(crate) fn unfinished_trace(place: &Path) -> io::Result<NamedTempFile> {
    loop {
        let file = tempfile::Builder::new()
            .prefix(TRACE_PREFIX)
            .permissions(PermissionsExt::from_mode(0o666))
            .tempfile_in(place)?;
        lock(file.as_file())?;
        // Before it was locked, another process may have removed it as a leftover.
        if file.as_file().metadata()?.nlink() > 0 {
            return Ok(file);
        }
    }
}

/// Removes this user's leftovers from a folder.
pub(crate) fn remove(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().filter_map(Result::ok) {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        // Failures are ignored: another process may have removed it.
        if name.starts_with(FOLDER_PREFIX) {
            let _ = remove_folder(&entry.path());
        } else if name.starts_with(TRACE_PREFIX) {
            let _ = remove_trace(&entry.path());
        }
    }
}

fn remove_folder(folder: &PathBuf) -> io::Result<()> {
    let found = fs::symlink_metadata(folder)?;
    if found.is_dir() && is_own(&found) {
        let lock = File::open(folder.join(LOCK_FILE))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        fs::remove_dir_all(folder)?;
    }
    Ok(())
}

fn remove_trace(path: &PathBuf) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    if found.is_file() && is_own(&found) {
        let file = File::open(path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        fs::remove_file(path)?;
    }
    Ok(())
}

fn is_own(found: &fs::Metadata) -> bool {
    found.uid() == rustix::process::getuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_of_killed_processes_are_removed_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            let folder = place.path().join(name);
            fs::create_dir(&folder).unwrap();
            folder
        };
        let [left, unlocked, other] =
            [".memtide-record-left", ".memtide-record-unlocked", "other"].map(folder);
        drop(lock_folder(&left).unwrap());
        drop(lock_folder(&other).unwrap());
        fs::write(left.join("stream-0"), "accesses").unwrap();
        let used = WorkFolder::new(place.path()).unwrap();
        let unfinished = unfinished_trace(place.path()).unwrap();
        let abandoned = place.path().join(".memtide-trace-abandoned");
        fs::write(&abandoned, "half a trace").unwrap();
        let link = place.path().join(".memtide-record-link");
        std::os::unix::fs::symlink(&other, &link).unwrap();
        remove(place.path());
        let there = [&left, &unlocked, &other, used.path(), unfinished.path(), &abandoned, &link]
            .map(|path| path.exists());
        assert_eq!(there, [false, true, true, true, true, false, true]);
    }
}
